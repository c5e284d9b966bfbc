"""What a statement means, and what it runs, is what PostgreSQL makes of it: names along the
search_path, code behind operators, types, views and the like, definitions that part rows from the
registry. The server's answer, or a refusal by name; never a part of the rows."""

import contextlib

import psycopg2
import pytest

ROWS = 30


@pytest.fixture(name="users", scope="module")
def _users(place, proxies):
    """A proxy over users(id, v) with rows on every shard, and a second one that knows the same."""
    proxy, other = proxies(), proxies()
    proxy.query("CREATE TABLE users (id text PRIMARY KEY, v text)")
    proxy.query("CREATE TABLE notes (a int, v text)")
    proxy.query("SELECT * FROM collegedb_shard_table('users', 'id')")
    for number in range(ROWS):
        proxy.query("INSERT INTO users (id, v) VALUES (%s, 'public')", (f"k{number}",))
    assert all(rows[0][0] for rows in place.everywhere("SELECT count(*) FROM users").values())
    return proxy, other


@contextlib.contextmanager
def client(proxy, *statements, user="postgres"):
    with contextlib.closing(proxy.connect(user=user)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            yield cursor


def ask(cursor, sql, arguments=None):
    cursor.execute(sql, arguments)
    return cursor.fetchall()


def refused(proxy, sql, state, text, *before):
    with client(proxy, *before) as cursor:
        with pytest.raises(psycopg2.Error) as error:
            cursor.execute(sql)
    assert error.value.pgcode == state, error.value
    assert text in str(error.value), error.value


def test_an_unregistered_table_hides_the_registered_one(place, users):
    proxy, other = users
    proxy.query("CREATE SCHEMA s")
    proxy.query("CREATE TABLE s.users (id text PRIMARY KEY, v text)")
    proxy.query("INSERT INTO s.users VALUES ('k1', 's'), ('k2', 's')")
    for each in users:
        with client(each, "SET search_path = s, public") as cursor:
            for key in ("k1", "k2"):
                assert ask(cursor, "SELECT v FROM users WHERE id = %s", (key,)) == [("s",)]
            assert ask(cursor, "SELECT count(*) FROM users") == [(2,)]
            assert ask(cursor, "SELECT v FROM users WHERE id = 'k3'") == []
        with client(each, "SET search_path = public, s") as cursor:
            assert ask(cursor, "SELECT v FROM users WHERE id = 'k1'") == [("public",)]
            assert ask(cursor, "SELECT count(*) FROM users") == [(ROWS,)]
    with client(other, "SET search_path = s, public") as cursor:
        cursor.execute("UPDATE users SET v = 'new' WHERE id = 'k3'")
        assert cursor.rowcount == 0
        cursor.execute("DELETE FROM users")
        assert cursor.rowcount == 2
    assert sum(rows[0][0] for rows in place.everywhere(
        "SELECT count(*) FROM public.users WHERE v = 'public'").values()) == ROWS


def test_user_of_the_path_is_the_role_in_force(place, users):
    proxy, _ = users
    for cluster in place.shards:
        cluster.psql("DROP ROLE IF EXISTS soundness_r; CREATE ROLE soundness_r")
    try:
        proxy.query("CREATE SCHEMA soundness_r")
        proxy.query("CREATE TABLE soundness_r.users (id text PRIMARY KEY, v text)")
        proxy.query("INSERT INTO soundness_r.users VALUES ('k1', 'own')")
        proxy.query("GRANT USAGE ON SCHEMA soundness_r TO soundness_r")
        proxy.query("GRANT SELECT ON soundness_r.users TO soundness_r")
        with client(proxy, "SET ROLE soundness_r") as cursor:
            assert ask(cursor, "SELECT v FROM users WHERE 'k1' = id") == [("own",)]
            assert ask(cursor, "SELECT count(*) AS own FROM users") == [(1,)]
        with client(proxy) as cursor:
            assert ask(cursor, "SELECT v FROM users WHERE id IN ('k1')") == [("public",)]
    finally:
        proxy.query("DROP SCHEMA IF EXISTS soundness_r CASCADE")
        for cluster in place.shards:
            cluster.psql("DROP ROLE soundness_r", check=False)


@pytest.mark.parametrize("statement", [
    "ALTER ROLE postgres SET search_path = s", "ALTER DATABASE app SET search_path = s",
    "ALTER ROLE postgres SET role = postgres", "ALTER ROLE ALL SET client_encoding = 'SJIS'",
    "ALTER SYSTEM SET standard_conforming_strings = off",
])
def test_stored_settings_are_refused(users, statement):
    refused(users[0], statement, "0A000", "is not supported through the proxy")


def test_hidden_code_is_opaque(place, users):
    proxy, other = users
    for statement in (
            "CREATE FUNCTION total() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM users'",
            "CREATE FUNCTION wipe(int, int) RETURNS text LANGUAGE sql AS "
            "'DELETE FROM users RETURNING id'",
            "CREATE FUNCTION known(text) RETURNS boolean LANGUAGE sql AS "
            "'SELECT EXISTS (SELECT FROM users WHERE id = $1)'",
            "CREATE FUNCTION fullname(users) RETURNS text LANGUAGE sql AS "
            "'SELECT max(v) FROM users'",
            "CREATE OPERATOR !!! (LEFTARG = int, RIGHTARG = int, FUNCTION = wipe)",
            "CREATE DOMAIN known_key AS text CHECK (known(VALUE))",
            "CREATE VIEW totals AS SELECT total() AS n",
            "CREATE VIEW texts AS SELECT query_to_xml('SELECT * FROM users', true, true, '') AS x"):
        proxy.query(statement)
    for each in (proxy, other):
        refused(each, "SELECT 1 !!! 2", "0A000", "KEY_REQUIRED: operator !!!")
        refused(each, "UPDATE notes SET v = 1 !!! 2", "0A000", "KEY_REQUIRED: operator !!!")
        refused(each, "SELECT 'k1'::known_key", "0A000", "KEY_REQUIRED: type")
        refused(each, "SELECT u.fullname FROM users u", "0A000", "KEY_REQUIRED: attribute")
        refused(each, "SELECT * FROM totals", "0A000", "KEY_REQUIRED: code of relation")
        refused(each, "SELECT * FROM texts", "0A000", "KEY_REQUIRED: code of relation")
        refused(each, "SELECT query_to_xml('SELECT 1', true, true, '')", "0A000",
                "KEY_REQUIRED: function query_to_xml()")
        refused(each, "SELECT u.count FROM users u", "0A000", "an aggregate")
    assert sum(rows[0][0] for rows in place.everywhere(
        "SELECT count(*) FROM public.users").values()) == ROWS
    # What needs no guess goes on.
    assert proxy.query("SELECT n.v FROM notes n") == []
    assert proxy.query("SELECT u.v FROM users u WHERE u.id = 'k1'") == [("public",)]


def test_triggers_of_local_tables_are_opaque(place, users):
    proxy, _ = users
    proxy.query("CREATE TABLE audited (a int)")
    proxy.query("INSERT INTO audited VALUES (1)")
    proxy.query("CREATE FUNCTION wipe_all() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN DELETE FROM users; RETURN NEW; END'")
    proxy.query("CREATE TRIGGER t BEFORE INSERT ON audited FOR EACH ROW EXECUTE FUNCTION wipe_all()")
    refused(proxy, "INSERT INTO audited VALUES (2)", "0A000", "KEY_REQUIRED: code of relation")
    assert proxy.query("SELECT a FROM audited") == [(1,)]
    assert sum(rows[0][0] for rows in place.everywhere(
        "SELECT count(*) FROM public.users").values()) == ROWS


def test_extensions_in_c_stay_usable(users):
    proxy, _ = users
    proxy.query("CREATE EXTENSION citext")
    proxy.query("CREATE TABLE words (a citext PRIMARY KEY)")
    proxy.query("INSERT INTO words VALUES ('X')")
    assert proxy.query("SELECT a FROM words WHERE a = 'x'") == [("X",)]


def test_catalogs_are_not_written(users):
    refused(users[0], "UPDATE pg_settings SET setting = 's' WHERE name = 'search_path'", "0A000",
            "writing to system relation")
    refused(users[0], "DELETE FROM pg_catalog.pg_description", "0A000", "writing to system relation")
    assert users[0].query("SELECT setting FROM pg_settings WHERE name = 'search_path'")


def test_rows_are_not_parted_from_the_registry(place, users):
    proxy, _ = users
    refused(proxy, "CREATE MATERIALIZED VIEW m AS SELECT * FROM users", "0A000",
            "CREATE MATERIALIZED VIEW over sharded table")
    proxy.query("CREATE TABLE parted (id int, v int) PARTITION BY RANGE (id)")
    proxy.query("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100)")
    proxy.query("SELECT * FROM collegedb_shard_table('parted', 'id')")
    for statement in ("ALTER TABLE parted DETACH PARTITION parted_1",
                      "ALTER TABLE parted DETACH PARTITION parted_1 CONCURRENTLY",
                      "ALTER TABLE notes INHERIT users", "ALTER TABLE users NO INHERIT notes"):
        refused(proxy, statement, "0A000", "changing the inheritance")
    assert place.everywhere("SELECT count(*) FROM pg_inherits") == {
        name: [(1,)] for name in place.names}


def test_a_dropped_table_is_forgotten(place, users):
    proxy, other = users

    def registered():
        return {row[0] for row in place.on(0, "SELECT schema_name || '.' || table_name "
                                              "FROM collegedb.tables")}

    proxy.query("CREATE SCHEMA zy")
    for name in ("zy.ss", "dropped"):
        proxy.query(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        proxy.query("SELECT * FROM collegedb_shard_table(%s, 'id')", (name,))
    assert {"zy.ss", "public.dropped"} <= registered()
    with client(proxy, "DROP SCHEMA zy CASCADE", "DROP TABLE dropped") as cursor:
        assert any("public.dropped is not registered any more" in notice
                   for notice in cursor.connection.notices)
    assert not {"zy.ss", "public.dropped"} & registered()
    for statement in ("CREATE SCHEMA zy", "CREATE TABLE zy.ss (a int)", "CREATE TABLE dropped (a int)",
                      "INSERT INTO dropped VALUES (1), (2), (3)", "INSERT INTO zy.ss VALUES (1)"):
        proxy.query(statement)
    assert sorted(other.query("SELECT a FROM dropped")) == [(1,), (2,), (3,)]
    assert place.everywhere("SELECT count(*) FROM dropped") == {
        name: [(3 if name == place.names[0] else 0,)] for name in place.names}
