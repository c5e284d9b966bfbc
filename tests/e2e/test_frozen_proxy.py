"""A proxy frozen over a move writes nothing at the former owner when it wakes."""

import threading
import time

import pytest

import pgwire
from world import attempt, wait_until

pytestmark = pytest.mark.usefixtures("at_rest")


@pytest.fixture(autouse=True)
def awake(pair):
    yield
    for proxy in pair:
        proxy.thaw()


STATEMENTS = {
    "update": "UPDATE items SET v = v + 100 WHERE id = '{0}'",
    "upsert": "INSERT INTO items VALUES ('{0}', 101) ON CONFLICT (id) DO UPDATE SET v = items.v + 100",
}


@pytest.mark.parametrize("how", ["simple", "extended", "prepared before"])
@pytest.mark.parametrize("statement", ["update", "upsert"])
def test_a_write_sent_to_a_frozen_proxy_lands_at_the_new_owner(place, pair, item, move, how, statement):
    frozen = pair[0]
    key = item("db-east")
    sql = STATEMENTS[statement].format(key)
    with pgwire.Wire(("127.0.0.1", frozen.port)).login() as client:
        if how == "prepared before":
            # Runs once before the freeze: the proxy knows the plan and has the statement on the shard.
            assert client.run(pgwire.P("s", sql), pgwire.B("", "s"), pgwire.E(), pgwire.S)[-1] == "ZI"
        frozen.freeze()
        if how == "simple":
            client.send(pgwire.Q(sql))
        elif how == "extended":
            client.send(pgwire.P("", sql), pgwire.B("", ""), pgwire.E(), pgwire.S)
        else:
            client.send(pgwire.B("", "s"), pgwire.E(), pgwire.S)
        move(key, "db-west")
        frozen.thaw()
        words = client.trace()
    assert not [w for w in words if w.startswith("E[")], words
    assert place.holders("items", "id", key) == ["db-west"]
    assert place.on("db-west", "SELECT v FROM items WHERE id = %s", (key,)) == [
        (201 if how == "prepared before" else 101,)]


def test_an_insert_for_a_key_that_left_without_rows(place, pair, item, move):
    """The key's row is deleted, the key moved: an INSERT of stale routing must not revive it."""
    frozen = pair[0]
    key = item("db-east")
    with pgwire.Wire(("127.0.0.1", frozen.port)).login() as client:
        frozen.freeze()
        client.send(pgwire.Q(f"INSERT INTO items VALUES ('{key}', 7)"))
        move(key, "db-west")
        assert pair[1].query("DELETE FROM items WHERE id = %s", (key,)) == 1
        frozen.thaw()
        words = client.trace()
    assert "C(INSERT 0 1)" in words, words
    assert place.holders("items", "id", key) == ["db-west"]


def test_a_transaction_frozen_before_its_first_key(place, pair, item, move):
    frozen = pair[0]
    key = item("db-east")
    with pgwire.Wire(("127.0.0.1", frozen.port)).login() as client:
        assert client.run(pgwire.Q("BEGIN"))[-1] == "ZT"
        frozen.freeze()
        client.send(pgwire.Q(f"UPDATE items SET v = v + 100 WHERE id = '{key}'"))
        move(key, "db-west")
        frozen.thaw()
        # Nothing had run in this transaction: it goes to the new owner, or asks for another try.
        words = client.trace()
        if words[-1] == "ZT":
            assert "C(UPDATE 1)" in words, words
            assert client.run(pgwire.Q("COMMIT")) == ["C(COMMIT)", "ZI"]
            expected = 101
        else:
            assert any(w.startswith("E[ERROR 40001") for w in words), words
            client.run(pgwire.Q("ROLLBACK"))
            expected = 1
    assert place.everywhere(f"SELECT v FROM items WHERE id = '{key}'") == {
        "db-east": [], "db-west": [(expected,)], "db-north": []}


def test_a_frozen_writer_holds_the_move_off_and_then_commits(place, pair, item, move):
    """The other order: its guard was taken before the move, so the move has to give way."""
    frozen, other = pair
    key = item("db-east")
    connection = frozen.connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE items SET v = v + 100 WHERE id = %s", (key,))
        frozen.freeze()
        state, error = attempt(lambda: other.query(
            "SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
        assert state is not None, "a move passed a writer's open transaction"
        assert place.holders("items", "id", key) == ["db-east"], error
        frozen.thaw()
        connection.commit()
    connection.close()
    assert place.on("db-east", "SELECT v FROM items WHERE id = %s", (key,)) == [(101,)]
    move(key, "db-west")
    assert place.on("db-west", "SELECT v FROM items WHERE id = %s", (key,)) == [(101,)]


def test_a_frozen_mover_finishes_when_it_wakes(place, pair, item):
    """Frozen, not dead: nobody may take its move from it while its session lives, and no write is
    lost or doubled meanwhile."""
    frozen, other = pair
    acknowledged = 0
    for delay in (0.0, 0.01, 0.02, 0.03):
        key = item("db-east", 0)
        outcome = []
        mover = threading.Thread(target=lambda k=key, o=outcome: o.append(attempt(lambda: frozen.query(
            "SELECT state FROM collegedb_reassign(%s, 'db-west', 'items')", (k,)))), daemon=True)
        mover.start()
        time.sleep(delay)
        frozen.freeze()
        writer = []

        def write(k=key, w=writer):
            w.append(attempt(lambda: other.query("UPDATE items SET v = v + 1 WHERE id = %s", (k,))))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        time.sleep(0.5)
        frozen.thaw()
        mover.join(15)
        thread.join(15)
        assert outcome and outcome[0][0] is None, outcome
        assert writer and writer[0] == (None, 1), writer
        acknowledged += 1
        assert place.holders("items", "id", key) == ["db-west"]
        assert place.on("db-west", "SELECT v FROM items WHERE id = %s", (key,)) == [(1,)]
    assert acknowledged == 4


def test_a_woken_proxy_learns_of_moves_by_itself(pair, item, move):
    frozen = pair[0]
    key = item("db-east")
    frozen.freeze()
    move(key, "db-west")
    frozen.thaw()
    wait_until(lambda: frozen.query("SELECT shard FROM collegedb_locate(%s, 'items')", (key,)) == [("db-west",)],
               5, "the woken proxy's knowledge of the move")
