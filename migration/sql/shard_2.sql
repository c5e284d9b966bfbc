-- What version 2 of part "shard" adds.

-- CDB05: the gate has no row of this bucket, so nothing would keep a cutover and a write apart.
CREATE OR REPLACE FUNCTION collegedb.raise_no_gate(bucket int) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'gate row % is missing', bucket USING ERRCODE = 'CDB05';
END $$;
