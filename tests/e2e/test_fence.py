"""Writers that go straight to a shard: psql, an old program, a function. A key that has left is
refused by the shard itself."""

import subprocess

import pytest

pytestmark = pytest.mark.usefixtures("at_rest")


@pytest.fixture(scope="module")
def group(place, proxies):
    """A colocation group whose key is an integer: users(id), orders(user_id)."""
    proxy = proxies()
    place.everywhere("CREATE TABLE users (id bigint PRIMARY KEY, name text);"
                     "CREATE TABLE orders (user_id bigint NOT NULL, no int, what text, PRIMARY KEY (user_id, no))")
    proxy.query("SELECT * FROM collegedb_shard_table('users', 'id')")
    proxy.query("SELECT * FROM collegedb_shard_table('orders', 'user_id', 'users')")
    return proxy


@pytest.fixture
def moved(place, group):
    """A user with three orders that has just left: (proxy, id, former owner, owner)."""
    key = 1 + (group.query("SELECT count(*) FROM users")[0][0])
    group.query("INSERT INTO users VALUES (%s, 'ann')", (key,))
    for no in range(3):
        group.query("INSERT INTO orders VALUES (%s, %s, 'tea')", (key, no))
    source = place.holders("users", "id", key)
    assert len(source) == 1 and place.holders("orders", "user_id", key) == source
    destination = next(n for n in place.names if n != source[0])
    rows = group.query("SELECT source, destination, state, rows FROM collegedb_reassign(%s, %s, 'users')",
                       (str(key), destination))
    assert rows[0][:2] == (source[0], destination) and rows[0][3] == 4
    return group, key, source[0], destination


def psql(place, shard, sql):
    return subprocess.run(["psql", "-X", "-v", "VERBOSITY=verbose", "-d", place.cluster(shard).conninfo(place.dbname),
                           "-c", sql], capture_output=True, text=True, check=False, timeout=30)


STRAIGHT = {
    "insert": "INSERT INTO users VALUES ({0}, 'ghost')",
    "insert into another table of the group": "INSERT INTO orders VALUES ({0}, 9, 'ghost')",
    "copy": "COPY orders FROM PROGRAM 'printf \"{0}\\t9\\tghost\\n\"'",
    "upsert": "INSERT INTO users VALUES ({0}, 'ghost') ON CONFLICT (id) DO NOTHING",
    "replica role": "SET session_replication_role = replica; INSERT INTO users VALUES ({0}, 'ghost')",
    "function": "DO $$BEGIN INSERT INTO users VALUES ({0}, 'ghost'); END$$",
    "key update": "INSERT INTO users VALUES (-{0}, 'x'); UPDATE users SET id = {0} WHERE id = -{0}",
}


@pytest.mark.parametrize("how", STRAIGHT)
def test_psql_straight_to_the_former_owner_is_refused(place, moved, how):
    proxy, key, source, destination = moved
    done = psql(place, source, STRAIGHT[how].format(key))
    assert done.returncode != 0 and "CDB02" in done.stderr and destination in done.stderr, done
    assert place.holders("users", "id", key) == [destination]
    assert place.holders("orders", "user_id", key) == [destination]
    assert proxy.query("SELECT count(*) FROM orders WHERE user_id = %s", (key,)) == [(3,)]


def test_straight_writes_to_the_owner_pass(place, moved):
    _, key, _, destination = moved
    assert psql(place, destination, f"INSERT INTO orders VALUES ({key}, 10, 'tea')").returncode == 0
    assert psql(place, destination, f"UPDATE users SET name = 'bob' WHERE id = {key}").returncode == 0


def test_a_key_that_came_back_is_writable_again(place, moved):
    proxy, key, source, destination = moved
    rows = proxy.query("SELECT source, destination FROM collegedb_reassign(%s, %s, 'users')", (str(key), source))
    assert rows == [(destination, source)]
    assert psql(place, source, f"INSERT INTO orders VALUES ({key}, 11, 'tea')").returncode == 0
    done = psql(place, destination, f"INSERT INTO orders VALUES ({key}, 12, 'tea')")
    assert "CDB02" in done.stderr
    assert proxy.query("SELECT count(*) FROM orders WHERE user_id = %s", (key,)) == [(4,)]


def test_the_archive_holds_what_was_moved(place, moved):
    _, key, source, _ = moved
    rows = place.on(source, "SELECT a.table_name, a.row FROM collegedb.archive a JOIN collegedb.retired r USING (op) "
                            "WHERE r.key = %s", (str(key),))
    assert sorted(name.rpartition(".")[2] for name, _ in rows) == ["orders", "orders", "orders", "users"]
    assert all(str(row.get("id", row.get("user_id"))) == str(key) for _, row in rows)
