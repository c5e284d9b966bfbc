"""The owner checks that a proxy's statement writes the keys it was routed by, whoever makes the key:
columns that have just changed, triggers, rules, functions behind operators."""

import threading
import time

import psycopg2
import pytest

import pgwire
from world import attempt

pytestmark = pytest.mark.usefixtures("at_rest")


@pytest.fixture(name="keys", scope="module")
def _keys(pair):
    """key(shard, n): the n-th text key that lives there by placement, as `pos` is sharded."""
    pair[0].query("CREATE TABLE pos (id text, v int, email text)")
    pair[0].query("SELECT * FROM collegedb_shard_table('pos')")
    found = {}
    for i in range(60):
        key = f"key-{i}"
        shard = pair[0].query("SELECT shard FROM collegedb_locate(%s, 'pos')", (key,))[0][0]
        found.setdefault(shard, []).append(key)
    return lambda shard, n=0: found[shard][n]


@pytest.fixture(autouse=True)
def empty(place, keys):
    yield
    place.everywhere("TRUNCATE pos")


def holders(place, table, key, column="id"):
    rows = place.everywhere(f"SELECT count(*) FROM {table} WHERE {column} = %s", (key,))
    return [name for name, counted in rows.items() if counted[0][0]]


def test_columns_dropped_under_positional_inserts(place, pair):
    """No acknowledged row lands where its key does not live, although each INSERT means other columns
    after the DDL than the proxy planned with."""
    pair[0].query("CREATE TABLE shifting (a text, id text, b text)")
    pair[0].query("SELECT * FROM collegedb_shard_table('shifting', 'id')")
    stop, answers = threading.Event(), []

    def insert(proxy, base):
        connection = proxy.connect()
        with connection.cursor() as cursor:
            for i in range(100000):
                if stop.is_set():
                    break
                try:
                    cursor.execute(f"INSERT INTO shifting VALUES ('a{base}-{i}', 'b{base}-{i}')")
                    answers.append(None)
                except psycopg2.Error as error:
                    answers.append(error.pgcode)
        connection.close()

    threads = [threading.Thread(target=insert, args=(proxy, base)) for base, proxy in enumerate(pair * 2)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    pair[0].query("ALTER TABLE shifting DROP COLUMN a")
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert answers.count(None) > 50
    rows = {name: [r[0] for r in found] for name, found in place.everywhere("SELECT DISTINCT id FROM shifting").items()}
    assert sum(len(r) for r in rows.values()) > 50
    for name, ids in rows.items():
        for key in ids:
            if key is not None:
                assert pair[0].query("SELECT shard FROM collegedb_locate(%s, 'shifting')", (key,)) == [(name,)], key
    assert set(answers) <= {None, "0A000"}, set(answers)


def test_a_trigger_that_changes_the_key(place, pair, keys):
    place.everywhere("CREATE FUNCTION to_other() RETURNS trigger LANGUAGE plpgsql AS "
                     f"$$ BEGIN NEW.id := '{keys('db-north')}'; RETURN NEW; END $$;"
                     "CREATE TRIGGER to_other BEFORE INSERT ON pos FOR EACH ROW EXECUTE FUNCTION to_other()")
    try:
        time.sleep(1.5)
        for key, state in ((keys("db-west"), "0A000"), (keys("db-north"), None)):
            got, answer = attempt(lambda k=key: pair[0].query("INSERT INTO pos VALUES (%s, 1, 'x')", (k,)))
            assert got == state, answer
            if state:
                assert "KEY_REQUIRED" in str(answer)
        assert holders(place, "pos", keys("db-north")) == ["db-north"]
    finally:
        place.everywhere("DROP TRIGGER to_other ON pos; DROP FUNCTION to_other")


def test_a_rule_that_writes_another_key(place, pair, keys):
    place.everywhere(f"CREATE RULE also AS ON INSERT TO pos WHERE NEW.v = 7 DO ALSO "
                     f"INSERT INTO pos VALUES ('{keys('db-north')}', 8, 'rule')")
    try:
        time.sleep(1.5)
        got, answer = attempt(lambda: pair[0].query("INSERT INTO pos (id, v) VALUES (%s, 7)", (keys("db-west"),)))
        assert got is not None, answer
        assert place.everywhere("SELECT count(*) FROM pos") == {n: [(0,)] for n in place.names}
    finally:
        place.everywhere("DROP RULE also ON pos")


def test_a_trigger_on_a_local_table(place, pair, keys):
    pair[0].query("CREATE TABLE audited (id text)")
    place.everywhere("CREATE FUNCTION into_pos() RETURNS trigger LANGUAGE plpgsql AS "
                     "$$ BEGIN INSERT INTO pos VALUES (NEW.id, 9, 'trigger'); RETURN NULL; END $$;"
                     "CREATE TRIGGER into_pos AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION into_pos()")
    got, answer = attempt(lambda: pair[0].query("INSERT INTO audited VALUES (%s)", (keys("db-north"),)))
    assert got == "0A000" and "KEY_REQUIRED" in str(answer), answer
    assert pair[0].query("SELECT count(*) FROM audited") == [(0,)]
    place.everywhere("DROP TABLE audited; DROP FUNCTION into_pos")


def test_other_writers_are_not_asked(place, keys):
    """psql on a shard: the insert fence alone (tombstones) is its business."""
    assert place.on("db-east", "INSERT INTO pos VALUES (%s, 1, 'x')", (keys("db-west"),)) == 1


def test_every_key_of_a_transaction_may_be_written(place, pair, keys):
    first, second = keys("db-west", 0), keys("db-west", 1)
    with pair[0].connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO pos (id, v) VALUES (%s, 1)", (first,))
        cursor.execute("SAVEPOINT a")
        cursor.execute("INSERT INTO pos VALUES (%s, 1, 'x')", (second,))
        cursor.execute("ROLLBACK TO a")
        cursor.execute("INSERT INTO pos VALUES (%s, 2, 'x')", (second,))
        cursor.execute("INSERT INTO pos VALUES (%s, 2, 'x')", (first,))
    assert holders(place, "pos", first) == holders(place, "pos", second) == ["db-west"]


def test_a_failed_Query_takes_its_settings_back_at_the_client(pair):
    with pgwire.Wire(("127.0.0.1", pair[0].port)).login() as client:
        words = client.run(pgwire.Q("SET client_encoding = 'LATIN1'; SELECT 1/0"))
        told = [w for w in words if w.startswith("S(client_encoding")]
        assert not told or told[-1] == "S(client_encoding=UTF8)", words
        assert "D(UTF8)" in client.run(pgwire.Q("SHOW client_encoding"))


def test_a_SET_before_a_keyed_statement_in_one_batch(pair, keys):
    for _ in range(4):
        for shard in ("db-east", "db-west", "db-north"):
            with pgwire.Wire(("127.0.0.1", pair[0].port)).login() as client:
                words = client.run(pgwire.P("", "SET DateStyle = 'German'"), pgwire.B("", ""), pgwire.E(),
                                   pgwire.P("", f"SELECT v FROM pos WHERE id = '{keys(shard)}'"), pgwire.B("", ""),
                                   pgwire.E(), pgwire.S)
                assert not [w for w in words if w.startswith("E[")], words


def test_keys_in_another_encoding_are_refused(place, pair):
    connection = pair[0].connect()
    with connection.cursor() as cursor:
        connection.set_client_encoding("LATIN1")
        with pytest.raises(psycopg2.errors.FeatureNotSupported):
            cursor.execute("INSERT INTO pos VALUES ('caf\xe9', 1, 'x')")
        cursor.execute("INSERT INTO pos (id, email) VALUES ('cafe', 'caf\xe9')")
    connection.close()
    rows = [r for found in place.everywhere("SELECT email FROM pos").values() for r in found]
    assert rows == [("caf\xe9",)]
