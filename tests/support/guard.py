"""The texts of the guard, read from proxy/session/guard.h, and a mover's fence, as plain SQL."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# In the order of their versions.
SCHEMA_FILES = [os.path.join(ROOT, "migration/sql", name) for name in ("shard.sql", "shard_2.sql", "shard_3.sql")]
LOCK_CLASS = 1128546865


def read(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


def _constants():
    source = read(os.path.join(ROOT, "proxy/session/guard.h"))
    found = {}
    for name, value in re.findall(r"string_view (k\w+)\s*=\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+);", source):
        found[name] = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', value))
    return found


CONSTANTS = _constants()


def _positional(sql):
    """$n of the protocol as psycopg2's %(n)s."""
    return re.sub(r"\$(\d)", r"%(p\1)s", sql.replace("%", "%%"))


def run_guard(cursor, group, keys, *, scope="default", generation=0, guarded="on", read_only=False):
    """What a proxy sends before a write of `keys`: for each bucket the queue, then the gate row."""
    buckets = {}
    for key in keys:
        cursor.execute("SELECT collegedb.bucket(%s, %s)", (group, key))
        buckets.setdefault(cursor.fetchone()[0], []).append(key)
    gate = CONSTANTS["kGateReadOnlySql" if read_only else "kGateSql"]
    for bucket in sorted(buckets):
        cursor.execute(_positional(CONSTANTS["kQueueSql"]), {"p1": bucket})
        cursor.execute(_positional(gate), {"p1": bucket, "p2": generation, "p3": scope, "p4": group,
                                           "p5": buckets[bucket], "p6": guarded})
        rows = cursor.fetchall()
        assert len(rows) == 1, f"gate row of bucket {bucket}: {rows}"


def fence(cursor, group, key):
    """A mover's half: the queue exclusively, then the gate row."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s, collegedb.bucket(%s, %s))", (LOCK_CLASS, group, key))
    cursor.execute("UPDATE collegedb.gate SET cutovers = cutovers + 1 WHERE bucket = collegedb.bucket(%s, %s)",
                   (group, key))
    assert cursor.rowcount == 1


def move_away(cursor, table, key_column, group, key, *, scope="default", op="op1", moved_to="b"):
    """After fence(): archive, tombstone and delete."""
    cursor.execute(f"WITH d AS (DELETE FROM {table} WHERE {key_column}::text = %s RETURNING *) "
                   "INSERT INTO collegedb.archive (op, table_name, row) SELECT %s, %s, to_jsonb(d) FROM d",
                   (key, op, table))
    cursor.execute("INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES (%s, %s, %s, %s, %s)",
                   (scope, group, key, op, moved_to))
