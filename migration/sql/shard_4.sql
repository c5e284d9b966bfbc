-- What version 4 of part "shard" adds: owners under every algorithm, and what keeps a key from being
-- made anew under an epoch that is about to be dropped.

-- CollegeDB's hash of a text over its UTF-16 units, as a signed number of 32 bits. Same as
-- routing::college_hash.
CREATE OR REPLACE FUNCTION collegedb.college_hash(key text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  h bigint := 0;
  point int;
BEGIN
  FOR i IN 1 .. length(key) LOOP
    point := ascii(substr(key, i, 1));
    IF point > 65535 THEN
      h := (h * 31 + 55296 + ((point - 65536) >> 10)) & 4294967295;
      point := 56320 + ((point - 65536) & 1023);
    END IF;
    h := (h * 31 + point) & 4294967295;
  END LOOP;
  RETURN CASE WHEN h > 2147483647 THEN h - 4294967296 ELSE h END;
END $$;

-- Owner under an epoch without weights. Same as routing::computed_owner.
CREATE OR REPLACE FUNCTION collegedb.epoch_owner(algorithm text, shards text[], key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$ SELECT CASE algorithm WHEN 'hrw' THEN collegedb.owner(shards, key) WHEN 'modulo'
   THEN shards[abs(collegedb.college_hash(key)) % cardinality(shards) + 1] END $$;

-- A row while epochs are being dropped: then a key's first row is made only where the newest epoch
-- has it, or on its shard by the directory. `generation` names the pruning.
CREATE TABLE IF NOT EXISTS collegedb.pruning (
  scope text PRIMARY KEY,
  shard text NOT NULL,        -- this one
  algorithm text NOT NULL,    -- of the newest epoch
  shards text[] NOT NULL,
  generation bigint NOT NULL
);
-- Keys that the directory has on this shard.
CREATE TABLE IF NOT EXISTS collegedb.pruning_exempt (
  scope text NOT NULL,
  grp text NOT NULL,
  key text NOT NULL,
  PRIMARY KEY (scope, grp, key)
);
-- Condition of the rows of key $1, one per table of a group.
CREATE TABLE IF NOT EXISTS collegedb.pruning_probes (
  scope text NOT NULL,
  grp text NOT NULL,
  table_name text NOT NULL,
  condition text NOT NULL,
  PRIMARY KEY (scope, grp, table_name)
);

-- CDB02 when a key belongs to another shard by the newest epoch and has no row here. A row that is
-- there is kept until the caller's transaction ends. When none is visible, none can be on its way:
-- whoever might make the first one would stand here too, and whoever has deleted the last one and may
-- make another in the same transaction still shows it.
CREATE OR REPLACE FUNCTION collegedb.check_first_row(in_scope text, in_grp text, in_keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p collegedb.pruning;
  probe record;
  k text;
  owner text;
  there boolean;
  kept boolean;
BEGIN
  SELECT * INTO p FROM collegedb.pruning WHERE scope = in_scope;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  FOREACH k IN ARRAY in_keys LOOP
    CONTINUE WHEN k IS NULL;
    owner := collegedb.epoch_owner(p.algorithm, p.shards, k);
    CONTINUE WHEN owner = p.shard;
    PERFORM 1 FROM collegedb.pruning_exempt e
     WHERE e.scope = in_scope AND e.grp = in_grp AND e.key = k;
    CONTINUE WHEN FOUND;
    LOOP
      there := false;
      kept := false;
      FOR probe IN SELECT b.table_name, b.condition FROM collegedb.pruning_probes b
                    WHERE b.scope = in_scope AND b.grp = in_grp LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s WHERE %s)', probe.table_name, probe.condition)
          INTO there USING k;
        IF there THEN
          EXECUTE format('SELECT true FROM %s WHERE %s LIMIT 1 FOR KEY SHARE', probe.table_name,
                         probe.condition) INTO kept USING k;
          EXIT;
        END IF;
      END LOOP;
      EXIT WHEN kept OR NOT there;
    END LOOP;
    IF kept IS NOT TRUE THEN
      RAISE EXCEPTION 'key belongs to shard %', owner
        USING ERRCODE = 'CDB02', DETAIL = owner || E'\n' || 'prune:' || p.generation || E'\n' || k;
    END IF;
  END LOOP;
END $$;

-- As before, and the check above for whoever can make rows.
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
  PERFORM 1 FROM collegedb.pruning p WHERE p.scope = in_scope;
  IF FOUND AND current_setting('transaction_read_only') = 'off' THEN
    PERFORM collegedb.check_first_row(in_scope, in_grp, in_keys);
  END IF;
  RETURN NULL;
END $$;

GRANT SELECT ON collegedb.pruning TO PUBLIC;
