"""Mapped placement as its users live it: keys get a shard when they are first written, move, and are
found by every proxy; the shard that takes no new keys is emptied while clients write."""

import contextlib
import subprocess
import threading

import psycopg2
import pytest

import load
from cluster import Shards
from moves import Mover, assert_moves_settled
from proxy import Proxy, binary, is_sanitized
from world import Place, attempt, wait_until

EAST, WEST, NORTH = "db-east", "db-west", "db-north"
ALL = [EAST, WEST, NORTH]
KEYS = 60
LARGE, NOTHING = "1h", "0"


def mapped(**routing):
    return {"placement": "mapped", **routing}


def hashed(key, shards=tuple(ALL)):
    """CollegeDB's hash of an ASCII key, modulo the number of shards."""
    h = 0
    for c in key.encode():
        h = (h * 31 + c) & 0xFFFFFFFF
    return shards[abs(h - (1 << 32) if h & 0x80000000 else h) % len(shards)]


def mapping(place, key, grp="public.users"):
    rows = place.on(EAST, "SELECT shard FROM collegedb.mappings WHERE key = %s AND grp = %s", (key, grp))
    return rows[0][0] if rows else None


def locate(proxy, key, table="users"):
    return proxy.query("SELECT shard, via FROM collegedb_locate(%s, %s)", (key, table))[0]


def psql(proxy, sql):
    done = proxy.psql("-v", "ON_ERROR_STOP=1", "-Atc", sql)
    assert done.returncode == 0, f"{sql}: {done.stderr}"
    return done.stdout.rstrip("\n")


def refusal(proxy, sql):
    done = proxy.psql("-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-c", sql)
    assert done.returncode != 0, f"{sql} succeeded: {done.stdout}"
    return done.stderr


@pytest.fixture(scope="module")
def pair(place, proxies):
    """Two proxies that remember mappings for long, over users and their orders."""
    first, second = (proxies(routing=mapped(mapping_cache_ttl=LARGE)) for _ in range(2))
    psql(first, "CREATE TABLE users (id text PRIMARY KEY, name text)")
    psql(first, "CREATE TABLE orders (id bigint, user_id text NOT NULL, total int)")
    psql(first, "SELECT collegedb_shard_table('users')")
    psql(first, "SELECT collegedb_shard_table('orders', 'user_id', 'users')")
    return first, second


def test_a_key_gets_its_shard_when_it_is_first_written(place, pair):
    first, second = pair
    for i in range(1, 13):
        key = f"user-{i}"
        assert psql(first, f"SELECT name FROM users WHERE id = '{key}'") == ""
        assert mapping(place, key) is None
        assert "MAPPING_NOT_FOUND" in refusal(first, f"SELECT * FROM collegedb_locate('{key}', 'users')")
        assert psql(first, f"INSERT INTO users VALUES ('{key}', 'n{i}')") == "INSERT 0 1"
        assert mapping(place, key) == hashed(key)
        assert place.holders("users", "id", key) == [hashed(key)]
        assert psql(second, f"SELECT name FROM users WHERE id = '{key}'") == f"n{i}"
        assert psql(second, f"INSERT INTO orders VALUES ({i}, '{key}', 5)") == "INSERT 0 1"
        assert place.holders("orders", "user_id", key) == [hashed(key)]
        assert psql(second, f"UPDATE users SET name = 'm{i}' WHERE id = '{key}'") == "UPDATE 1"
        assert psql(first, "SELECT u.name, o.total FROM users u JOIN orders o ON o.user_id = u.id "
                           f"WHERE u.id = '{key}'") == f"m{i}|5"
        for proxy in pair:
            assert locate(proxy, key) == (hashed(key), "mapping")
    assert psql(first, "SELECT count(*) FROM users") == "12"
    assert place.on(EAST, "SELECT strategy, count(*) FROM collegedb.allocations GROUP BY 1") == [("hash", 12)]
    assert place.on(EAST, "SELECT count(*) FROM collegedb.exceptions") == [(0,)]
    # Its rows go, its shard stays.
    assert psql(first, "DELETE FROM orders WHERE user_id = 'user-1'") == "DELETE 1"
    assert psql(first, "DELETE FROM users WHERE id = 'user-1'") == "DELETE 1"
    assert mapping(place, "user-1") == hashed("user-1")
    explain = "SELECT shards, reason FROM collegedb_explain($$SELECT * FROM users WHERE id = 'user-1'$$)"
    assert psql(second, explain) == f'{{"{hashed("user-1")}"}}|via mapping'
    assert "no mapping yet" in psql(second, "SELECT reason FROM collegedb_explain"
                                            "($$INSERT INTO users VALUES ('user-99')$$)")
    place.assert_at_rest()


def test_two_proxies_that_meet_a_key_at_once_agree(place, pair):
    rounds = 40
    barrier = threading.Barrier(4)
    faults = []

    def insert(proxy, name):
        with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
            for i in range(rounds):
                barrier.wait()
                try:
                    cursor.execute("INSERT INTO users VALUES (%s, %s) ON CONFLICT DO NOTHING", (f"race-{i}", name))
                except psycopg2.Error as error:
                    faults.append(f"{error.pgcode} {error}")

    with_strategies = [Proxy(place.shards, place.dbname, name=f"racer{i}", routing=mapped(strategy="random"))
                       for i in range(2)]
    try:
        for proxy in with_strategies:
            proxy.start()
        threads = [threading.Thread(target=insert, args=(proxy, str(i)))
                   for i, proxy in enumerate([*pair, *with_strategies])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for proxy in with_strategies:
            proxy.close()
    assert faults == []
    homes = set()
    for i in range(rounds):
        holders = place.holders("users", "id", f"race-{i}")
        assert holders == [mapping(place, f"race-{i}")], i
        homes.add(holders[0])
        for proxy in pair:
            assert proxy.query("SELECT count(*) FROM users WHERE id = %s", (f"race-{i}",)) == [(1,)]
    assert homes == set(ALL)
    assert place.on(EAST, "SELECT count(*) FROM collegedb.allocations WHERE key LIKE 'race-%%'") == [(rounds,)]


def test_a_key_that_moves_is_found_by_who_remembers_its_old_shard(place, pair):
    first, second = pair
    key = "mover"
    for proxy in pair:
        proxy.query("INSERT INTO users VALUES (%s, 'v') ON CONFLICT DO NOTHING", (key,))
    versions = "SELECT revision, generation, exception_version FROM collegedb.manifest"
    before = place.on(EAST, versions)
    for target in (*[name for name in ALL if name != hashed(key)], hashed(key)):
        done = psql(second, f"SELECT state, destination FROM collegedb_reassign('{key}', '{target}', 'users')")
        assert done in (f"published|{target}", f"retired|{target}")
        assert mapping(place, key) == target
        assert psql(first, f"UPDATE users SET name = '{target}' WHERE id = '{key}'") == "UPDATE 1"
        assert psql(second, f"SELECT name FROM users WHERE id = '{key}'") == target
        assert place.holders("users", "id", key) == [target]
        again = psql(second, f"SELECT state, op FROM collegedb_reassign('{key}', '{target}', 'users')")
        assert again == "published|"  # it is there already
    assert place.on(EAST, versions) == before
    assert "MAPPING_NOT_FOUND" in refusal(first, f"SELECT * FROM collegedb_reassign('nobody', '{WEST}', 'users')")
    place.assert_at_rest()


def test_get_or_create_in_one_transaction(place, pair, proxies):
    elsewhere = proxies(routing=mapped(strategy={"read": "hash", "write": "round-robin"}))
    for proxy in (*pair, elsewhere):
        for i in range(6):
            key = f"{proxy.name}-made-{i}"
            with contextlib.closing(proxy.connect(autocommit=False)) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM users WHERE id = %s", (key,))
                assert cursor.fetchall() == []
                cursor.execute("INSERT INTO users VALUES (%s, 'made')", (key,))
                cursor.execute("SELECT name FROM users WHERE id = %s", (key,))
                assert cursor.fetchall() == [("made",)]
                connection.commit()
            assert place.holders("users", "id", key) == [hashed(key)] == [mapping(place, key)]
    # Somebody else makes the key meanwhile: never two homes, never nothing where there are rows.
    with contextlib.closing(pair[0].connect(autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM users WHERE id = 'contested'")
        assert cursor.fetchall() == []
        place.on(EAST, "INSERT INTO collegedb.mappings SELECT scope, 'public.users', 'contested', %s"
                       " FROM collegedb.manifest", ([n for n in ALL if n != hashed("contested")][0],))
        pair[1].query("INSERT INTO users VALUES ('contested', 'theirs')")
        state, error = attempt(lambda: cursor.execute("SELECT name FROM users WHERE id = 'contested'"))
        assert state == "40001", error
    place.assert_at_rest()


def test_keys_nobody_has_are_no_obstacle_to_a_read_of_several(place, pair):
    first = pair[0]
    first.query("INSERT INTO users VALUES ('lone', 'x') ON CONFLICT DO NOTHING")
    assert first.query("SELECT id FROM users WHERE id IN ('lone', 'no-1', 'no-2', 'no-3')") == [("lone",)]
    assert mapping(place, "no-1") is None


def test_rows_from_before_are_entered_by_a_write(place, pair):
    first, second = pair
    home = [name for name in ALL if name != hashed("old")][0]
    place.on(home, "INSERT INTO users VALUES ('old', 'o')")
    assert first.query("SELECT name FROM users WHERE id = 'old'") == [("o",)]
    assert locate(first, "old") == (home, "rows")
    assert mapping(place, "old") is None
    assert second.query("UPDATE users SET name = 'p' WHERE id = 'old'") == 1
    assert mapping(place, "old") == home
    for name in (EAST, WEST):
        place.on(name, "INSERT INTO users VALUES ('twice', 'o')")
    for sql in ("SELECT name FROM users WHERE id = 'twice'", "UPDATE users SET name = '' WHERE id = 'twice'",
                f"SELECT * FROM collegedb_reassign('twice', '{NORTH}', 'users')"):
        error = refusal(first, sql)
        assert f"rows on shards {EAST}, {WEST}" in error and "collegedb_import" in error, error
    assert mapping(place, "twice") is None
    for name in (EAST, WEST):
        place.on(name, "DELETE FROM users WHERE id = 'twice'")


def test_rows_from_before_are_imported(place, pair):
    for name in ALL:
        place.on(name, "INSERT INTO users SELECT %s || g, 'i' FROM generate_series(1, 10) g", (f"{name}-",))
    assert psql(pair[0], "SELECT mapped FROM collegedb_import('users')") == "30"
    for name in ALL:
        for i in range(1, 11):
            assert locate(pair[1], f"{name}-{i}") == (name, "mapping")
    assert psql(pair[0], "SELECT mapped FROM collegedb_import('users')") == "0"


def test_how_long_a_mapping_is_remembered(place, pair, proxies):
    """What happens to the directory past the proxies is seen by whoever asks each time."""
    forgetful = proxies(routing=mapped(mapping_cache_ttl=NOTHING))
    key = "memo"
    read = ("SELECT name FROM users WHERE id = %s", (key,))
    other = [name for name in ALL if name != hashed(key)][0]
    forgetful.query("INSERT INTO users VALUES (%s, 'v')", (key,))
    # One connection: each worker has its own memory.
    with contextlib.closing(pair[0].connect()) as connection, connection.cursor() as cursor:
        for _ in range(2):
            cursor.execute(*read)
            assert cursor.fetchall() == [("v",)]
            assert forgetful.query(*read) == [("v",)]
        place.on(other, "INSERT INTO users VALUES (%s, 'other')", (key,))
        place.on(EAST, "UPDATE collegedb.mappings SET shard = %s WHERE key = %s", (other, key))
        assert forgetful.query(*read) == [("other",)]
        cursor.execute(*read)
        assert cursor.fetchall() == [("v",)]
    place.on(other, "DELETE FROM users WHERE id = %s", (key,))
    place.on(EAST, "UPDATE collegedb.mappings SET shard = %s WHERE key = %s", (hashed(key), key))
    # And follows tombstones like anybody else.
    for target in (other, hashed(key), other):
        pair[0].query("SELECT * FROM collegedb_reassign(%s, %s, 'users')", (key, target))
        assert forgetful.query("UPDATE users SET name = 'w' WHERE id = %s", (key,)) == 1
        assert place.holders("users", "id", key) == [target]


def test_strategies(place, proxies):
    in_turn = proxies(routing=mapped(strategy="round-robin"))
    other = proxies(routing=mapped(strategy={"read": "random", "write": "round-robin"}))
    for i in range(9):
        (in_turn, other)[i % 2].query("INSERT INTO orders VALUES (1, %s, 1)", (f"turn-{i}",))
    homes = [mapping(place, f"turn-{i}") for i in range(9)]
    at = ALL.index(homes[0])
    assert homes == [ALL[(at + i) % 3] for i in range(9)]
    near = proxies(routing=mapped(strategy="location", target_region="weur"))
    near.stop()
    with open(near.config_path, encoding="utf-8") as file:
        text = file.read()
    for name, region in ((EAST, "enam"), (WEST, "eeur"), (NORTH, "apac")):
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nregion = "{region}"')
    near._write("collegedb.toml", text)  # pylint: disable=protected-access
    near.start()
    for i in range(6):
        near.query("INSERT INTO orders VALUES (1, %s, 1)", (f"near-{i}",))
        assert place.holders("orders", "user_id", f"near-{i}") == [WEST]
    # A shard that is full takes no new keys; each shard says its size every half a minute.
    place.on(EAST, "UPDATE collegedb.shards SET max_size = 1, database_bytes = 2 WHERE shard = %s", (WEST,))
    for i in range(6):
        near.query("INSERT INTO orders VALUES (1, %s, 1)", (f"full-{i}",))
        assert place.holders("orders", "user_id", f"full-{i}") == [EAST]
    place.on(EAST, "UPDATE collegedb.shards SET max_size = 0")


def test_a_proxy_of_another_placement_does_not_start(place, pair):
    wrong = Proxy(place.shards, place.dbname, name="wrong")
    try:
        for command in ("serve", "check", "init"):
            done = subprocess.run([binary(), command, "--config", wrong.config_path], capture_output=True,
                                  text=True, timeout=60, check=False)
            said = done.stdout + done.stderr
            assert done.returncode != 0, command
            assert "mapped placement" in said and 'Set routing.placement = "mapped"' in said, (command, said)
    finally:
        wrong.close()
    assert pair[0].query("SELECT 1") == [(1,)]


@pytest.fixture(scope="module")
def counted(place, pair):
    """A table of counters that writers add to from here on, over both proxies."""
    pair[0].query("CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL)")
    pair[0].query("SELECT * FROM collegedb_shard_table('counters')")
    for i in range(KEYS):
        assert pair[i % 2].query("INSERT INTO counters VALUES (%s, 0)", (load.key_name(i),)) == 1
    with load.Load([proxy.conninfo() for proxy in pair], count=8, seed=11, pace=0.02, keys=KEYS) as writers:
        yield writers


@pytest.mark.deadline(240)
def test_keys_move_while_clients_write(place, pair, counted):
    mover = Mover(pair, place, seed=5, keys=KEYS)
    mover.start()
    wait_until(lambda: place.on(EAST, "SELECT count(*) FROM collegedb.moves WHERE state = 'retired' AND"
                                      " grp = 'public.counters'")[0][0] >= 40, 120, "40 moves")
    mover.stop()
    assert mover.failures == []
    assert_moves_settled(place)
    for i in range(KEYS):
        key = load.key_name(i)
        assert place.holders("counters", "id", key) == [mapping(place, key, "public.counters")]


@pytest.mark.deadline(240)
def test_a_shard_is_drained_and_leaves_while_clients_write(place, pair, counted):
    first, second = pair
    assert psql(first, f"SELECT state FROM collegedb_drain_shard('{WEST}')") == "active"
    for i in range(12):
        key = f"after-{i}"
        assert pair[i % 2].query("INSERT INTO users VALUES (%s, 'x')", (key,)) == 1
        assert place.holders("users", "id", key) == [hashed(key, (EAST, NORTH))]
    assert psql(first, "SELECT retained FROM collegedb_prune_epochs(NULL)") == "{2}"
    assert "mappings for keys on shard" in refusal(first, f"SELECT * FROM collegedb_remove_shard('{WEST}')")
    moved, failed, failures = second.query("SELECT moved, failed, failures FROM collegedb_rebalance()")[0]
    assert failed == 0, failures
    assert moved > KEYS / 4
    assert place.on(EAST, "SELECT count(*) FROM collegedb.mappings WHERE shard = %s", (WEST,)) == [(0,)]
    assert psql(second, f"SELECT state FROM collegedb_remove_shard('{WEST}')") == "removed"
    for i in range(KEYS):
        key = load.key_name(i)
        assert place.holders("counters", "id", key) == [mapping(place, key, "public.counters")]
        assert first.query("SELECT count(*) FROM counters WHERE id = %s", (key,)) == [(1,)]
    assert psql(first, "SELECT moved FROM collegedb_rebalance()") == "0"


@pytest.mark.deadline(180)
def test_no_write_was_lost_and_no_client_disturbed(place, counted):
    ledger = load.Ledger(counted.stop())
    print(ledger.summary())
    assert ledger.judge(place, keys=KEYS) == []
    assert sum(ledger.acknowledged.values()) > 500
    wrong = [e for e in ledger.errors if e[3] == "autocommit" and e[1] is not None]
    assert wrong == [], wrong[:5]
    place.assert_at_rest()


@pytest.mark.deadline(180)
def test_without_the_journal_known_keys_go_on_and_others_are_refused():
    with Shards(3, fsync=False, names=ALL) as shards, Place(shards, "test_mapped_alone") as place:
        proxy = Proxy(shards, place.dbname, name="alone", routing=mapped(mapping_cache_ttl=LARGE),
                      tables=[("users", "id")])
        place.everywhere("CREATE TABLE users (id text PRIMARY KEY, n int)")
        proxy.start(timeout=120 if is_sanitized() else 60)
        try:
            keys = [f"user-{i}" for i in range(30)]
            # Both workers are to know them.
            with contextlib.ExitStack() as stack:
                connections = [stack.enter_context(contextlib.closing(proxy.connect())) for _ in range(8)]
                cursors = [connection.cursor() for connection in connections]
                for key in keys:
                    for cursor in cursors:
                        cursor.execute("INSERT INTO users VALUES (%s, 0) ON CONFLICT DO NOTHING", (key,))
                away = [key for key in keys if mapping(place, key) != EAST]
                assert 5 < len(away) < 30
                shards[0].stop("immediate")
                for number, key in enumerate(away):
                    for cursor in cursors:
                        cursor.execute("UPDATE users SET n = n + 1 WHERE id = %s", (key,))
                        assert cursor.rowcount == 1
                        cursor.execute("SELECT n FROM users WHERE id = %s", (key,))
                        assert cursor.rowcount == 1
                    for sql in ("INSERT INTO users VALUES (%s, 0)", "SELECT n FROM users WHERE id = %s",
                                "UPDATE users SET n = 1 WHERE id = %s"):
                        state, error = attempt(lambda s=sql, n=number: cursors[0].execute(s, (f"new-{n}",)))
                        assert state == "40001" and "PLACEMENT_UNVERIFIED" in str(error), error
                shards[0].start()
                wait_until(lambda: attempt(
                    lambda: proxy.query("INSERT INTO users VALUES ('new-0', 0) ON CONFLICT DO NOTHING"))[0] is None,
                    30, "new keys again")
            assert {key: [mapping(place, key)] for key in away} == {
                key: place.holders("users", "id", key) for key in away}
            assert all(proxy.query("SELECT n FROM users WHERE id = %s", (key,)) == [(8,)] for key in away)
        finally:
            proxy.close()
