-- What version 2 of part "journal" adds.

-- A row from the moment epochs begin to be dropped until every shard is back to normal; whoever
-- finds one that nobody holds the topology lock for finishes it. No move is claimed meanwhile.
CREATE TABLE IF NOT EXISTS collegedb.prunes (
  scope text PRIMARY KEY REFERENCES collegedb.manifest (scope),
  generation bigint NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT ON collegedb.prunes TO PUBLIC;
