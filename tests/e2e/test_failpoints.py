"""Moves that die, lose an answer or stand still at each named point, seen from outside. Only in
builds with fail points (not the release build)."""

import os
import re
import threading
import time

import pytest

import guard
import world
from proxy import Proxy

pytestmark = pytest.mark.usefixtures("at_rest")
ROOT = guard.ROOT


def commands():
    source = guard.read(os.path.join(ROOT, "migration/machine.cpp"))
    names = re.search(r"kCommandNames = \{(.*?)\};", source, re.S).group(1)
    return re.findall(r'"(\w+)"', names)


# Commands of a healthy move, in order.
HEALTHY = [c for c in commands() if c not in ("stop", "back_off", "rollback", "journal_aborted", "take_over", "raise_tokens",
                                              "inspect", "journal_reset", "rollback_halves")]
# To die before a command is to die after the one before it.
POINTS = ["claim.after", *(f"{c}.after" for c in HEALTHY), "copy.middle", "fence.middle"]
EFFECTS = [f"{c}.after" for c in HEALTHY if c.startswith(("journal", "prepare", "commit", "clear", "publish", "retire"))]


@pytest.fixture(name="survivor", scope="module")
def _survivor(pair):
    return pair[0]


@pytest.fixture
def victim(place, survivor):
    """victim(spec): a further proxy with these fail points."""
    started = []

    def start(spec):
        proxy = Proxy(place.shards, place.dbname, name="victim", failpoints=spec)
        started.append(proxy)
        return proxy.start()

    yield start
    for proxy in started:
        if proxy.process is not None and proxy.process.poll() is not None:
            proxy.process = None
        proxy.close()


def move(proxy, key, outcome=None):
    def run():
        result = world.attempt(lambda: proxy.query(
            "SELECT state FROM collegedb_reassign(%s, 'db-west', 'items')", (key,)))
        if outcome is not None:
            outcome.append(result)
        return result
    return run


def settled(place, survivor, key, increments):
    """Writes flow, one owner holds the row with exactly the acknowledged increments, no debris."""
    started = time.monotonic()
    world.wait_until(lambda: world.attempt(lambda: survivor.query(
        "UPDATE items SET v = v + 1 WHERE id = %s", (key,))) == (None, 1), 12, f"a write of {key}")
    took = time.monotonic() - started
    world.wait_until(lambda: place.on(0, "SELECT op FROM collegedb.moves WHERE state NOT IN ('retired', 'aborted', "
                                         "'published')") == [], 12, "end of the operation")
    world.wait_until(lambda: place.on(0, "SELECT * FROM collegedb.claims") == [], 12, "release of the claims")
    # Not before: the shards are read one after the other, and recovery may be moving the key again.
    held = {n: r for n, r in place.everywhere("SELECT v FROM items WHERE id = %s", (key,)).items() if r}
    assert list(held.values()) == [[(1 + increments + 1,)]], held
    held_after = list(held)
    for name in place.names:
        assert place.on(name, "SELECT * FROM collegedb.incoming") == []
    assert survivor.query("SELECT shard FROM collegedb_locate(%s, 'items')", (key,)) == [(held_after[0],)]
    return took


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_there_is_healed_by_the_other_proxy(place, survivor, victim, item, point):
    key = item("db-east")
    proxy = victim(f"{point}=crash")
    state, _ = world.attempt_lost(move(proxy, key))
    proxy.process.wait(10)
    assert proxy.process.returncode == 137, f"{point} was not met: {state}"
    assert settled(place, survivor, key, 0) < 3 * 4


@pytest.mark.parametrize("point", EFFECTS)
def test_a_lost_answer_there_loses_nothing(place, survivor, victim, item, point):
    key = item("db-east")
    proxy = victim(f"{point}=drop-reply")
    world.attempt_lost(move(proxy, key))
    settled(place, survivor, key, 0)


def held_at(place, victim, item, tmp_path, point):
    """(key, victim, release, mover thread, outcome) of a move that stands at the point."""
    os.chmod(tmp_path, 0o755)
    go = tmp_path / "go"
    key = item("db-east")
    proxy = victim(f"{point}=wait:{go}")
    outcome = []
    mover = threading.Thread(target=move(proxy, key, outcome), daemon=True)
    mover.start()
    world.wait_until((tmp_path / "go.here").exists, 20, f"the mover's arrival at {point}")
    return key, proxy, go.touch, mover, outcome


@pytest.mark.parametrize("point", ["fence.after", "prepare_destination.after", "prepare_source.after",
                                   "commit_destination.before", "commit_destination.after"])
def test_row_10_reads_never_miss_and_writes_wait(place, survivor, victim, item, tmp_path, point):
    """A move stands still in the middle of its cutover: keyed reads answer, writes wait and then land."""
    key, _, release, mover, outcome = held_at(place, victim, item, tmp_path, point)
    assert survivor.query("SELECT v FROM items WHERE id = %s", (key,)) == [(1,)]
    written = []
    writer = threading.Thread(target=lambda: written.append(world.attempt(lambda: survivor.query(
        "UPDATE items SET v = v + 10 WHERE id = %s", (key,)))), daemon=True)
    writer.start()
    time.sleep(0.5)
    assert survivor.query("SELECT v FROM items WHERE id = %s", (key,)) in ([(1,)], [(11,)])
    release()
    mover.join(15)
    writer.join(15)
    assert written == [(None, 1)], written
    settled(place, survivor, key, 10)
    if outcome[0][0] is None:
        assert place.holders("items", "id", key) == ["db-west"]


def test_row_10_until_the_marker_goes_the_new_owner_holds_reads_and_writes(place, survivor, victim, item, tmp_path):
    """Both halves are committed and the mover stands before it clears the marker: nobody is told
    "no rows", nobody writes; then both land."""
    key, _, release, mover, _ = held_at(place, victim, item, tmp_path, "commit_source.after")
    done = {}
    threads = [threading.Thread(target=lambda n=name, q=sql: done.__setitem__(n, world.attempt(
        lambda: survivor.query(q, (key,)))), daemon=True) for name, sql in (
            ("read", "SELECT v FROM items WHERE id = %s"), ("write", "UPDATE items SET v = v + 10 WHERE id = %s"))]
    for thread in threads:
        thread.start()
    time.sleep(1)
    assert done == {}
    release()
    for thread in [mover, *threads]:
        thread.join(15)
    assert done["write"] == (None, 1) and done["read"] in [(None, [(1,)]), (None, [(11,)])]
    settled(place, survivor, key, 10)
    assert place.holders("items", "id", key) == ["db-west"]


@pytest.mark.parametrize("point", ["copy.after", "fence.after", "prepare_destination.after", "prepare_source.before",
                                   "prepare_source.after", "journal_committed.before", "journal_committed.after"])
def test_row_4_a_mover_that_recovery_has_passed_cannot_go_on(place, survivor, victim, item, tmp_path, point):
    """It stands still, its journal session ends, the other proxy recovers; then it goes on."""
    key, proxy, release, mover, outcome = held_at(place, victim, item, tmp_path, point)
    place.on(0, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY (%s)",
             (world.local_ports(proxy.process.pid),))
    written = 0
    until = time.monotonic() + 15
    while not written and time.monotonic() < until:
        state, error = world.attempt(lambda: survivor.query("UPDATE items SET v = v + 1 WHERE id = %s", (key,)))
        assert state in (None, "40001"), error
        written += state is None
    assert written == 1
    release()
    mover.join(20)
    assert outcome
    settled(place, survivor, key, 1)
