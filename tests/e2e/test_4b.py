"""Attacks on the move protocol, one row of docs/moves.md's table after the other (row_N). Rows about
two-phase commits over shards and live epochs (5, 6, 7, 16) come with those; 20 is in
test_chaos_kill.py, because it kills a server."""

import socket
import threading
import time

import psycopg2
import psycopg2.extensions as ext
import pytest

import pgwire
from chaos import Watcher
from proxy import Proxy, is_sanitized
from world import Keys, Place, attempt, local_ports, wait_until

pytestmark = pytest.mark.usefixtures("at_rest")
REPEATABLE = ext.ISOLATION_LEVEL_REPEATABLE_READ
LEVELS = {"read-committed": ext.ISOLATION_LEVEL_READ_COMMITTED, "repeatable-read": REPEATABLE,
          "serializable": ext.ISOLATION_LEVEL_SERIALIZABLE}


def where(place, key, table="items"):
    return {n: r for n, r in place.everywhere(f"SELECT v FROM {table} WHERE id = %s", (key,)).items() if r}


@pytest.fixture
def session(pair):
    opened = []

    def start(proxy=None, **options):
        connection = (proxy or pair[0]).connect(autocommit=False)
        connection.set_session(**options)
        opened.append(connection)
        return connection

    yield start
    for connection in opened:
        connection.close()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("again", ["INSERT INTO items VALUES (%(k)s, 50) ON CONFLICT (id) DO UPDATE SET v = 50",
                                   "UPDATE items SET v = 50 WHERE id = %(k)s"], ids=["insert", "update"])
def test_row_1_guards_taken_after_a_savepoint_vanish_with_it(place, pair, session, item, level, again):
    key, witness = item("db-east"), item("db-east")
    connection = session(isolation_level=LEVELS[level])
    with connection.cursor() as cursor:
        cursor.execute("SELECT v FROM items WHERE id = %s", (witness,))
        cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE items SET v = 40 WHERE id = %s", (key,))
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        moved, _ = attempt(lambda: pair[1].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
        state, error = attempt(lambda: cursor.execute(again, {"k": key}))
        if state is None:
            connection.commit()
        else:
            assert state in ("40001", "0A000"), error
            connection.rollback()
    owner = "db-east" if moved else "db-west"
    assert where(place, key) == {owner: [(50 if state is None else 1,)]}
    if moved is None and level != "read-committed":
        assert state is not None, "a snapshot older than the cutover wrote after it"


def test_row_1_released_savepoints_keep_their_guards(place, pair, session, item):
    key = item("db-east")
    connection = session()
    with connection.cursor() as cursor:
        for name in ("a", "b", "a"):  # the same name twice is legal and shadows
            cursor.execute(f"SAVEPOINT {name}")
        cursor.execute("UPDATE items SET v = 40 WHERE id = %s", (key,))
        cursor.execute("RELEASE SAVEPOINT b")
        moved, _ = attempt(lambda: pair[1].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
        assert moved is not None, "the move passed an uncommitted write"
        cursor.execute("ROLLBACK TO SAVEPOINT a")
        cursor.execute("UPDATE items SET v = 60 WHERE id = %s", (key,))
        connection.commit()
    assert where(place, key) == {"db-east": [(60,)]}


def test_row_2_a_bulk_write_of_old_routing_cannot_revive_a_moved_key(place, pair, item, move):
    """A hundred rows, more than one statement guards by key; the proxy slept over the move."""
    frozen = pair[0]
    key = item("db-east")
    values = ", ".join(f"('{k}', 5)" for k in [key, *(f"bulk-{i}" for i in range(100))])
    sql = f"INSERT INTO items VALUES {values} ON CONFLICT (id) DO UPDATE SET v = 5"
    with pgwire.Wire(("127.0.0.1", frozen.port)).login() as client:
        frozen.freeze()
        try:
            client.send(pgwire.Q(sql))
            move(key, "db-west")
        finally:
            frozen.thaw()
        words = client.trace()
    held = where(place, key)
    if "C(INSERT 0 101)" in words:
        assert held == {"db-west": [(5,)]}
    else:
        assert any(w.startswith(("E[ERROR 0A000", "E[ERROR 40001")) for w in words), words
        assert held == {"db-west": [(1,)]}
    counts = place.everywhere("SELECT id FROM items WHERE id LIKE 'bulk-%%'")
    ids = [i for rows in counts.values() for (i,) in rows]
    assert len(ids) == len(set(ids))
    place.everywhere("DELETE FROM items WHERE id LIKE 'bulk-%%'")


def test_row_2_copy_is_refused_by_name_or_right(place, pair, item, move):
    key = item("db-east")
    move(key, "db-west")
    done = pair[0].psql("-c", "COPY items FROM STDIN", stdin=f"{key}\t5\n\\.\n")
    if done.returncode == 0:
        assert "duplicate" in done.stderr or list(where(place, key)) == ["db-west"]
    else:
        assert any(word in done.stderr for word in ("UNROUTABLE_QUERY", "KEY_REQUIRED", "duplicate key")), done.stderr
    assert list(where(place, key)) == ["db-west"]


def test_row_3_functions_do_not_write_unfenced(place, pair, item, move):
    """A function behind a guarded statement writes another key, one that has left the shard."""
    gone, here = item("db-east"), item("db-east")
    place.everywhere("CREATE OR REPLACE FUNCTION revive(k text) RETURNS int LANGUAGE plpgsql VOLATILE AS "
                     "$$BEGIN INSERT INTO items VALUES (k, 99); RETURN 1; END$$")
    move(gone, "db-west")
    for sql in (f"UPDATE items SET v = revive('{gone}') WHERE id = '{here}'",
                f"SELECT revive('{gone}') FROM items WHERE id = '{here}'",
                f"INSERT INTO items VALUES ('{here}', revive('{gone}')) ON CONFLICT (id) DO UPDATE SET v = 1",
                f"SELECT v FROM items WHERE id = '{here}' AND revive('{gone}') = 1"):
        state, error = attempt(lambda s=sql: pair[0].query(s))
        assert state is not None, sql
        assert state in ("0A000", "40001", "CDB02"), (sql, error)
        assert where(place, gone) == {"db-west": [(1,)]}, sql


def test_row_3_user_triggers_do_not_write_unfenced(place, pair, keys):
    place.everywhere("CREATE TABLE triggered (id text PRIMARY KEY, v int);"
                     "CREATE FUNCTION copy_row() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                     "IF NEW.v = 77 THEN INSERT INTO triggered VALUES (NEW.id || '-gone', 1); END IF; RETURN NEW; END$$;"
                     "CREATE TRIGGER copy_row BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION copy_row()")
    pair[0].query("SELECT * FROM collegedb_shard_table('triggered', 'id')")
    # A key `k` and its `k-gone` on the same shard, the second of which leaves.
    while True:
        key = keys.on("db-east")
        owner = place.on(0, "SELECT collegedb.owner(%s, %s)", (place.names, key + "-gone"))[0][0]
        if owner == "db-east":
            break
    gone = key + "-gone"
    pair[0].query("INSERT INTO triggered VALUES (%s, 1)", (gone,))
    state, error = attempt(lambda: pair[1].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'triggered')", (gone,)))
    assert state is None, error
    state, error = attempt(lambda: pair[0].query("INSERT INTO triggered VALUES (%s, 77)", (key,)))
    assert state is not None, "a trigger revived a moved key"
    assert list(where(place, gone, "triggered")) == ["db-west"], error


def test_row_3_partitions_are_fenced_too(place, pair, keys):
    place.everywhere("CREATE TABLE parts (id text, day int, v int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
                     "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    pair[0].query("SELECT * FROM collegedb_shard_table('parts', 'id')")
    key = keys.on("db-east")
    pair[0].query("INSERT INTO parts VALUES (%s, 1, 1)", (key,))
    rows = pair[1].query("SELECT state FROM collegedb_reassign(%s, 'db-west', 'parts')", (key,))
    assert rows[0][0] in ("published", "retired")
    assert place.holders("parts", "id", key) == ["db-west"]
    for table in ("parts", "parts_1"):
        state, error = attempt(lambda t=table: place.on("db-east", f"INSERT INTO {t} VALUES (%s, 2, 2)", (key,)))
        assert state == "CDB02", (table, error)
    pair[0].query("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    wait_until(lambda: attempt(lambda: place.on("db-east", "INSERT INTO parts_2 VALUES (%s, 12, 2)", (key,)))[0]
               == "CDB02" or place.on("db-east", "DELETE FROM parts_2") is None, 5, "fence on a later partition")


@pytest.mark.deadline(120)
@pytest.mark.parametrize("moment", ["prepared", "copied", "cutover_pending", "one half prepared", "both halves prepared",
                                    "committed"])
def test_row_4_a_mover_cut_off_from_the_journal_cannot_go_on(place, pair, item, moment):
    """Frozen in mid-move, its journal session ended, recovered by the other proxy, then woken: it
    finds its token stale. Whatever was decided, one owner and every acknowledged write remain."""
    frozen, other = pair
    watcher = Watcher(place)
    met = False
    try:
        for _ in range(6):
            key = item("db-east", 0)
            done = threading.Event()
            outcome = []

            def run(k=key, o=outcome, d=done):
                o.append(attempt(lambda: frozen.query(
                    "SELECT state FROM collegedb_reassign(%s, 'db-west', 'items')", (k,))))
                d.set()

            mover = threading.Thread(target=run, daemon=True)
            mover.start()
            watcher.wait_for(moment, done)
            frozen.freeze()
            try:
                met = met or not done.is_set()
                place.on(0, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY (%s)",
                         (local_ports(frozen.process.pid),))
                writes = 0
                until = time.monotonic() + 4 * (4 if is_sanitized() else 1)
                while writes == 0 and time.monotonic() < until:
                    state, error = attempt(lambda: other.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)))
                    assert state in (None, "40001"), error
                    writes += state is None
                assert writes, f"{key} is not writable beside a cut-off mover"
            finally:
                frozen.thaw()
            mover.join(20)
            assert not mover.is_alive()
            # The mover's own word and the truth must agree.
            held = where(place, key)
            assert list(held.values()) == [[(1,)]], (held, outcome)
            if outcome[0][0] is None:
                assert list(held) == ["db-west"], outcome
            assert other.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)) == 1
            wait_until(lambda: attempt(lambda: frozen.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)))
                       == (None, 1), 10, "writes through the woken proxy")
            assert list(where(place, key).values()) == [[(3,)]]
            if met:
                break
    finally:
        watcher.close()
        frozen.thaw()
    assert met, f"no move was met at {moment}"


def test_row_8_an_older_snapshot_at_the_destination(place, session, item, move):
    """REPEATABLE READ transaction with its snapshot on the destination: the key arrives there later."""
    witness, key = item("db-west"), item("db-east")
    for statement in ("UPDATE items SET v = v + 1 WHERE id = %s", "SELECT v FROM items WHERE id = %s",
                      "DELETE FROM items WHERE id = %s"):
        connection = session(isolation_level=REPEATABLE)
        with connection.cursor() as cursor:
            cursor.execute("SELECT v FROM items WHERE id = %s", (witness,))
            move(key, "db-west")
            state, error = attempt(lambda s=statement: cursor.execute(s, (key,)))
            if state is None:
                assert cursor.rowcount == 1, f"{statement}: nothing found, silently"
                connection.rollback()
            else:
                assert state in ("40001", "0A000"), error
                connection.rollback()
        assert where(place, key) == {"db-west": [(1,)]}
        move(key, "db-east")


def test_row_9_scatter_in_a_transaction_with_snapshots_of_different_age(pair, session, item, move):
    witness, key = item("db-east"), item("db-east")
    total = pair[0].query("SELECT count(*) FROM items")[0][0]
    for destination in ("db-west", "db-east"):
        connection = session(isolation_level=REPEATABLE)
        with connection.cursor() as cursor:
            cursor.execute("SELECT v FROM items WHERE id = %s", (witness,))
            move(key, destination)
            state, error = attempt(lambda: cursor.execute("SELECT count(*) FROM items"))
            if state is None:
                assert cursor.fetchone() == (total,), "a moved key was seen twice or not at all"
            else:
                assert state in ("40001", "0A000"), error
            connection.rollback()


@pytest.fixture(scope="module")
def patient(place, pair):
    """A proxy that never recovers by itself and holds a write for a second at most."""
    with Proxy(place.shards, place.dbname, name="patient", journal={"recovery_interval": "1h"},
               migration={"write_hold": "1s"}) as proxy:
        yield proxy


def arriving(place, key, begin=True):
    """Marks the key as arrived on db-west while its former owner is not known to have committed."""
    grp = place.on(0, "SELECT DISTINCT grp FROM collegedb.retired WHERE key = %s", (key,))[0][0]
    if begin:
        place.on("db-west", "INSERT INTO collegedb.incoming VALUES ('default', %s, %s, 'op-test')", (grp, key))
    else:
        place.on("db-west", "DELETE FROM collegedb.incoming WHERE op = 'op-test'")


def test_row_10_an_arriving_key_holds_writers(place, pair, patient, item, move):
    key = item("db-east")
    move(key, "db-west")
    try:
        for other in pair:
            other.freeze()  # their recovery would rightly clear a marker without an operation
        arriving(place, key)
        started = time.monotonic()
        state, error = attempt(lambda: patient.query("UPDATE items SET v = 2 WHERE id = %s", (key,)))
        assert state == "40001" and str(error).startswith("MIGRATION_CUTOVER_PENDING:"), error
        assert 0.8 < time.monotonic() - started < 4
        timer = threading.Timer(0.4, arriving, (place, key, False))
        timer.start()
        assert patient.query("UPDATE items SET v = 3 WHERE id = %s", (key,)) == 1
        timer.join()
    finally:
        arriving(place, key, False)
        for other in pair:
            other.thaw()
    assert where(place, key) == {"db-west": [(3,)]}


def test_row_11_keyed_reads_never_miss(place, pair, item):
    """Readers of every kind through both proxies while the key goes round the shards."""
    key = item("db-east", 5)
    stop = threading.Event()
    faults, reads = [], []
    queries = ["SELECT v FROM items WHERE id = %s", "SELECT count(*), max(v) FROM items WHERE id = %s",
               "SELECT v FROM items WHERE id IN (%s)", "SELECT EXISTS (SELECT 1 FROM items WHERE id = %s)"]
    answers = [[(5,)], [(1, 5)], [(5,)], [(True,)]]

    def read(proxy, number):
        connection = proxy.connect()
        count = 0
        with connection.cursor() as cursor:
            while not stop.is_set():
                state, error = attempt(lambda: cursor.execute(queries[number], (key,)))
                if state is not None:
                    if state != "0A000" or number in (0, 1):
                        faults.append(f"{queries[number]}: {state} {error}")
                    break
                rows = cursor.fetchall()
                if rows != answers[number]:
                    faults.append(f"{queries[number]}: {rows}")
                count += 1
        connection.close()
        reads.append(count)

    threads = [threading.Thread(target=read, args=(p, n), daemon=True) for p in pair for n in range(len(queries))]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            destination = place.names[(number + 1) % 3]
            pair[number % 2].query("SELECT * FROM collegedb_reassign(%s, %s, 'items')", (key, destination))
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert faults == [] and sum(reads) > 100


def test_row_13_read_only_transactions(place, pair, item, move):
    stays, goes = item("db-east"), item("db-east")
    move(goes, "db-west")
    connection = pair[0].connect()
    with connection.cursor() as cursor:
        for key in (stays, goes):
            cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
            cursor.execute("SELECT v FROM items WHERE id = %s", (key,))
            assert cursor.fetchall() == [(1,)]
            cursor.execute("SELECT count(*) FROM items WHERE id = %s", (key,))
            assert cursor.fetchall() == [(1,)]
            state, _ = attempt(lambda k=key: cursor.execute("UPDATE items SET v = 2 WHERE id = %s", (k,)))
            assert state == "25006"
            cursor.execute("ROLLBACK")
        cursor.execute("SET default_transaction_read_only = on")
        cursor.execute("SELECT count(*) FROM items WHERE id = %s", (goes,))
        assert cursor.fetchall() == [(1,)]
        state, _ = attempt(lambda: cursor.execute("UPDATE items SET v = 2 WHERE id = %s", (goes,)))
        assert state == "25006"
    connection.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_row_13_what_cannot_be_guarded_is_refused(pair, item, level):
    """A fixed snapshot in which the gate row cannot be locked: a limit that the README names, never
    an answer that may be wrong."""
    key = item("db-east")
    connection = pair[0].connect()
    with connection.cursor() as cursor:
        cursor.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
        state, error = attempt(lambda: cursor.execute("SELECT v FROM items WHERE id = %s", (key,)))
        assert state == "0A000" and "READ ONLY" in str(error) and "HINT" in str(error)
        cursor.execute("ROLLBACK")
        cursor.execute(f"BEGIN ISOLATION LEVEL {level}")
        cursor.execute("SELECT v FROM items WHERE id = %s", (key,))
        assert cursor.fetchall() == [(1,)]
        cursor.execute("COMMIT")
    connection.close()


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_row_14_autocommit_at_a_higher_default_level_gets_no_error(place, pair, item, level):
    """Healthy moves of the same key, so of the same bucket. At SERIALIZABLE and REPEATABLE READ two
    writers of one row would fail by themselves: so one writer."""
    key = item("db-east", 0)
    stop = threading.Event()
    written, faults = [], []

    def write(proxy):
        connection = proxy.connect()
        count = 0
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{level}'")
            while not stop.is_set():
                state, error = attempt(lambda: cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,)))
                if state is None and cursor.rowcount == 1:
                    count += 1
                else:
                    faults.append(f"{state} {error}")
        connection.close()
        written.append(count)

    thread = threading.Thread(target=write, args=(pair[0],), daemon=True)
    thread.start()
    try:
        for number in range(12):
            pair[1].query("SELECT * FROM collegedb_reassign(%s, %s, 'items')", (key, place.names[(number + 1) % 3]))
    finally:
        stop.set()
        thread.join(20)
    assert faults == [] and written[0] > 5
    assert list(where(place, key).values()) == [[(written[0],)]]


def test_row_15_the_mover_gives_way_in_a_deadlock(pair, session, item):
    """A client holds a key and then wants what the mover holds: the client gets no error."""
    key = item("db-east")
    connection = session()
    outcome = []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
        mover = threading.Thread(target=lambda: outcome.append(attempt(lambda: pair[1].query(
            "SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))), daemon=True)
        mover.start()
        time.sleep(0.1)
        state, error = attempt(lambda: cursor.execute("SELECT count(*) FROM items"))
        assert state in (None, "0A000"), error
        if state is None:
            connection.commit()
        else:
            connection.rollback()
    mover.join(20)
    assert outcome
    if outcome[0][0] is not None:
        assert outcome[0][0] in ("40001", "55000", "55P03"), outcome


def test_row_18_a_scatter_to_a_slow_client_does_not_block_moves(place, pair, item, move):
    """The client does not read; its shards have their snapshots, so cutovers go on."""
    place.everywhere("CREATE TABLE wide (id bigint PRIMARY KEY, filler text)")
    pair[0].query("SELECT * FROM collegedb_shard_table('wide', 'id')")
    for number, name in enumerate(place.names):
        # Straight to the shards and only read: which shard a row is on does not matter here.
        place.on(name, "INSERT INTO wide SELECT %s + 3 * i, repeat('x', 1000) FROM generate_series(1, 20000) i", (number,))
    key = item("db-east")
    slow = pgwire.Wire(("127.0.0.1", pair[0].port))
    try:
        slow.login()
        slow.send(pgwire.Q("SELECT * FROM wide"))
        time.sleep(0.5)
        for destination in ("db-west", "db-north", "db-east"):
            started = time.monotonic()
            move(key, destination)
            assert time.monotonic() - started < 5
        words = [w[:1] for w in slow.trace()]
        assert words.count("D") == 60000 and words[-1] == "Z"
    finally:
        slow.socket.close()


def test_row_18_scatters_and_moves_both_go_on(place, pair, item):
    key = item("db-east")
    stop = threading.Event()
    counts = []

    def scan():
        connection = pair[0].connect()
        count = 0
        with connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("SELECT count(*) FROM items")
                count += 1
                time.sleep(0.01)  # the locks are the subject, not the processors
        connection.close()
        counts.append(count)

    threads = [threading.Thread(target=scan, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    moved = 0
    try:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            pair[1].query("SELECT * FROM collegedb_reassign(%s, %s, 'items')", (key, place.names[(moved + 1) % 3]))
            moved += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert moved >= 10 and len(counts) == 6 and min(counts) >= 5, (moved, counts)


def test_row_19_serial_columns_give_ids_unique_over_all_shards(place, pair, keys):
    """Or the table is refused when it is registered, by name."""
    place.everywhere("CREATE TABLE bills (no serial PRIMARY KEY, id text NOT NULL, v int)")
    state, error = attempt(lambda: pair[0].query("SELECT * FROM collegedb_shard_table('bills', 'id')"))
    if state is not None:
        assert "bills" in str(error) and ("no" in str(error) or "sequence" in str(error)), error
        return
    users = [keys.on(name) for name in place.names for _ in range(3)]
    for number in range(10):
        for user in users:
            pair[number % 2].query("INSERT INTO bills (id, v) VALUES (%s, %s)", (user, number))
    ids = [no for rows in place.everywhere("SELECT no FROM bills").values() for (no,) in rows]
    assert len(ids) == 90 and len(set(ids)) == 90, "two shards gave the same number"
    for user in users:
        pair[0].query("SELECT * FROM collegedb_reassign(%s, 'db-north', 'bills')", (user,))
    assert place.on("db-north", "SELECT count(*) FROM bills") == [(90,)]
    assert pair[0].query("INSERT INTO bills (id, v) VALUES (%s, 0)", (users[0],)) == 1


@pytest.mark.deadline(120)
def test_row_17_an_owner_without_superuser_is_enough(shards):
    """The proxy's login on the shards owns the database and nothing else: set-up, writes, scatters
    and moves work."""
    role = "row17_owner"
    with Place(shards, "row_17") as place:
        for cluster in shards:
            cluster.psql(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
            cluster.psql(f"ALTER DATABASE {place.dbname} OWNER TO {role}; ALTER SCHEMA public OWNER TO {role}", place.dbname)

        class AsOwner:
            def __init__(self, cluster):
                self.name = cluster.name
                self.conninfo = lambda dbname: cluster.conninfo(dbname).replace("user=postgres", f"user={role}")

        try:
            with Proxy([AsOwner(c) for c in shards], place.dbname, name="owner") as proxy:
                proxy.query("CREATE TABLE items (id text PRIMARY KEY, v int)")
                proxy.query("SELECT * FROM collegedb_shard_table('items', 'id')")
                key = Keys(place).on("db-east")
                proxy.query("INSERT INTO items VALUES (%s, 1)", (key,))
                rows = proxy.query("SELECT state FROM collegedb_reassign(%s, 'db-west', 'items')", (key,))
                assert rows[0][0] in ("published", "retired")
                assert proxy.query("UPDATE items SET v = 2 WHERE id = %s", (key,)) == 1
                assert proxy.query("SELECT count(*) FROM items") == [(1,)]
                assert where(place, key) == {"db-west": [(2,)]}
                with pytest.raises(psycopg2.Error) as refused:
                    place.on("db-east", "INSERT INTO items VALUES (%s, 3)", (key,))
                assert refused.value.pgcode == "CDB02"
            place.assert_at_rest()
        finally:
            for cluster in shards:
                cluster.psql(f"DROP DATABASE IF EXISTS {place.dbname} WITH (FORCE)")
                cluster.psql(f"DROP ROLE IF EXISTS {role}")


def test_cycles_are_legitimate(place, pair, item, move):
    """A to B to A, and round all shards, with a proxy that slept over all of it."""
    frozen = pair[0]
    key = item("db-east")
    frozen.query("SELECT v FROM items WHERE id = %s", (key,))
    frozen.freeze()
    try:
        for destination in ("db-west", "db-east", "db-west", "db-north", "db-west", "db-east", "db-north"):
            move(key, destination)
    finally:
        frozen.thaw()
    assert frozen.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)) == 1
    assert where(place, key) == {"db-north": [(2,)]}


def test_a_move_to_the_present_owner_is_a_no_op(pair, item):
    key = item("db-east")
    rows = pair[1].query("SELECT op, source, destination, state FROM collegedb_reassign(%s, 'db-east', 'items')", (key,))
    assert rows == [(None, "db-east", "db-east", "published")]


def test_a_dry_run_changes_nothing(place, pair, item):
    key = item("db-east")
    tables = ("collegedb.moves", "collegedb.claims", "collegedb.exceptions", "collegedb.retired", "collegedb.archive")

    def picture():
        return [place.everywhere(f"SELECT count(*), md5(string_agg(x::text, ',' ORDER BY x::text)) FROM {t} x")
                if t in ("collegedb.retired", "collegedb.archive") else
                place.on(0, f"SELECT count(*), md5(string_agg(x::text, ',' ORDER BY x::text)) FROM {t} x") for t in tables]

    before = picture()
    pair[0].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items', dry_run => true)", (key,))
    assert picture() == before and where(place, key) == {"db-east": [(1,)]}


def test_refused_moves_leave_everything_as_it_was(place, pair, item):
    key = item("db-east")
    place.on("db-west", "INSERT INTO items VALUES (%s, 66)", (key,))  # a foreign row at the destination
    state, error = attempt(lambda: pair[0].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
    assert state == "23505" and str(error).startswith("DESTINATION_CONFLICT:"), error
    assert where(place, key) == {"db-east": [(1,)], "db-west": [(66,)]}
    place.on("db-west", "DELETE FROM items WHERE id = %s", (key,))
    assert pair[0].query("UPDATE items SET v = 2 WHERE id = %s", (key,)) == 1
    state, error = attempt(lambda: pair[0].query("SELECT * FROM collegedb_reassign(%s, 'nowhere', 'items')", (key,)))
    assert state is not None and "nowhere" in str(error)
    state, error = attempt(lambda: pair[0].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'nosuch')", (key,)))
    assert state is not None and "nosuch" in str(error)


def test_only_admins_move(place, pair, item):
    key = item("db-east")
    state, error = attempt(lambda: pair[0].query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,),
                                                 user="nobody"))
    assert state == "42501", error
    assert where(place, key) == {"db-east": [(1,)]}


def test_two_movers_of_one_key_join(place, pair, item):
    key = item("db-east")
    outcomes = []
    threads = [threading.Thread(target=lambda p=p: outcomes.append(attempt(lambda: p.query(
        "SELECT op, destination, state FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))), daemon=True)
        for p in (*pair, *pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(outcomes) == 4 and all(state is None for state, _ in outcomes), outcomes
    ops = {rows[0][0] for _, rows in outcomes} - {None}
    assert len(ops) == 1 and where(place, key) == {"db-west": [(1,)]}
