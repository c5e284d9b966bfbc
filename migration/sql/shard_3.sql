-- What version 3 of part "shard" adds: the owner checks that a statement of a proxy has written the
-- keys it was routed by. A proxy's sessions carry collegedb.keys, a text[] of group, chr(1) and key:
-- empty from the start, and what the transaction has guarded here afterwards. Other writers have no
-- such setting.

-- CDB06: a row was written under another key than the proxy knew. Its knowledge of the columns is
-- old, or a trigger, a rule or a function has its own mind about keys.
CREATE OR REPLACE FUNCTION collegedb.check_written(in_grp text, in_keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  guarded text := current_setting('collegedb.keys', true);
  stranger text;
BEGIN
  IF guarded IS NULL OR guarded = '' THEN
    RETURN;
  END IF;
  SELECT k INTO stranger FROM unnest(in_keys) AS k
   WHERE k IS NOT NULL AND NOT (in_grp || E'\x01' || k) = ANY (guarded::text[]) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the statement writes key "%" of group %, by which it was not routed', stranger, in_grp
      USING ERRCODE = 'CDB06';
  END IF;
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
    PERFORM collegedb.check_written(TG_ARGV[1], keys);
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
    PERFORM collegedb.check_written(TG_ARGV[1], ARRAY[key]);
    PERFORM collegedb.fence_keys(TG_ARGV[0], TG_ARGV[1], ARRAY[key]);
  END IF;
  RETURN NULL;
END $$;
