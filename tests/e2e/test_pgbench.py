"""pgbench's own tables, sharded by aid and filled through the proxy; 32 clients on a pool of 10."""

import threading
import time

import psycopg
import pytest

from bench import pgbench
from world import attempt

ROWS = 2000
PROTOCOLS = ["simple", "extended", "prepared"]


@pytest.fixture(scope="module")
def bench(place, proxies):
    place.everywhere("CREATE TABLE pgbench_accounts (aid int NOT NULL PRIMARY KEY, bid int, abalance int, "
                     "filler char(84)) WITH (fillfactor = 100);"
                     "CREATE TABLE pgbench_branches (bid int NOT NULL PRIMARY KEY, bbalance int, filler char(88))")
    proxy = proxies(pool={"size": 10}, unix=True)
    proxy.query("SELECT * FROM collegedb_shard_table('pgbench_accounts', 'aid')")
    proxy.query("INSERT INTO pgbench_branches VALUES (1, 0)")  # not registered: lives on the journal shard
    with psycopg.connect(proxy.conninfo(), autocommit=True, prepare_threshold=0) as connection:
        for aid in range(1, ROWS + 1):
            done = connection.execute("INSERT INTO pgbench_accounts (aid, bid, abalance, filler) VALUES (%s, 1, 0, '')",
                                      (aid,))
            assert done.rowcount == 1
    counts = [rows[0][0] for rows in place.everywhere("SELECT count(*) FROM pgbench_accounts").values()]
    assert sum(counts) == ROWS and min(counts) > ROWS / 6
    return proxy


SELECT = "\\set aid random(1, {0})\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n".format(ROWS)
UPDATE = "\\set aid random(1, {0})\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n".format(ROWS)
BLOCK = ("\\set aid random(1, {0})\nBEGIN;\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
         "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\nEND;\n").format(ROWS)


def balances(place):
    return sum(rows[0][0] for rows in place.everywhere("SELECT sum(abalance) FROM pgbench_accounts").values())


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_select_only(bench, at_rest, protocol, unix):
    """The built-in script asks for any of 100000 keys: most are absent, which is an answer too."""
    run = pgbench(bench.conninfo(unix=unix), "-S", clients=32, transactions=60, protocol=protocol)
    run.assert_clean(32 * 60)
    run = pgbench(bench.conninfo(unix=unix), script=SELECT, clients=32, transactions=60, protocol=protocol)
    run.assert_clean(32 * 60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_updates_are_all_there(place, bench, at_rest, protocol):
    before = balances(place)
    pgbench(bench.conninfo(), script=UPDATE, clients=32, transactions=30, protocol=protocol).assert_clean(960)
    assert balances(place) - before == 960


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_transactions_are_all_there(place, bench, at_rest, protocol):
    before = balances(place)
    pgbench(bench.conninfo(), script=BLOCK, clients=32, jobs=32, transactions=20, protocol=protocol).assert_clean(640)
    assert balances(place) - before == 640


def test_the_pool_is_a_hard_cap(place, bench):
    """Never more than 10 server connections of clients per shard, with 32 clients at work."""
    peak = dict.fromkeys(place.names, 0)
    runs = []
    runner = threading.Thread(target=lambda: runs.append(pgbench(bench.conninfo(), script=BLOCK, clients=32, jobs=32,
                                                                 seconds=3, protocol="prepared")))
    runner.start()
    while runner.is_alive():
        for name in place.names:
            rows = place.on(name, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                                  "AND application_name = 'pgbench'")
            peak[name] = max(peak[name], rows[0][0])
        time.sleep(0.1)
    runner.join()
    runs[0].assert_clean()
    assert all(0 < count <= 10 for count in peak.values()), peak
    per_shard = dict.fromkeys(place.names, 0)
    for labels, value in bench.metrics()["collegedb_pool_connections"].items():
        per_shard[dict(labels)["shard"]] += value
    assert all(value <= 10 for value in per_shard.values()), per_shard


def test_a_row_lock_is_waited_for_like_on_one_server(bench):
    """Longer than write_hold, which bounds waits for moves only."""
    holder = bench.connect(autocommit=False)
    with holder.cursor() as cursor:
        cursor.execute("UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 11")
        outcomes = []
        waiters = [threading.Thread(target=lambda a=a: outcomes.append(attempt(lambda: bench.query(
            "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 11")))) for a in range(2)]
        for waiter in waiters:
            waiter.start()
        time.sleep(7)
        assert outcomes == []
        holder.commit()
    for waiter in waiters:
        waiter.join(20)
    holder.close()
    assert outcomes == [(None, 1), (None, 1)]
    bench.query("UPDATE pgbench_accounts SET abalance = abalance - 3 WHERE aid = 11")


def test_one_key_is_one_row_through_every_path(bench):
    for unix in (False, True):
        assert bench.query("SELECT aid, bid FROM pgbench_accounts WHERE aid = 7", unix=unix) == [(7, 1)]
    assert bench.query("SELECT count(*) FROM pgbench_accounts") == [(ROWS,)]
