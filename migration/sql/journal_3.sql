-- What version 3 of part "journal" adds: placement by the directory.

-- computed: epochs say where a key lives, exceptions aside. mapped: its row in collegedb.mappings
-- does. Chosen when the scope is sown, for good.
ALTER TABLE collegedb.manifest ADD COLUMN IF NOT EXISTS placement text NOT NULL DEFAULT 'computed'
  CHECK (placement IN ('computed', 'mapped'));

CREATE INDEX IF NOT EXISTS mappings_shard ON collegedb.mappings (scope, shard);

-- Puts `new_keys` on `shard`, each unless somebody has put it elsewhere already, and tells where
-- every one of them is. `strategy` is what the ledger says of those it puts: how the shard was
-- chosen, or NULL for keys that belong there already and are merely entered. CDB01 when the topology
-- is not the caller's any more: under another one the shard may take no (new) keys.
-- Changes of the topology take the lock exclusively: it is fair, unlike locks of the manifest row.
CREATE OR REPLACE FUNCTION collegedb.map_keys(
  in_scope text, in_grp text, new_keys text[], in_shard text, in_strategy text,
  in_generation bigint)
RETURNS TABLE (mapped_key text, mapped_shard text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(
    hashtextextended(('collegedb:map:' || in_scope) COLLATE "C", 0));
  PERFORM 1 FROM collegedb.manifest m JOIN collegedb.shards s ON s.scope = m.scope
    WHERE m.scope = in_scope AND m.generation = in_generation AND m.placement = 'mapped'
    AND s.shard = in_shard AND s.state <> 'removed';
  IF NOT FOUND OR (in_strategy IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM (SELECT e.shards FROM collegedb.epochs e WHERE e.scope = in_scope
       AND e.state = 'active' ORDER BY e.id DESC LIMIT 1) n WHERE in_shard = ANY (n.shards))) THEN
    RAISE EXCEPTION 'the topology has changed meanwhile' USING ERRCODE = 'CDB01';
  END IF;
  -- In one order everywhere: two callers with keys in common never wait for each other in a circle.
  WITH made AS (
    INSERT INTO collegedb.mappings AS m (scope, grp, key, shard)
    SELECT in_scope, in_grp, k, in_shard FROM unnest(new_keys) k ORDER BY k COLLATE "C"
    ON CONFLICT DO NOTHING RETURNING m.key)
  INSERT INTO collegedb.allocations (scope, grp, key, shard, strategy)
  SELECT in_scope, in_grp, made.key, in_shard, in_strategy FROM made
  WHERE in_strategy IS NOT NULL ON CONFLICT DO NOTHING;
  RETURN QUERY SELECT m.key, m.shard FROM collegedb.mappings m
    WHERE m.scope = in_scope AND m.grp = in_grp AND m.key = ANY (new_keys);
END $$;
REVOKE ALL ON FUNCTION collegedb.map_keys FROM PUBLIC;
