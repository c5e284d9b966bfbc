"""Transactions at the three isolation levels over a move."""

import psycopg2
import psycopg2.extensions as ext
import pytest

from world import attempt

pytestmark = pytest.mark.usefixtures("at_rest")

LEVELS = {
    "read-committed": ext.ISOLATION_LEVEL_READ_COMMITTED,
    "repeatable-read": ext.ISOLATION_LEVEL_REPEATABLE_READ,
    "serializable": ext.ISOLATION_LEVEL_SERIALIZABLE,
}
SNAPSHOTS = [name for name in LEVELS if name != "read-committed"]


@pytest.fixture
def session(pair):
    """session(level): a connection in transactions, through the first proxy."""
    opened = []

    def start(level):
        connection = pair[0].connect(autocommit=False)
        connection.set_session(isolation_level=LEVELS[level])
        opened.append(connection)
        return connection

    yield start
    for connection in opened:
        connection.close()


def rows_everywhere(place, key):
    return {name: rows for name, rows in place.everywhere(
        "SELECT v FROM items WHERE id = %s", (key,)).items() if rows}


@pytest.mark.parametrize("level", SNAPSHOTS)
@pytest.mark.parametrize("write", ["INSERT INTO items VALUES (%(k)s, 9) ON CONFLICT (id) DO UPDATE SET v = 9",
                                   "UPDATE items SET v = 9 WHERE id = %(k)s", "DELETE FROM items WHERE id = %(k)s"],
                         ids=["insert", "update", "delete"])
def test_read_before_a_cutover_and_write_after_it_gets_40001(place, session, item, move, level, write):
    """The snapshot is taken by another key of the same shard, so nothing holds the move off."""
    witness, key = item("db-east"), item("db-east")
    connection = session(level)
    with connection.cursor() as cursor:
        cursor.execute("SELECT v FROM items WHERE id = %s", (witness,))
        assert cursor.fetchall() == [(1,)]
        move(key, "db-west")
        state, error = attempt(lambda: cursor.execute(write, {"k": key}))
        assert state == "40001", error
        connection.rollback()
    assert rows_everywhere(place, key) == {"db-west": [(1,)]}


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_read_before_a_cutover_and_read_after_it_is_never_empty(session, item, move, level):
    witness, key = item("db-east"), item("db-east")
    connection = session(level)
    with connection.cursor() as cursor:
        cursor.execute("SELECT v FROM items WHERE id = %s", (witness,))
        cursor.fetchall()
        move(key, "db-west")
        state, result = attempt(lambda: cursor.execute("SELECT v FROM items WHERE id = %s", (key,)))
        if state is None:
            assert cursor.fetchall() == [(1,)]
        else:
            assert state == "40001", result
        connection.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_a_move_waits_for_a_transaction_that_touched_the_key(place, pair, session, item, move, level):
    """Reads included; the mover gives way, not the client."""
    key = item("db-east")
    connection = session(level)
    with connection.cursor() as cursor:
        cursor.execute("SELECT v FROM items WHERE id = %s", (key,))
        assert cursor.fetchall() == [(1,)]
        state, _ = attempt(lambda: pair[1].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
        assert state is not None
        cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
        assert cursor.rowcount == 1
        connection.commit()
    assert rows_everywhere(place, key) == {"db-east": [(2,)]}
    move(key, "db-west")
    assert rows_everywhere(place, key) == {"db-west": [(2,)]}


@pytest.mark.parametrize("level", LEVELS)
def test_first_statement_of_a_transaction_follows_a_move(place, session, item, move, level):
    """Nothing ran before it: no error at all, whatever the proxy knew."""
    key = item("db-east")
    connection = session(level)
    move(key, "db-west")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
        assert cursor.rowcount == 1
    connection.commit()
    assert rows_everywhere(place, key) == {"db-west": [(2,)]}


def test_read_committed_later_statement_of_a_moved_key(place, session, item, move):
    """Another key first, then one that has moved: 40001, or a second shard where that is possible."""
    witness, key = item("db-east"), item("db-east")
    connection = session("read-committed")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (witness,))
        move(key, "db-west")
        state, error = attempt(lambda: cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,)))
        assert state in (None, "40001", "0A000"), error
        if state is None:
            assert cursor.rowcount == 1
            connection.commit()
            assert rows_everywhere(place, key) == {"db-west": [(2,)]}
        else:
            connection.rollback()
            assert rows_everywhere(place, key) == {"db-west": [(1,)]}
            assert rows_everywhere(place, witness) == {"db-east": [(1,)]}


@pytest.mark.parametrize("level", LEVELS)
def test_a_failed_transaction_says_rollback_at_commit(session, item, level):
    key = item("db-east")
    connection = session(level)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
        with pytest.raises(psycopg2.errors.DivisionByZero):
            cursor.execute("UPDATE items SET v = 1 / 0 WHERE id = %s", (key,))
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            cursor.execute("SELECT v FROM items WHERE id = %s", (key,))
        cursor.execute("COMMIT")
        assert cursor.statusmessage == "ROLLBACK"
        cursor.execute("SELECT v FROM items WHERE id = %s", (key,))
        assert cursor.fetchall() == [(1,)]
