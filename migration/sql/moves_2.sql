-- What version 2 of part "moves" adds: moves in bulk, their pause, and what an operator wants to know
-- of the shards before and after.

-- Why the move was made: NULL for an operator's own, which an entry of the directory keeps in place.
ALTER TABLE collegedb.moves ADD COLUMN IF NOT EXISTS rebalance text;
CREATE INDEX IF NOT EXISTS moves_rebalance ON collegedb.moves (rebalance) WHERE rebalance IS NOT NULL;

-- One row per call of collegedb_rebalance(), rehearsals included.
CREATE TABLE IF NOT EXISTS collegedb.rebalances (
  id text PRIMARY KEY,
  scope text NOT NULL,
  groups text[] NOT NULL,              -- colocation groups
  source text,                         -- NULL = from all shards
  destination text,                    -- NULL = to all shards
  dry_run boolean NOT NULL,
  max_keys bigint,
  concurrency int NOT NULL,
  -- interrupted: its process died; call collegedb_rebalance() again.
  state text NOT NULL CHECK (state IN ('running', 'paused', 'done', 'cancelled', 'failed',
                                       'interrupted')),
  examined bigint NOT NULL DEFAULT 0,
  agreed bigint NOT NULL DEFAULT 0,
  moved bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  plan jsonb NOT NULL DEFAULT '[]',    -- [{"grp", "source", "destination", "keys"}]: what was found
  failures jsonb NOT NULL DEFAULT '[]',
  error text,
  cancel_requested boolean NOT NULL DEFAULT false,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz
);

-- A row while no move may begin in the scope; moves that have begun are finished.
CREATE TABLE IF NOT EXISTS collegedb.paused_moves (
  scope text PRIMARY KEY,
  paused_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What the shard says of itself; some proxy asks it every half a minute. Estimates are the
-- planner's, of registered sharded tables: as old as the last VACUUM or ANALYZE.
ALTER TABLE collegedb.shards
  ADD COLUMN IF NOT EXISTS database_bytes bigint,
  ADD COLUMN IF NOT EXISTS rows_estimate bigint,
  ADD COLUMN IF NOT EXISTS keys_estimate bigint,  -- rows of the groups' root tables
  ADD COLUMN IF NOT EXISTS measured_at timestamptz;

GRANT SELECT ON collegedb.moves, collegedb.move_history, collegedb.rebalances,
  collegedb.paused_moves TO PUBLIC;
