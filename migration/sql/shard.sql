-- Objects of schema collegedb on every shard: the fence a write meets, and the tombstones.
-- Applied in one transaction by migration/schema.cpp; idempotent, so that it also upgrades.
-- The texts of the guard that use these objects are in proxy/session/guard.h.
CREATE SCHEMA IF NOT EXISTS collegedb;

CREATE TABLE IF NOT EXISTS collegedb.topology (
  scope text NOT NULL,
  shard text NOT NULL,
  min_generation bigint NOT NULL DEFAULT 0,
  cluster_id uuid NOT NULL DEFAULT gen_random_uuid(),
  PRIMARY KEY (scope, shard)
);

-- One row per bucket of keys; see collegedb.bucket(). Writers hold it FOR SHARE, a cutover updates
-- it: that is the fence at every isolation level. lock_only exists to grant UPDATE on it alone.
CREATE TABLE IF NOT EXISTS collegedb.gate (
  bucket int PRIMARY KEY,
  min_generation bigint NOT NULL DEFAULT 0,
  cutovers bigint NOT NULL DEFAULT 0,
  lock_only int NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO collegedb.gate (bucket) SELECT generate_series(0, 2047) ON CONFLICT DO NOTHING;

-- Tombstones: this key moved from here to moved_to.
CREATE TABLE IF NOT EXISTS collegedb.retired (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  op text NOT NULL,
  moved_to text NOT NULL,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  purge_after timestamptz,
  PRIMARY KEY (scope, grp, key)
);
CREATE INDEX IF NOT EXISTS retired_op ON collegedb.retired (op);

-- A key that has arrived here by `op` while its former owner is not yet known to have committed:
-- writers wait (CDB04) until the marker goes.
CREATE TABLE IF NOT EXISTS collegedb.incoming (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  op text NOT NULL,
  PRIMARY KEY (scope, grp, key)
);

-- Rows a move took away, kept until purge_after.
CREATE TABLE IF NOT EXISTS collegedb.archive (
  op text NOT NULL,
  table_name text NOT NULL,
  row jsonb NOT NULL
);
CREATE INDEX IF NOT EXISTS archive_op ON collegedb.archive (op);

-- The token a mover must still hold; recovery raises it.
CREATE TABLE IF NOT EXISTS collegedb.move_token (
  op text PRIMARY KEY,
  token bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS collegedb.operations (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  operation_id text NOT NULL,
  tag text NOT NULL DEFAULT '',
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (scope, grp, key, operation_id)
);

-- The sweep lock: LOCK TABLE only, never a row. Scatters take it IN SHARE MODE, cutovers IN ROW
-- EXCLUSIVE MODE.
CREATE TABLE IF NOT EXISTS collegedb.sweep (unused int);

-- Counts cutovers outside transactions: compared by snapshots that are older than a cutover.
CREATE SEQUENCE IF NOT EXISTS collegedb.cutover_counter;

-- Gate bucket of a key. Same as routing::gate_bucket.
CREATE OR REPLACE FUNCTION collegedb.bucket(grp text, key text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT (hashtextextended((grp || E'\x01' || key) COLLATE "C", 0) & 2047)::int $$;

-- hrw score of a key on a shard. Same as routing::hrw_score.
CREATE OR REPLACE FUNCTION collegedb.hrw_score(shard text, key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT hashtextextended((shard || E'\x01' || key) COLLATE "C", 0) $$;

-- Owner under hrw with equal weights: highest score, ties by name.
CREATE OR REPLACE FUNCTION collegedb.owner(shards text[], key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT s FROM unnest(shards) AS s
   ORDER BY hashtextextended((s || E'\x01' || key) COLLATE "C", 0) DESC, s COLLATE "C" LIMIT 1 $$;

-- CDB01: the write was routed under an older generation than this shard accepts.
CREATE OR REPLACE FUNCTION collegedb.raise_stale(generation bigint, min_generation bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'generation % is older than %', generation, min_generation
    USING ERRCODE = 'CDB01', DETAIL = min_generation::text;
END $$;

-- Raises CDB02 when one of the keys has a tombstone here (DETAIL: destination shard, then op, then
-- the key, separated by newlines), CDB04 while one is incoming. VOLATILE: at READ COMMITTED its
-- statements see what was committed while the caller waited for a lock.
CREATE OR REPLACE FUNCTION collegedb.check_moved(in_scope text, in_grp text, in_keys text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tomb record;
BEGIN
  SELECT r.moved_to, r.op, r.key INTO tomb FROM collegedb.retired r
   WHERE r.scope = in_scope AND r.grp = in_grp AND r.key = ANY (in_keys) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'key moved to shard %', tomb.moved_to
      USING ERRCODE = 'CDB02', DETAIL = tomb.moved_to || E'\n' || tomb.op || E'\n' || tomb.key;
  END IF;
  PERFORM 1 FROM collegedb.incoming i
   WHERE i.scope = in_scope AND i.grp = in_grp AND i.key = ANY (in_keys);
  IF FOUND THEN
    RAISE EXCEPTION 'key is arriving on this shard' USING ERRCODE = 'CDB04';
  END IF;
  RETURN NULL;
END $$;

-- The fence for writers that do not come through a proxy: queue, gate row, tombstone.
CREATE OR REPLACE FUNCTION collegedb.fence_keys(in_scope text, in_grp text, in_keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  b int;
  moved bigint;
BEGIN
  FOR b IN SELECT DISTINCT collegedb.bucket(in_grp, k) AS bucket FROM unnest(in_keys) AS k
           WHERE k IS NOT NULL ORDER BY bucket LOOP
    PERFORM pg_advisory_xact_lock_shared(1128546865, b);
    SELECT g.cutovers INTO STRICT moved FROM collegedb.gate g WHERE g.bucket = b FOR SHARE;
    IF moved > 0 THEN
      PERFORM collegedb.check_moved(in_scope, in_grp, in_keys);
    END IF;
  END LOOP;
END $$;

-- AFTER INSERT, statement level. Arguments: scope, group, SQL expression of the canonical key.
CREATE OR REPLACE FUNCTION collegedb.fence_insert() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  keys text[];
BEGIN
  EXECUTE 'SELECT array_agg(DISTINCT k) FROM (SELECT ' || TG_ARGV[2] || ' AS k FROM new_rows) s'
    INTO keys;
  IF keys IS NOT NULL THEN
    PERFORM collegedb.fence_keys(TG_ARGV[0], TG_ARGV[1], keys);
  END IF;
  RETURN NULL;
END $$;

-- AFTER UPDATE OF the key column, row level. Same arguments.
CREATE OR REPLACE FUNCTION collegedb.fence_update() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  key text;
BEGIN
  EXECUTE 'SELECT ' || TG_ARGV[2] || ' FROM (SELECT ($1).*) s' INTO key USING NEW;
  IF key IS NOT NULL THEN
    PERFORM collegedb.fence_keys(TG_ARGV[0], TG_ARGV[1], ARRAY[key]);
  END IF;
  RETURN NULL;
END $$;

-- Installs both triggers on one table (or partition). The WHEN clause skips them for writes whose
-- keys a proxy has guarded itself. A partition gets the row trigger as a clone of its parent's, which
-- cannot be dropped by itself; the statement trigger of a parent does not fire for an INSERT straight
-- into the partition, so that one is installed everywhere.
CREATE OR REPLACE FUNCTION collegedb.install_fence(tbl regclass, in_scope text, in_grp text,
                                                   key_column text, key_expression text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS collegedb_fence_insert ON %s', tbl);
  EXECUTE pg_catalog.format(
    'CREATE TRIGGER collegedb_fence_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows '
    'FOR EACH STATEMENT WHEN (pg_catalog.current_setting(''collegedb.guarded'', true) IS DISTINCT FROM ''on'') '
    'EXECUTE FUNCTION collegedb.fence_insert(%L, %L, %L)', tbl, in_scope, in_grp, key_expression);
  EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER collegedb_fence_insert', tbl);
  IF EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t WHERE t.tgrelid = tbl AND t.tgparentid <> 0
               AND t.tgname = 'collegedb_fence_update') THEN
    EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER collegedb_fence_update', tbl);
    RETURN;
  END IF;
  EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS collegedb_fence_update ON %s', tbl);
  EXECUTE pg_catalog.format(
    'CREATE TRIGGER collegedb_fence_update AFTER UPDATE OF %I ON %s '
    'FOR EACH ROW WHEN (pg_catalog.current_setting(''collegedb.guarded'', true) IS DISTINCT FROM ''on'') '
    'EXECUTE FUNCTION collegedb.fence_update(%L, %L, %L)', key_column, tbl, in_scope, in_grp, key_expression);
  EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER collegedb_fence_update', tbl);
END $$;

-- What application roles need, and nothing more.
GRANT USAGE ON SCHEMA collegedb TO PUBLIC;
GRANT SELECT ON collegedb.topology, collegedb.gate, collegedb.retired, collegedb.incoming TO PUBLIC;
GRANT UPDATE (lock_only) ON collegedb.gate TO PUBLIC;
GRANT SELECT, UPDATE ON collegedb.sweep TO PUBLIC;
GRANT SELECT ON collegedb.cutover_counter TO PUBLIC;
REVOKE EXECUTE ON FUNCTION collegedb.install_fence(regclass, text, text, text, text) FROM PUBLIC;
