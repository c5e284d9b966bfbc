"""The guard and the insert fence as SQL on plain servers: what migration/sql/shard.sql and
proxy/session/guard.h promise, whatever a proxy makes of them."""

import threading
import time

import psycopg2
import psycopg2.errors
import psycopg2.extensions as ext
import pytest

import guard
import world

LEVELS = {
    "read-committed": ext.ISOLATION_LEVEL_READ_COMMITTED,
    "repeatable-read": ext.ISOLATION_LEVEL_REPEATABLE_READ,
    "serializable": ext.ISOLATION_LEVEL_SERIALIZABLE,
}


@pytest.fixture(scope="module", autouse=True)
def schema(place):
    for cluster in place.shards[:1]:
        for _ in range(2):  # idempotent: that is how it upgrades
            for path in guard.SCHEMA_FILES:
                cluster.psql(guard.read(path), place.dbname)
        cluster.psql("CREATE TABLE t (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)", place.dbname)
        cluster.psql("SELECT collegedb.install_fence('t', 'default', 't', 'id', 'id')", place.dbname)
        cluster.psql("DROP ROLE IF EXISTS guard_app; CREATE ROLE guard_app LOGIN;"
                     "GRANT ALL ON t TO guard_app", place.dbname)
    yield
    place.shards[0].psql("DROP OWNED BY guard_app; DROP ROLE guard_app", place.dbname)


@pytest.fixture(autouse=True)
def clean(place, schema):
    place.on(0, "TRUNCATE t, collegedb.retired, collegedb.archive, collegedb.incoming")
    place.on(0, "INSERT INTO t VALUES ('k', 0), ('other', 0)")
    yield
    assert place.leftovers() == []


def sqlstate_of(action):
    try:
        action()
    except psycopg2.Error as error:
        return error.pgcode
    return None


class Writer(threading.Thread):
    """Runs one guarded statement in its own transaction; outcome afterwards: None or an SQLSTATE."""

    def __init__(self, connection, sql, key="k"):
        super().__init__(daemon=True)
        self.connection, self.sql, self.key = connection, sql, key
        self.outcome, self.error = "running", None
        self.start()

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                guard.run_guard(cursor, "t", [self.key])
                cursor.execute(self.sql)
            self.connection.commit()
            self.outcome = None
        except psycopg2.Error as error:
            self.connection.rollback()
            self.outcome, self.error = error.pgcode, error

    def result(self):
        self.join(10)
        assert not self.is_alive(), "the writer still waits"
        return self.outcome


def waiting(place):
    return place.on(0, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                       "AND wait_event_type = 'Lock'")[0][0]


@pytest.mark.parametrize("statement", [
    "UPDATE t SET n = n + 1 WHERE id = 'k'", "DELETE FROM t WHERE id = 'k'", "INSERT INTO t VALUES ('k', 7)",
    "INSERT INTO t VALUES ('k', 7) ON CONFLICT (id) DO UPDATE SET n = 7"],
    ids=["update", "delete", "insert", "upsert"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_write_that_waited_for_a_cutover_is_refused(place, level, statement):
    with place.direct(0, False) as mover, place.direct(0, False) as client:
        client.set_session(isolation_level=LEVELS[level])
        with mover.cursor() as m:
            guard.fence(m, "t", "k")
            writer = Writer(client, statement)
            world.wait_until(lambda: waiting(place), what="a waiting writer")
            guard.move_away(m, "t", "id", "t", "k")
        mover.commit()
        assert writer.result() == ("CDB02" if level == "read-committed" else "40001")
        if level == "read-committed":
            assert writer.error.diag.message_detail == "b\nop1\nk"
    assert place.on(0, "SELECT count(*) FROM t WHERE id = 'k'") == [(0,)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_snapshot_older_than_the_cutover_does_not_write_after_it(place, level):
    with place.direct(0, False) as mover, place.direct(0, False) as client:
        client.set_session(isolation_level=LEVELS[level])
        with client.cursor() as c:
            c.execute("SELECT n FROM t WHERE id = 'other'")
            assert c.fetchall() == [(0,)]
        with mover.cursor() as m:
            guard.fence(m, "t", "k")
            guard.move_away(m, "t", "id", "t", "k")
        mover.commit()
        writer = Writer(client, "INSERT INTO t VALUES ('k', 7)")
        assert writer.result() == ("CDB02" if level == "read-committed" else "40001")


@pytest.mark.parametrize("level", LEVELS)
def test_a_cutover_waits_for_a_guarded_transaction(place, level):
    with place.direct(0, False) as mover, place.direct(0, False) as client:
        client.set_session(isolation_level=LEVELS[level])
        with client.cursor() as c, mover.cursor() as m:
            guard.run_guard(c, "t", ["k"])
            c.execute("UPDATE t SET n = n + 1 WHERE id = 'k'")
            m.execute("SET LOCAL lock_timeout = '200ms'")
            assert sqlstate_of(lambda: guard.fence(m, "t", "k")) == "55P03"
            mover.rollback()
            client.commit()
            guard.fence(m, "t", "k")
            m.execute("SELECT n FROM t WHERE id = 'k'")
            assert m.fetchall() == [(1,)]
            mover.rollback()


def test_other_keys_of_another_bucket_do_not_wait(place):
    with place.direct(0, False) as mover, place.direct(0, False) as client:
        with mover.cursor() as m:
            guard.fence(m, "t", "k")
            m.execute("SELECT collegedb.bucket('t', 'k') <> collegedb.bucket('t', 'other')")
            assert m.fetchone()[0]
        writer = Writer(client, "UPDATE t SET n = n + 1 WHERE id = 'other'", "other")
        assert writer.result() is None
        mover.rollback()


def test_a_prepared_cutover_holds_writers_until_it_is_decided(place):
    with place.direct(0, False) as mover, place.direct(0, False) as client:
        mover.tpc_begin("guard-sql-1")
        with mover.cursor() as m:
            guard.fence(m, "t", "k")
            guard.move_away(m, "t", "id", "t", "k")
        mover.tpc_prepare()
        writer = Writer(client, "UPDATE t SET n = n + 1 WHERE id = 'k'")
        world.wait_until(lambda: waiting(place), what="a waiting writer")
        time.sleep(0.2)
        assert writer.outcome == "running"
        mover.tpc_rollback()
        assert writer.result() is None
    assert place.on(0, "SELECT n FROM t WHERE id = 'k'") == [(1,)]


def test_a_stale_generation_is_refused(place):
    with place.direct(0, False) as client, client.cursor() as c:
        c.execute("UPDATE collegedb.gate SET min_generation = 5 WHERE bucket = collegedb.bucket('t', 'k')")
        with pytest.raises(psycopg2.Error) as refused:
            guard.run_guard(c, "t", ["k"], generation=4)
        assert refused.value.pgcode == "CDB01" and refused.value.diag.message_detail == "5"
        client.rollback()
        c.execute("UPDATE collegedb.gate SET min_generation = 5 WHERE bucket = collegedb.bucket('t', 'k')")
        guard.run_guard(c, "t", ["k"], generation=5)
        client.rollback()


def test_an_arriving_key_is_held_back(place):
    place.on(0, "INSERT INTO collegedb.incoming VALUES ('default', 't', 'k', 'op1')")
    with place.direct(0, False) as client, client.cursor() as c:
        c.execute("UPDATE collegedb.gate SET cutovers = cutovers + 1 WHERE bucket = collegedb.bucket('t', 'k')")
        assert sqlstate_of(lambda: guard.run_guard(c, "t", ["k"])) == "CDB04"
        client.rollback()


def test_the_guard_in_a_read_only_transaction(place):
    with place.direct(0, False) as client:
        client.set_session(readonly=True)
        with client.cursor() as c:
            assert sqlstate_of(lambda: guard.run_guard(c, "t", ["k"])) == "25006"
            client.rollback()
            guard.run_guard(c, "t", ["k"], read_only=True)
            client.rollback()


def test_a_mover_gets_its_turn_among_sixteen_hammering_writers(place):
    stop = threading.Event()
    written = []

    def hammer():
        count = 0
        with place.direct(0, False) as client:
            while not stop.is_set():
                with client.cursor() as c:
                    guard.run_guard(c, "t", ["k"])
                    c.execute("UPDATE t SET n = n + 1 WHERE id = 'k'")
                client.commit()
                count += 1
        written.append(count)

    threads = [threading.Thread(target=hammer, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    waits = []
    try:
        with place.direct(0, False) as mover, mover.cursor() as m:
            for _ in range(10):
                time.sleep(0.05)
                started = time.monotonic()
                guard.fence(m, "t", "k")
                waits.append(time.monotonic() - started)
                mover.rollback()
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert place.on(0, "SELECT n FROM t WHERE id = 'k'") == [(sum(written),)]
    assert min(written) > 0
    assert max(waits) < 1.0, waits


# --- the insert fence: writers that come without a guard

def retire(place, key="k"):
    with place.direct(0, False) as mover:
        with mover.cursor() as m:
            guard.fence(m, "t", key)
            guard.move_away(m, "t", "id", "t", key)
        mover.commit()


BYPASSES = {
    "insert": "INSERT INTO t VALUES ('k', 1)",
    "multi-row insert": "INSERT INTO t VALUES ('a', 1), ('k', 1)",
    "insert select": "INSERT INTO t SELECT 'k', 1",
    "upsert": "INSERT INTO t VALUES ('k', 1) ON CONFLICT (id) DO UPDATE SET n = 5",
    "copy": "COPY t FROM PROGRAM 'printf \"k\\t1\\n\"'",
    "update of the key": "UPDATE t SET id = 'k' WHERE id = 'other'",
    "as a replica": "SET session_replication_role = replica; INSERT INTO t VALUES ('k', 1)",
    "in a function": "DO $$ BEGIN INSERT INTO t VALUES ('k', 1); END $$",
    "with a CTE": "WITH x AS (INSERT INTO t VALUES ('k', 1) RETURNING 1) SELECT * FROM x",
}


@pytest.mark.parametrize("how", BYPASSES)
def test_a_moved_key_cannot_be_inserted_without_a_guard(place, how):
    retire(place)
    with pytest.raises(psycopg2.Error) as refused:
        place.on(0, BYPASSES[how])
    assert refused.value.pgcode == "CDB02"
    assert place.on(0, "SELECT id FROM t") == [("other",)]


def test_the_fence_lets_other_keys_pass(place):
    retire(place)
    assert place.on(0, "INSERT INTO t VALUES ('a', 1), ('b', 1)") == 2
    assert place.on(0, "UPDATE t SET id = 'c' WHERE id = 'a'") == 1


def test_the_fence_sleeps_only_in_a_guarded_transaction(place):
    retire(place)
    with place.direct(0, False) as client, client.cursor() as c:
        guard.run_guard(c, "t", ["other"])
        c.execute("INSERT INTO t VALUES ('k', 1)")  # skipped: the guard said that it knows all keys
        client.rollback()
        guard.run_guard(c, "t", ["other"], guarded="off")
        # Another key than the guard was told: refused for that, moved or not.
        assert sqlstate_of(lambda: c.execute("INSERT INTO t VALUES ('k', 1)")) == "CDB06"
        client.rollback()
        guard.run_guard(c, "t", ["other"], guarded="off")
        c.execute("INSERT INTO t VALUES ('other', 1) ON CONFLICT DO NOTHING")
        client.rollback()
        assert sqlstate_of(lambda: c.execute("INSERT INTO t VALUES ('k', 1)")) == "CDB02"
        client.rollback()


def test_the_fence_on_a_partition(place):
    place.on(0, "CREATE TABLE parted (id text, n int) PARTITION BY LIST (n);"
                "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
    try:
        for table in ("parted", "parted_1"):
            place.on(0, "SELECT collegedb.install_fence(%s, 'default', 't', 'id', 'id')", (table,))
        retire(place)
        for table in ("parted", "parted_1"):
            assert sqlstate_of(lambda t=table: place.on(0, f"INSERT INTO {t} VALUES ('k', 1)")) == "CDB02"
            place.on(0, f"INSERT INTO {table} VALUES ('a', 1)")
            assert sqlstate_of(lambda t=table: place.on(0, f"UPDATE {t} SET id = 'k'")) == "CDB02"
    finally:
        place.on(0, "DROP TABLE parted")


def test_an_ordinary_role_can_take_the_guard_and_nothing_more(place):
    with place.direct(0, False) as client, client.cursor() as c:
        c.execute("SET ROLE guard_app")
        client.commit()
        guard.run_guard(c, "t", ["k"])
        c.execute("UPDATE t SET n = n + 1 WHERE id = 'k'")
        client.commit()
        for mode in ("SHARE", "ROW EXCLUSIVE"):
            c.execute(f"LOCK TABLE collegedb.sweep IN {mode} MODE")
            client.commit()
        for sql in ("UPDATE collegedb.gate SET cutovers = 0", "UPDATE collegedb.gate SET min_generation = 0",
                    "DELETE FROM collegedb.gate", "DELETE FROM collegedb.retired",
                    "INSERT INTO collegedb.retired VALUES ('default', 't', 'x', 'op', 'b')",
                    "DELETE FROM collegedb.incoming", "UPDATE collegedb.topology SET min_generation = 0",
                    "SELECT * FROM collegedb.archive",
                    "SELECT collegedb.install_fence('t', 'default', 't', 'id', 'id')"):
            assert sqlstate_of(lambda s=sql: c.execute(s)) == "42501", sql
            client.rollback()


def test_an_ordinary_role_meets_the_insert_fence(place):
    retire(place)
    with place.direct(0, False) as client, client.cursor() as c:
        c.execute("SET ROLE guard_app")
        client.commit()
        assert sqlstate_of(lambda: c.execute("INSERT INTO t VALUES ('k', 1)")) == "CDB02"
        client.rollback()
        c.execute("INSERT INTO t VALUES ('a', 1)")
        client.commit()
