"""Rebalance as an operator lives it: one database with rows gets two more shards, and its keys go
where the newest epoch has them while clients write over two proxies, one of which dies."""

import contextlib
import threading

import psycopg2
import pytest

import load
from proxy import Proxy, is_sanitized
from world import wait_until

KEYS = 60
BALLAST = 6000
EAST, WEST, NORTH = "db-east", "db-west", "db-north"
ALL = [EAST, WEST, NORTH]

TABLES = """
CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE ballast (owner text PRIMARY KEY, filler text NOT NULL);
INSERT INTO counters SELECT 'key-' || g, 0 FROM generate_series(0, %s) g;
INSERT INTO ballast SELECT 'row-' || g, repeat('x', 60) FROM generate_series(1, %s) g;
ANALYZE counters, ballast;
"""

PLACED = """SELECT count(*) FILTER (WHERE collegedb.owner(%s, k) = %s), count(*)
FROM (SELECT id FROM counters UNION SELECT owner FROM ballast) t (k)"""


def row(proxy, sql, arguments=None):
    """The only row of an answer, as a dictionary."""
    with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        rows = cursor.fetchall()
        assert len(rows) == 1, rows
        return dict(zip([column.name for column in cursor.description], rows[0]))


def placed(place, names):
    """{shard: (keys in their place, keys)}"""
    return {name: place.on(name, PLACED, (names, name))[0] for name in place.names}


def rebalances(place):
    return place.on(EAST, "SELECT state, moved FROM collegedb.rebalances WHERE NOT dry_run ORDER BY started_at")


@pytest.fixture(scope="module")
def city(place):
    place.on(EAST, TABLES, (KEYS - 1, BALLAST))
    pair = [Proxy(place.shards[:1], place.dbname, name=f"proxy{i}") for i in (1, 2)]
    for proxy in pair:
        proxy.start(timeout=120 if is_sanitized() else 60)
    first = pair[0]
    first.query("SELECT * FROM collegedb_shard_table('counters')")
    first.query("SELECT * FROM collegedb_shard_table('ballast', 'owner', 'counters')")
    for proxy in pair:
        with open(proxy.config_path, "a", encoding="utf-8") as out:
            for name in (WEST, NORTH):
                out.write(f'[[shards]]\nname = "{name}"\n'
                          f'conninfo = "{place.cluster(name).conninfo(place.dbname)}"\n')
        proxy.stop()
        proxy.start()
    for name in (WEST, NORTH):
        first.query(f"SELECT * FROM collegedb_add_shard('{name}')")
    yield pair
    for proxy in pair:
        proxy.close()


@pytest.fixture(scope="module")
def clients(city):
    with load.Load([proxy.conninfo() for proxy in city], count=8, seed=11, pace=0.02, keys=KEYS) as writers:
        yield writers


@pytest.mark.deadline(240)
def test_1_a_rehearsal_tells_what_would_go_where(city, place):
    before = placed(place, ALL)
    plan = row(city[0], "SELECT * FROM collegedb_rebalance(dry_run => true)")
    assert plan["examined"] == KEYS + BALLAST and plan["failed"] == 0 and plan["failures"] == []
    assert plan["agreed"] == before[EAST][0] and plan["moved"] == KEYS + BALLAST - before[EAST][0]
    assert placed(place, ALL) == before
    shares = place.on(EAST, "SELECT e ->> 'destination', (e ->> 'keys')::int FROM collegedb.rebalances,"
                            " jsonb_array_elements(plan) e WHERE e ->> 'source' = %s ORDER BY 1", (EAST,))
    owners = place.on(EAST, "SELECT collegedb.owner(%s, k) o, count(*) FROM (SELECT id FROM counters UNION"
                            " SELECT owner FROM ballast) t (k) GROUP BY 1 ORDER BY 1", (ALL,))
    assert shares == [share for share in owners if share[0] != EAST]


@pytest.mark.usefixtures("clients")
@pytest.mark.deadline(240)
def test_2_pause_and_death_of_the_proxy_that_does_it(city, place):
    first, second = city
    answers = []

    def call():
        try:
            answers.append(row(first, "SELECT * FROM collegedb_rebalance(concurrency => 2)"))
        except psycopg2.Error as error:
            answers.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    wait_until(lambda: place.on(WEST, "SELECT count(*) > 0 FROM ballast") == [(True,)], 60, "the first keys")
    with pytest.raises(psycopg2.Error) as error:
        second.query("SELECT * FROM collegedb_rebalance()")
    assert error.value.pgcode == "55006", error.value
    # Any proxy pauses them for all.
    assert second.query("SELECT * FROM collegedb_pause_moves()") == [("paused",)]
    wait_until(lambda: rebalances(place)[-1][0] == "paused", 20, "pause")
    wait_until(lambda: place.on(EAST, "SELECT count(*) FROM collegedb.claims") == [(0,)], 30, "no claim")
    still = placed(place, ALL)
    with pytest.raises(psycopg2.Error) as error:
        second.query(f"SELECT * FROM collegedb_reassign('key-1', '{WEST}')")
    assert "MOVES_PAUSED" in str(error.value)
    assert placed(place, ALL) == still
    assert second.query("SELECT * FROM collegedb_resume_moves()") == [("running",)]
    wait_until(lambda: placed(place, ALL) != still, 30, "moves again")
    first.kill9()
    caller.join()
    assert isinstance(answers[0], psycopg2.Error), answers
    assert placed(place, ALL)[EAST][0] < placed(place, ALL)[EAST][1], "all was moved before the kill"
    # Recovery of the other ends what has begun; calling it again does the rest.
    done = row(second, "SELECT * FROM collegedb_rebalance()")
    assert done["failed"] == 0, done
    assert done["examined"] == done["agreed"] + done["moved"]
    first.start()
    assert [state for state, _ in rebalances(place)] == ["interrupted", "done"]
    now = placed(place, ALL)
    assert all(right == all_keys for right, all_keys in now.values()), now
    assert sum(all_keys for _, all_keys in now.values()) == KEYS + BALLAST
    assert place.on(EAST, "SELECT count(*) FROM collegedb.exceptions WHERE kind = 'move'") == [(0,)]
    assert row(first, "SELECT * FROM collegedb_rebalance()")["moved"] == 0


@pytest.mark.usefixtures("clients")
@pytest.mark.deadline(240)
def test_3_a_drained_shard_is_emptied_and_its_pinned_key_stays(city, place):
    first, second = city
    first.query(f"SELECT * FROM collegedb_drain_shard('{WEST}')")
    (pinned,), *_ = place.on(NORTH, "SELECT owner FROM ballast LIMIT 1")
    moved = row(second, f"SELECT * FROM collegedb_reassign('{pinned}', '{WEST}')")
    assert moved["state"] == "retired", moved
    done = row(second, f"SELECT * FROM collegedb_rebalance(source => '{WEST}')")
    assert done["failed"] == 0, done
    assert place.on(WEST, "SELECT id FROM counters UNION SELECT owner FROM ballast") == [(pinned,)]
    first.query(f"SELECT * FROM collegedb_reassign('{pinned}', '{NORTH}')")
    for key in [load.key_name(i) for i in range(KEYS)] + [pinned]:
        located = row(first, f"SELECT * FROM collegedb_locate('{key}', 'counters')")["shard"]
        homes = [name for name in place.names
                 if place.on(name, "SELECT 1 FROM counters WHERE id = %s UNION ALL"
                                   " SELECT 1 FROM ballast WHERE owner = %s", (key, key))]
        assert homes == [located], key


@pytest.mark.usefixtures("city")
@pytest.mark.deadline(120)
def test_4_shards_tell_their_sizes(place):
    place.everywhere("ANALYZE counters")
    place.everywhere("ANALYZE ballast")
    def measured():
        return place.on(EAST, "SELECT count(*) FROM collegedb.shards WHERE database_bytes > 0"
                              " AND measured_at > now() - interval '2 minutes'") == [(3,)]
    wait_until(measured, 60, "sizes")
    place.on(EAST, "UPDATE collegedb.shards SET measured_at = NULL")
    wait_until(measured, 60, "sizes again")
    ((rows,),) = place.on(EAST, "SELECT sum(rows_estimate) FROM collegedb.shards")
    assert rows == KEYS + BALLAST


@pytest.mark.deadline(180)
def test_5_no_write_was_lost_and_no_client_disturbed(place, clients):
    ledger = load.Ledger(clients.stop())
    print(ledger.summary())
    assert ledger.judge(place, keys=KEYS) == []
    assert sum(ledger.acknowledged.values()) > 200
    wrong = [e for e in ledger.errors if e[3] == "autocommit" and e[1] not in (None, "57P01", "57P03")]
    assert wrong == [], wrong[:5]
    place.assert_at_rest()


def test_6_only_administrators(city):
    first = city[0]
    first.query("CREATE ROLE passer_by LOGIN")
    try:
        with contextlib.closing(first.connect(user="passer_by")) as connection, connection.cursor() as cursor:
            for call in ("collegedb_rebalance()", "collegedb_pause_moves()", "collegedb_resume_moves()"):
                with pytest.raises(psycopg2.Error) as error:
                    cursor.execute(f"SELECT * FROM {call}")
                assert error.value.pgcode == "42501", error.value
    finally:
        first.query("DROP ROLE passer_by")
