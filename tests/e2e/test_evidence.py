"""What an operator sees of what moves leave behind: verify, repair, purge, restore and diff from psql's
view, beside clients that write and movers that move."""

import contextlib
import json
import time

import psycopg2
import pytest

import load
from moves import Mover, assert_moves_settled, shard_counters

EAST, WEST = "db-east", "db-west"
LISTS = ("dangling_ops", "ghosts", "stranded_archives", "stranded_copies", "stale_cutovers")
KEYS = 24


def answer(proxy, sql, arguments=None):
    """Rows of an answer, as dictionaries."""
    with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


def verify(proxy, repair=False):
    (row,) = answer(proxy, f"SELECT * FROM collegedb_verify({'repair => true' if repair else ''})")
    assert tuple(row) == LISTS + ("repaired", "clean")
    assert row["clean"] == all(row[name] == [] for name in LISTS), row
    return row


def findings(row):
    return {name: row[name] for name in LISTS if row[name]}


@pytest.fixture
def settled(pair):
    yield
    assert findings(verify(pair[0])) == {}


def test_a_move_its_archive_and_their_end(pair, place, item, move):
    key = item(EAST)
    op = move(key, WEST)[0]
    assert place.on(EAST, "SELECT table_name, row ->> 'v' FROM collegedb.archive WHERE op = %s", (op,)) == [
        ("public.items", "1")]
    first, second = pair
    (row,) = answer(first, "SELECT * FROM collegedb_purge_retired()")
    assert {"op": op, "code": "RETENTION_NOT_ELAPSED"} in row["refused"] and op not in row["purged"]
    again = item(EAST)
    gone = answer(first, "SELECT * FROM collegedb_reassign(%s, %s, 'items', retire_after => '0')",
                  (again, WEST))[0]["op"]
    (row,) = answer(first, "SELECT * FROM collegedb_purge_retired()")
    assert {"op": gone, "code": "NOT_VERIFIED"} in row["refused"]
    assert verify(second)["clean"] is True
    (row,) = answer(first, "SELECT * FROM collegedb_purge_retired(max_ops => 5)")
    assert row["purged"] == [gone]
    assert row["refused"] == [{"op": op, "code": "RETENTION_NOT_ELAPSED"}]
    assert place.on(EAST, "SELECT moved_to FROM collegedb.retired WHERE key = %s", (again,)) == [(WEST,)]
    assert first.query("UPDATE items SET v = 2 WHERE id = %s", (again,)) == 1
    with pytest.raises(psycopg2.Error) as error:
        first.query("SELECT * FROM collegedb_purge_retired(-1)")
    assert error.value.pgcode == "22023"


@pytest.mark.deadline(180)
def test_a_proxy_frozen_over_move_and_purge_finds_the_key(pair, place, item, settled):
    first, second = pair
    key = item(EAST)
    assert first.query("SELECT v FROM items WHERE id = %s", (key,)) == [(1,)]
    first.freeze()
    try:
        second.query("SELECT * FROM collegedb_reassign(%s, %s, 'items', retire_after => '0')", (key, WEST))
        assert verify(second)["clean"]
        (row,) = answer(second, "SELECT * FROM collegedb_purge_retired()")
        assert len(row["purged"]) == 1
        assert second.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)) == 1
    finally:
        first.thaw()
    assert first.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)) == 1
    assert first.query("SELECT v FROM items WHERE id = %s", (key,)) == [(3,)]
    assert place.holders("items", "id", key) == [WEST]


def test_a_ghost_is_told_and_removed(pair, place, item, move):
    key = item(EAST)
    op = move(key, WEST)[0]
    place.on(EAST, "SET session_replication_role = replica; SET collegedb.guarded = 'on';"
                   "INSERT INTO items VALUES (%s, 1)", (key,))
    row = verify(pair[0])
    assert set(findings(row)) == {"ghosts"}
    assert row["ghosts"][0]["key"] == key and row["ghosts"][0]["op"] == op
    assert row["ghosts"][0]["shard"] == EAST
    row = verify(pair[1], repair=True)
    assert row["clean"] and [each["key"] for each in row["repaired"]] == [key]
    assert place.holders("items", "id", key) == [WEST]
    assert findings(verify(pair[0])) == {}


def test_a_lost_decision_is_put_right(pair, place, item, move, settled):
    key = item(EAST, v=7)
    op = move(key, WEST)[0]
    place.on(EAST, "UPDATE collegedb.moves SET state = 'aborted' WHERE op = %s", (op,))
    place.on(WEST, "DELETE FROM items WHERE id = %s", (key,))
    row = verify(pair[0])
    assert set(findings(row)) == {"stale_cutovers"} and row["stale_cutovers"][0]["restorable"] is True
    assert verify(pair[0], repair=True)["clean"]
    place.on(EAST, "DELETE FROM collegedb.exceptions WHERE key = %s", (key,))
    place.on(EAST, "UPDATE collegedb.manifest SET exception_version = exception_version + 1")
    assert place.holders("items", "id", key) == [EAST]
    deadline = time.monotonic() + 20
    while pair[0].query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)) != 1:
        assert time.monotonic() < deadline
    assert place.on(EAST, "SELECT v FROM items WHERE id = %s", (key,)) == [(8,)]


def test_restore_is_a_move(pair, place, item, move, settled):
    first, second = pair
    key = item(EAST)
    op = move(key, WEST)[0]
    second.query("UPDATE items SET v = 5 WHERE id = %s", (key,))
    (row,) = answer(first, "SELECT * FROM collegedb_restore(%s)", (op,))
    assert row["source"] == WEST and row["destination"] == EAST and row["op"] not in (None, op)
    assert row["state"] == "retired" and row["rows"] == 1
    assert place.holders("items", "id", key) == [EAST]
    assert first.query("SELECT v FROM items WHERE id = %s", (key,)) == [(5,)]
    # Deleted everywhere: the archive has the last rows that moved.
    second.query("DELETE FROM items WHERE id = %s", (key,))
    (row,) = answer(second, "SELECT * FROM collegedb_restore(%s)", (row["op"],))
    assert row["rows"] == 1 and place.holders("items", "id", key) == [WEST]
    assert first.query("SELECT v FROM items WHERE id = %s", (key,)) == [(5,)]
    with pytest.raises(psycopg2.Error) as error:
        first.query("SELECT * FROM collegedb_restore('nothing')")
    assert error.value.pgcode == "42704"


def test_diff(pair, place, item, move):
    first, second = pair
    place.everywhere("CREATE TABLE countries (code text PRIMARY KEY, name text)")
    place.everywhere("INSERT INTO countries VALUES ('DE', 'Germany'), ('FR', 'France')")
    first.query("SELECT * FROM collegedb_reference_table('countries')")
    assert answer(first, "SELECT * FROM collegedb_diff('countries')") == []
    place.on(WEST, "UPDATE countries SET name = 'Allemagne' WHERE code = 'DE'")
    (row,) = answer(second, "SELECT * FROM collegedb_diff('countries')")
    assert row["path"].startswith("public.countries/") and '["DE"]' in row["path"]
    assert (row["shard_a"], row["shard_b"], row["rows_differing"]) == (EAST, WEST, 1)
    place.everywhere("UPDATE countries SET name = 'Germany' WHERE code = 'DE'")
    assert answer(first, 'SELECT * FROM collegedb_diff("table" => %s)', ("countries",)) == []
    key = item(EAST)
    move(key, WEST)
    assert answer(first, "SELECT * FROM collegedb_diff('items', %s)", (key,)) == []
    first.query("UPDATE items SET v = 2 WHERE id = %s", (key,))
    (row,) = answer(first, "SELECT * FROM collegedb_diff('items', %s)", (key,))
    assert (row["shard_a"], row["shard_b"], row["rows_differing"]) == (WEST, EAST, 1)
    for call in ("collegedb_diff('items')", "collegedb_diff('countries', 'DE')"):
        with pytest.raises(psycopg2.Error) as error:
            first.query(f"SELECT * FROM {call}")
        assert error.value.pgcode == "22023", call


@pytest.mark.deadline(240)
def test_verifications_beside_moves_and_writers_find_nothing(pair, place, seed):
    shard_counters(pair[0], place, KEYS)
    movers = [Mover(pair, place, seed + i, KEYS, share=(i, 2)) for i in range(2)]
    with load.Load([proxy.conninfo() for proxy in pair], count=6, seed=seed, pace=0.01, keys=KEYS) as writers:
        for mover in movers:
            mover.start()
        until = time.monotonic() + 12
        looks = 0
        while time.monotonic() < until:
            row = verify(pair[looks % 2], repair=looks % 3 == 0)
            assert row["clean"] and row["repaired"] == [], json.dumps(row)
            answer(pair[0], "SELECT * FROM collegedb_purge_retired()")
            looks += 1
        for mover in movers:
            mover.stop()
        ledger = load.Ledger(writers.stop())
    assert looks > 3 and sum(len(mover.moves) for mover in movers) > 10
    assert [failure for mover in movers for failure in mover.failures] == []
    assert ledger.judge(place, keys=KEYS) == []
    assert_moves_settled(place)
    assert findings(verify(pair[0])) == {}
    recorded = place.on(EAST, "SELECT count(*), bool_and(finished_at IS NOT NULL) FROM"
                              " collegedb.verifications WHERE started_at > now() - interval '20 seconds'")
    assert recorded[0][0] >= looks // 2 and recorded[0][1]


def test_only_administrators(pair):
    first = pair[0]
    first.query("CREATE ROLE onlooker LOGIN")
    try:
        with contextlib.closing(first.connect(user="onlooker")) as connection, connection.cursor() as cursor:
            for call in ("collegedb_verify()", "collegedb_purge_retired()", "collegedb_restore('x')"):
                with pytest.raises(psycopg2.Error) as error:
                    cursor.execute(f"SELECT * FROM {call}")
                assert error.value.pgcode == "42501", error.value
    finally:
        first.query("DROP ROLE onlooker")
