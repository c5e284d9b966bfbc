-- What version 3 of part "moves" adds: the end of archives.

-- purging_at: written before the first row of the operation's archive goes, so that nobody takes
-- what is left of it for the whole. purged_at: all rows are gone. The tombstone stays.
ALTER TABLE collegedb.moves
  ADD COLUMN IF NOT EXISTS purging_at timestamptz,
  ADD COLUMN IF NOT EXISTS purged_at timestamptz;

-- Operations that still have an archive, in the order they are purged.
CREATE INDEX IF NOT EXISTS moves_kept ON collegedb.moves (scope, finished_at, op)
  WHERE state = 'retired' AND purged_at IS NULL;
-- Those whose copy verify looks for.
CREATE INDEX IF NOT EXISTS moves_aborted ON collegedb.moves (scope, op) WHERE state = 'aborted';
