"""Statements over all shards: concatenation, count(*), DDL; what is refused, is refused by name."""

import collections
import contextlib
import re
import threading
import time

import psycopg2
import pytest

from world import attempt

ROWS = 300


@pytest.fixture(scope="module")
def filled(pair):
    with contextlib.closing(pair[0].connect()) as connection, connection.cursor() as cursor:
        for number in range(ROWS):
            cursor.execute("INSERT INTO items VALUES (%s, %s)", (f"item-{number}", number))
    connection.close()
    return pair


def test_rows_of_all_shards_once(place, filled):
    rows = filled[0].query("SELECT id, v FROM items")
    assert sorted(rows) == sorted((f"item-{n}", n) for n in range(ROWS))
    counts = [r[0][0] for r in place.everywhere("SELECT count(*) FROM items").values()]
    assert sum(counts) == ROWS and all(counts)


def test_count(filled):
    assert filled[0].query("SELECT count(*) FROM items") == [(ROWS,)]
    assert filled[0].query("SELECT count(*) FROM items WHERE v < 100") == [(100,)]
    assert filled[0].query("SELECT count(*) AS n FROM items WHERE v < 0") == [(0,)]


def test_count_with_parameters_and_binary_results(filled):
    import psycopg
    with psycopg.connect(filled[0].conninfo(), autocommit=True, prepare_threshold=0) as connection:
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                cursor.execute("SELECT count(*) FROM items WHERE v < %s", (7,))
                assert cursor.fetchall() == [(7,)]
                cursor.execute("SELECT id, v FROM items WHERE v < %s", (7,))
                assert sorted(v for _, v in cursor.fetchall()) == list(range(7))


def test_empty_table(pair, filled):
    assert filled[0].query("SELECT id FROM items WHERE v = -1") == []


REFUSED = {
    "order by": "SELECT id FROM items ORDER BY v",
    "limit": "SELECT id FROM items LIMIT 5",
    "distinct": "SELECT DISTINCT v FROM items",
    "group by": "SELECT v, count(*) FROM items GROUP BY v",
    "sum": "SELECT sum(v) FROM items",
    "two counts": "SELECT count(*), max(v) FROM items",
    "having": "SELECT v FROM items GROUP BY v HAVING count(*) > 1",
    "window": "SELECT id, row_number() OVER () FROM items",
    "set operation": "SELECT id FROM items UNION SELECT id FROM items",
    "for update": "SELECT id FROM items FOR UPDATE",
    "self join": "SELECT a.id FROM items a, items b WHERE a.v = b.v",
    "sub-select": "SELECT (SELECT count(*) FROM items)",
    "count in an expression": "SELECT count(*) + 1 FROM items",
    "filter": "SELECT count(*) FILTER (WHERE id = 'item-1') FROM items",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_exact_is_refused_by_name_or_exact(place, filled, what):
    """This step refuses; a later one may answer, but then it must be what one server would say."""
    connection = filled[0].connect()
    try:
        with connection.cursor() as cursor:
            state, error = attempt(lambda: cursor.execute(REFUSED[what]))
            assert state == "0A000", (state, error)
            assert str(error).startswith("UNROUTABLE_QUERY:") and error.diag.message_hint, error
            cursor.execute("SELECT count(*) FROM items")
            assert cursor.fetchone() == (ROWS,)
    finally:
        connection.close()


WRITES = {
    "no key": ("UPDATE items SET v = 0 WHERE v = 5", "0A000", "KEY_REQUIRED|UNROUTABLE_QUERY"),
    "key in OR": ("UPDATE items SET v = 0 WHERE id = 'item-1' OR v = 5", "0A000", "KEY_REQUIRED|UNROUTABLE_QUERY"),
    "key in NOT": ("DELETE FROM items WHERE NOT id = 'item-1'", "0A000", "KEY_REQUIRED|UNROUTABLE_QUERY"),
    "insert without key": ("INSERT INTO items (v) VALUES (1)", "0A000", "KEY_REQUIRED"),
    "key from a function": ("INSERT INTO items VALUES (md5(random()::text), 1)", "0A000", "KEY_REQUIRED|UNROUTABLE_QUERY"),
    "null key": ("INSERT INTO items VALUES (NULL, 1)", "23502",
                 'null value in column "id" of relation "items" violates not-null constraint'),
    "update of the key": ("UPDATE items SET id = 'other' WHERE id = 'item-1'", "0A000", "KEY_UPDATE"),
}


@pytest.mark.parametrize("what", WRITES)
def test_writes_without_a_sound_key_are_refused(place, filled, what):
    sql, sqlstate, names = WRITES[what]
    state, error = attempt(lambda: filled[0].query(sql))
    assert state == sqlstate, (state, error)
    assert re.split(r"[:\n]", str(error))[0] in names.split("|"), error
    assert filled[0].query("SELECT count(*) FROM items WHERE v >= 0") == [(ROWS,)]


SOUND = {
    "K1 key in the target list": ("SELECT id, (id = 'item-1') AS mine FROM items WHERE id = 'item-2'", [("item-2", False)]),
    "literal first": ("SELECT v FROM items WHERE 'item-3' = id", [(3,)]),
    "and": ("SELECT v FROM items WHERE v = 4 AND id = 'item-4'", [(4,)]),
    "contradiction": ("SELECT v FROM items WHERE id = 'item-4' AND id = 'item-5'", []),
    "quoted": ("SELECT v FROM \"items\" AS i WHERE i.\"id\" = 'item-6'", [(6,)]),
    "schema": ("SELECT v FROM public.items WHERE id = 'item-6'", [(6,)]),
    "update to itself": ("UPDATE items SET id = 'item-9', v = 9 WHERE id = 'item-9' RETURNING v", [(9,)]),
    "cast": ("SELECT v FROM items WHERE id = 'item-7'::text", [(7,)]),
    "K5 is not true": ("SELECT count(*) FROM items WHERE (id = 'item-1') IS NOT TRUE", [(ROWS - 1,)]),
    "or": ("SELECT count(*) FROM items WHERE id = 'item-1' OR v = 2", [(2,)]),
    "in list over shards": ("SELECT count(*) FROM items WHERE id IN ('item-1', 'item-2', 'item-3', 'item-4')", [(4,)]),
    "K7 function in the list": ("SELECT count(*) FROM items WHERE id IN ('item-1', lower('ITEM-2'), 'item-3')", [(3,)]),
}


@pytest.mark.parametrize("what", SOUND)
def test_the_answer_is_that_of_one_server(filled, what):
    sql, expected = SOUND[what]
    state, result = attempt(lambda: filled[0].query(sql))
    if state == "0A000":  # refusing is allowed, a wrong answer never
        assert str(result).split(":")[0] in ("UNROUTABLE_QUERY", "KEY_REQUIRED"), result
        assert what.split()[0] in ("or", "in", "K5", "K7", "contradiction"), f"{what}: {result}"
    else:
        assert result == expected


@pytest.mark.deadline(150)
def test_moving_keys_are_seen_exactly_once(place, filled, at_rest):
    """Scatters by either proxy while keys move there and back without pause."""
    stop = threading.Event()
    faults, moved = [], []

    def mover(proxy, offset):
        connection = proxy.connect()
        with connection.cursor() as cursor:
            number = offset
            while not stop.is_set():
                number = (number + 2) % 40
                for destination in place.names:
                    try:
                        cursor.execute("SELECT op FROM collegedb_reassign(%s, %s, 'items')",
                                       (f"item-{number}", destination))
                        moved.append(cursor.fetchone()[0])
                    except psycopg2.Error as error:
                        faults.append(f"move: {error.pgcode} {error}")
        connection.close()

    movers = [threading.Thread(target=mover, args=(p, i), daemon=True) for i, p in enumerate(filled)]
    for thread in movers:
        thread.start()
    scans = 0
    expected = {f"item-{n}": 1 for n in range(ROWS)}
    connections = [p.connect() for p in filled]
    until = time.monotonic() + 8
    try:
        while time.monotonic() < until:
            for connection in connections:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT id FROM items")
                    seen = collections.Counter(key for (key,) in cursor.fetchall())
                    if seen != expected:
                        faults.append(f"scan {scans}: {[(k, seen[k]) for k in {**expected, **seen} if seen[k] != 1]}")
                    cursor.execute("SELECT count(*) FROM items")
                    total = cursor.fetchone()[0]
                    if total != ROWS:
                        faults.append(f"count {total}")
                scans += 1
    finally:
        stop.set()
        for thread in movers:
            thread.join(20)
        for connection in connections:
            connection.close()
    print(f"\n{scans} scans, {len(moved)} moves")
    assert faults == []
    assert scans >= 20 and len([m for m in moved if m]) >= 20


def test_ddl_goes_to_every_shard(place, filled):
    proxy = filled[0]
    proxy.query("CREATE TABLE everywhere (id bigint PRIMARY KEY, note text NOT NULL)")
    proxy.query("CREATE INDEX everywhere_note ON everywhere (note)")
    assert [r for r in place.everywhere("SELECT to_regclass('everywhere_note') IS NOT NULL").values()] == [[(True,)]] * 3
    proxy.query("SELECT * FROM collegedb_shard_table('everywhere', 'id')")
    for number in range(20):
        assert proxy.query("INSERT INTO everywhere VALUES (%s, 'x')", (number,)) == 1
    proxy.query("ALTER TABLE everywhere ADD COLUMN more int DEFAULT 5")
    assert filled[1].query("SELECT more FROM everywhere WHERE id = 3") == [(5,)]
    proxy.query("TRUNCATE everywhere")
    assert filled[1].query("SELECT count(*) FROM everywhere") == [(0,)]
    proxy.query("DROP TABLE everywhere")
    assert [r for r in place.everywhere("SELECT to_regclass('everywhere') IS NULL").values()] == [[(True,)]] * 3


@pytest.mark.parametrize("shard", [0, 2])
def test_ddl_is_atomic(place, filled, at_rest, shard):
    """One shard refuses: no shard has it."""
    place.on(shard, "CREATE TABLE half (x int)")
    try:
        state, _ = attempt(lambda: filled[0].query("CREATE TABLE half (id int PRIMARY KEY)"))
        assert state == "42P07"
        found = {n: r[0][0] for n, r in place.everywhere(
            "SELECT count(*) FROM pg_class WHERE relname = 'half'").items()}
        assert found == {name: int(i == shard) for i, name in enumerate(place.names)}
    finally:
        place.on(shard, "DROP TABLE half")


def test_local_tables_live_on_the_journal_shard(place, filled):
    place.on(0, "CREATE TABLE local_one (id int PRIMARY KEY, v text)")
    assert filled[0].query("INSERT INTO local_one VALUES (1, 'a')") == 1
    assert filled[1].query("SELECT v FROM local_one") == [("a",)]
    state, error = attempt(lambda: filled[0].query("SELECT * FROM local_one l JOIN items i ON i.v = l.id"))
    assert state == "0A000" and str(error).startswith("UNROUTABLE_QUERY:"), error
    place.on(0, "DROP TABLE local_one")


def test_opaque_statements_are_refused_by_name(place, filled):
    place.everywhere("CREATE FUNCTION touch_items() RETURNS void LANGUAGE sql AS 'UPDATE items SET v = v'")
    for sql in ("SELECT touch_items()", "DO $$BEGIN UPDATE items SET v = 1; END$$"):
        state, error = attempt(lambda s=sql: filled[0].query(s))
        assert state == "0A000" and str(error).split(":")[0] in ("UNROUTABLE_QUERY", "KEY_REQUIRED"), (sql, error)
