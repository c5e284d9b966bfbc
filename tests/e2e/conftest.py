"""Fixtures of the end-to-end tests: shards for the whole run, a database and proxies per module.

Environment: COLLEGEDB_BIN (program), COLLEGEDB_TEST_PORTS ("first-last"), COLLEGEDB_TEST_SEED,
COLLEGEDB_KEEP_LOGS (folder). Every test has a deadline: 120 s, or its `deadline` mark.
"""

import faulthandler
import os
import random
import signal
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "support"))

from cluster import Shards  # noqa: E402
from proxy import Proxy, has_failpoints, is_sanitized  # noqa: E402
import world  # noqa: E402

collect_ignore = [] if has_failpoints() else ["test_failpoints.py"]


def pytest_configure(config):
    config.addinivalue_line("markers", "deadline(seconds): the test fails after this time")
    config.addinivalue_line("markers", "slow: not run with sanitizers")
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("SIGTERM", 143))


class TooLate(Exception):
    pass


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """A deadline over set-up, test and tear-down together."""
    mark = item.get_closest_marker("deadline")
    seconds = mark.args[0] if mark else 120
    if is_sanitized():
        seconds *= 4
    faulthandler.dump_traceback_later(seconds + 60, exit=True)  # when even the exception is stuck

    def late(*_):
        raise TooLate(f"not finished after {seconds} s")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def seed():
    """One number from which all random choices of the run follow; printed."""
    chosen = int(os.environ.get("COLLEGEDB_TEST_SEED", random.SystemRandom().randrange(2**31)))
    print(f"COLLEGEDB_TEST_SEED={chosen}")
    return chosen


@pytest.fixture(scope="session")
def shards():
    """Three servers for every test that neither kills nor reconfigures them."""
    with Shards(3, fsync=False, names=["db-east", "db-west", "db-north"]) as clusters:
        yield clusters


@pytest.fixture(scope="module")
def place(request, shards):
    """A fresh database of the module's name on every shard."""
    with world.Place(shards, request.module.__name__) as made:
        yield made


@pytest.fixture(scope="module")
def proxies(place):
    """Starts proxies in the module's place and stops them at its end: proxies(**settings)."""
    started = []

    def start(**settings):
        proxy = Proxy(place.shards, place.dbname, name=f"proxy{len(started) + 1}", **settings)
        started.append(proxy)
        proxy.start(timeout=120 if is_sanitized() else 60)
        return proxy

    yield start
    faults = []
    for proxy in started:
        try:
            proxy.close()
        except AssertionError as fault:
            faults.append(str(fault))
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="module")
def proxy(proxies):
    return proxies()


@pytest.fixture
def at_rest(place):
    """Afterwards nothing of ours may be left on the shards: see world.Place.assert_at_rest."""
    yield
    place.assert_at_rest()


@pytest.fixture
def stopwatch():
    started = time.monotonic()
    return lambda: time.monotonic() - started


@pytest.fixture(scope="module")
def keys(place):
    return world.Keys(place)


@pytest.fixture(scope="module")
def pair(place, proxies):
    """Two proxies over a sharded table items(id text, v int)."""
    first, second = proxies(), proxies()
    place.everywhere("CREATE TABLE items (id text PRIMARY KEY, v int)")
    first.query("SELECT * FROM collegedb_shard_table('items', 'id')")
    return first, second


@pytest.fixture
def item(place, pair, keys):
    """item(shard="db-east", v=1): a fresh key with one row on that shard."""

    def make(shard="db-east", v=1):
        key = keys.on(shard)
        assert pair[0].query("INSERT INTO items VALUES (%s, %s)", (key, v)) == 1
        assert place.holders("items", "id", key) == [shard]
        return key

    return make


@pytest.fixture
def move(pair):
    """move(key, destination): by the second proxy, so that the first is the one with old knowledge."""

    def run(key, destination, table="items", by=None):
        rows = (by or pair[1]).query("SELECT op, state, destination, write_stall_ms FROM "
                                     "collegedb_reassign(%s, %s, %s)", (key, destination, table))
        assert len(rows) == 1 and rows[0][1] in ("published", "retired") and rows[0][2] == destination, rows
        return rows[0]

    return run
