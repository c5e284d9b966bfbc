-- Objects of schema collegedb that only the journal shard has: what the cluster is (manifest,
-- epochs, shards, tables), where keys live that are not at their computed owner (exceptions,
-- mappings), and what is going on between shards (two_phase, proxies).
-- Applied in one transaction by migration/schema.cpp, after shard.sql. Versions and upgrade steps:
-- migration/schema.cpp. What a move writes stands in moves.sql.

-- One row per scope; every change of what routing depends on raises one of its versions in the
-- same transaction. Writers compare and swap on `revision`.
CREATE TABLE IF NOT EXISTS collegedb.manifest (
  scope text PRIMARY KEY CHECK (scope ~ '^[A-Za-z0-9_.-]{1,40}$'),
  revision bigint NOT NULL DEFAULT 1,           -- epochs and shards
  generation bigint NOT NULL DEFAULT 1,         -- what every write is bound to
  exception_version bigint NOT NULL DEFAULT 0,  -- collegedb.exceptions
  registry_version bigint NOT NULL DEFAULT 1,   -- collegedb.tables, and the tables themselves
  seeded boolean NOT NULL DEFAULT false,        -- the tables of the first configuration are in
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE OR REPLACE FUNCTION collegedb.manifest_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.updated_at := clock_timestamp();
  PERFORM pg_notify('collegedb_' || NEW.scope, '');
  RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS manifest_changed ON collegedb.manifest;
CREATE TRIGGER manifest_changed BEFORE INSERT OR UPDATE ON collegedb.manifest
  FOR EACH ROW EXECUTE FUNCTION collegedb.manifest_changed();

-- Placement, newest (highest id) first, at most 8 live ones.
CREATE TABLE IF NOT EXISTS collegedb.epochs (
  scope text NOT NULL REFERENCES collegedb.manifest (scope),
  id int NOT NULL,
  algorithm text NOT NULL CHECK (algorithm IN ('hrw', 'modulo')),
  state text NOT NULL CHECK (state IN ('publishing', 'active')),
  shards text[] NOT NULL CHECK (cardinality(shards) > 0),  -- declared order: modulo depends on it
  weights float8[] CHECK (weights IS NULL OR cardinality(weights) = cardinality(shards)),
  generation bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, id)
);

CREATE TABLE IF NOT EXISTS collegedb.shards (
  scope text NOT NULL REFERENCES collegedb.manifest (scope),
  shard text NOT NULL,
  region text NOT NULL DEFAULT '',
  max_size bigint NOT NULL DEFAULT 0,  -- bytes; 0 = no limit
  slot int NOT NULL CHECK (slot >= 0),  -- residue of the numbers its sequences give out
  state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'removed')),
  added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, shard),
  UNIQUE (scope, slot)
);

-- The registry. A table nobody registered is local.
CREATE TABLE IF NOT EXISTS collegedb.tables (
  scope text NOT NULL REFERENCES collegedb.manifest (scope),
  schema_name text NOT NULL,
  table_name text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('sharded', 'reference', 'local')),
  grp text,                -- colocation group: %I.%I of its root table when it was registered
  key_column text,
  key_type text,           -- routing::name_of(KeyType); NULL while the table does not exist yet
  key_expression text,     -- SQL expression of the canonical key over the table's columns
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, schema_name, table_name),
  CHECK (kind <> 'sharded' OR (grp IS NOT NULL AND key_column IS NOT NULL)),
  CHECK ((key_type IS NULL) = (key_expression IS NULL))
);
CREATE INDEX IF NOT EXISTS tables_grp ON collegedb.tables (scope, grp);

-- The directory: this key of this group lives on `shard`, whatever placement computes.
-- 'move' is authoritative; 'epoch-hit' remembers what was found through an older epoch.
CREATE TABLE IF NOT EXISTS collegedb.exceptions (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  shard text NOT NULL,
  kind text NOT NULL DEFAULT 'move' CHECK (kind IN ('move', 'epoch-hit')),
  version bigint NOT NULL DEFAULT 0,  -- manifest.exception_version that brought it
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, grp, key)
);

-- placement = "mapped": where a key was put when it was first written.
CREATE TABLE IF NOT EXISTS collegedb.mappings (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  shard text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, grp, key)
);

-- Secondary names that route to a key.
CREATE TABLE IF NOT EXISTS collegedb.lookups (
  scope text NOT NULL,
  grp text NOT NULL,
  lookup text NOT NULL,
  key text NOT NULL,
  PRIMARY KEY (scope, grp, lookup)
);
CREATE INDEX IF NOT EXISTS lookups_key ON collegedb.lookups (scope, grp, key);

-- Ledger of keys placed by strategy, for reconcile.
CREATE TABLE IF NOT EXISTS collegedb.allocations (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  shard text NOT NULL,
  strategy text NOT NULL,
  allocated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, grp, key)
);

-- Blocks of numbers handed out to proxies, unique over all shards.
CREATE TABLE IF NOT EXISTS collegedb.sequences (
  scope text NOT NULL,
  name text NOT NULL,
  next_value bigint NOT NULL DEFAULT 1,
  PRIMARY KEY (scope, name)
);

-- Transactions prepared on several shards. 'preparing' is written before the first PREPARE;
-- commit and presumed abort are the same compare-and-swap on `state`. The row goes when every
-- shard has followed. Its coordinator holds the advisory lock hashtextextended(gid, 0) on this
-- shard; recovery acts only when that lock is free.
CREATE TABLE IF NOT EXISTS collegedb.two_phase (
  gid text PRIMARY KEY,
  scope text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('ddl', 'dml')),
  state text NOT NULL DEFAULT 'preparing' CHECK (state IN ('preparing', 'committed', 'aborted')),
  shards text[] NOT NULL,
  coordinator uuid,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  decided_at timestamptz
);

-- Running proxies; live while heartbeat_at is recent by this server's clock.
CREATE TABLE IF NOT EXISTS collegedb.proxies (
  scope text NOT NULL,
  id uuid NOT NULL,
  address text NOT NULL,
  version text NOT NULL,
  shards text[] NOT NULL,                        -- its configuration
  revision bigint NOT NULL DEFAULT 0,            -- what it has loaded
  exception_version bigint NOT NULL DEFAULT 0,
  registry_version bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, id)
);

CREATE TABLE IF NOT EXISTS collegedb.verifications (
  scope text NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  clean boolean,
  findings jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (scope, id)
);

GRANT SELECT ON collegedb.manifest, collegedb.epochs, collegedb.shards, collegedb.tables,
  collegedb.exceptions, collegedb.mappings, collegedb.allocations, collegedb.proxies,
  collegedb.two_phase, collegedb.verifications TO PUBLIC;
