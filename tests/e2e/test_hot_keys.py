"""collegedb_hot_keys: what this process is asked for most, where it is and how large it is."""

import contextlib

import pytest

from world import attempt

HOT = "SELECT key, shard, statements_per_second, writes_per_second, rows, bytes FROM collegedb_hot_keys"


@pytest.fixture(name="tables", scope="module")
def _tables(place, pair):
    first, second = pair
    place.everywhere("CREATE TABLE parts (id int PRIMARY KEY, item text NOT NULL, filler text)")
    place.everywhere("CREATE INDEX ON parts (item)")
    first.query("SELECT * FROM collegedb_shard_table('parts', 'item', 'items')")
    return first, second


def test_the_hottest_keys_come_first(tables, place, item):
    first, second = tables
    assert first.query("SELECT * FROM collegedb_hot_keys(0)") == []
    keys = [item(shard, 0) for shard in ("db-west", "db-east", "db-north")]
    for round_ in range(60):
        first.query("UPDATE items SET v = v + 1 WHERE id = %s", (keys[0],))
        if round_ % 2:
            first.query("SELECT v FROM items WHERE id = %s", (keys[1],))
        if round_ % 6 == 0:
            second.query("SELECT v FROM items WHERE id = %s", (keys[2],))
    rows = first.query(f"{HOT}(2)")
    assert [row[:2] for row in rows] == [(keys[0], "db-west"), (keys[1], "db-east")]
    assert rows[0][2] > rows[1][2] > 0 and rows[0][3] >= rows[0][2] * 0.9 and rows[0][4:] == (None, None)
    # Each process tells of itself.
    assert keys[0] not in [row[0] for row in second.query(f"{HOT}()")]
    assert keys[2] in [row[0] for row in second.query(f"{HOT}(n => 20)")]

    first.query("INSERT INTO parts VALUES (1, %s, repeat('x', 500)), (2, %s, 'y')", (keys[0], keys[0]))
    ((key, shard, _, _, count, size),) = first.query(f"{HOT}(1, sizes => true)")
    assert (key, shard, count) == (keys[0], "db-west", 3)
    stored = place.on("db-west", "SELECT (SELECT sum(pg_column_size(i.*)) FROM items i WHERE id = %s)"
                                 " + (SELECT sum(pg_column_size(p.*)) FROM parts p WHERE item = %s)", (key, key))
    assert [(size,)] == stored


def test_a_moved_key_is_shown_where_it_is(tables, item, move):
    first, _ = tables
    key = item("db-east")
    move(key, "db-north")
    for _ in range(400):
        first.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
    assert first.query(f"{HOT}(1, true)")[0][:2] == (key, "db-north")


def test_who_may_ask_for_what(tables):
    first, _ = tables
    first.query("CREATE ROLE guest LOGIN")
    try:
        with contextlib.closing(first.connect(user="guest")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM collegedb_hot_keys()")
            assert attempt(lambda: cursor.execute("SELECT * FROM collegedb_hot_keys(5, true)"))[0] == "42501"
    finally:
        first.query("DROP ROLE guest")
    assert attempt(lambda: first.query("SELECT * FROM collegedb_hot_keys(-1)"))[0] == "2201W"
    assert attempt(lambda: first.query("SELECT * FROM collegedb_hot_keys('many')"))[0] == "22P02"
