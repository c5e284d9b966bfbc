-- Objects of schema collegedb on the journal shard that moves and recovery use.
-- Applied in one transaction by migration/schema.cpp after shard.sql; idempotent.
-- Every change of a move is conditional on (op, token); who raises the token owns the operation.

-- One row per operation. States: migration/machine.h.
CREATE TABLE IF NOT EXISTS collegedb.moves (
  op text PRIMARY KEY,
  scope text NOT NULL,
  state text NOT NULL CHECK (state IN ('claim', 'prepared', 'copied', 'verified', 'cutover_pending',
                                       'committed', 'published', 'retired', 'aborted')),
  grp text NOT NULL,
  source text NOT NULL,
  destination text NOT NULL,
  attempt int NOT NULL DEFAULT 0,
  token bigint NOT NULL DEFAULT 1,
  error text,
  position text,
  digest text,
  tables int NOT NULL DEFAULT 0,
  rows bigint NOT NULL DEFAULT 0,
  bytes bigint NOT NULL DEFAULT 0,
  copies int NOT NULL DEFAULT 0,
  write_stall_ms double precision,
  retire_after interval NOT NULL DEFAULT '7 days',
  cancel_requested boolean NOT NULL DEFAULT false,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz
);
CREATE INDEX IF NOT EXISTS moves_active ON collegedb.moves (scope)
  WHERE state NOT IN ('retired', 'aborted');

CREATE TABLE IF NOT EXISTS collegedb.move_keys (
  op text NOT NULL REFERENCES collegedb.moves (op) ON DELETE CASCADE,
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  PRIMARY KEY (op, key)
);
CREATE INDEX IF NOT EXISTS move_keys_key ON collegedb.move_keys (scope, grp, key);

-- Every change of state, in order.
CREATE TABLE IF NOT EXISTS collegedb.move_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  op text NOT NULL,
  state text NOT NULL,
  attempt int NOT NULL,
  token bigint NOT NULL,
  note text,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS move_history_op ON collegedb.move_history (op, id);

-- A key is in at most one running operation. No foreign key to moves: a claim without an operation
-- is debris that recovery releases.
CREATE TABLE IF NOT EXISTS collegedb.claims (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  op text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, grp, key)
);
CREATE INDEX IF NOT EXISTS claims_op ON collegedb.claims (op);

-- One recovery at a time per scope; (scope, generation) is unique for ever. This server's clock.
CREATE TABLE IF NOT EXISTS collegedb.recovery_lease (
  scope text PRIMARY KEY,
  holder text NOT NULL,
  generation bigint NOT NULL DEFAULT 1,
  expires_at timestamptz NOT NULL
);

-- The advisory lock that the mover of an operation holds in its journal session while it lives.
CREATE OR REPLACE FUNCTION collegedb.move_lock(op text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT hashtextextended(('collegedb move ' || op) COLLATE "C", 0) $$;
