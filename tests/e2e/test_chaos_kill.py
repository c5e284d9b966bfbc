"""kill -9 of the moving proxy and of the shards' servers, under load."""

import os

import pytest

import load
import moves
from chaos import RECOVERY_INTERVAL, Chaos
from cluster import Shards
from proxy import Proxy, has_failpoints, is_sanitized
from world import Place, attempt, wait_until

PROXY_KILLS = int(os.environ.get("COLLEGEDB_PROXY_KILLS", "8" if is_sanitized() else "24"))
SHARD_KILLS = int(os.environ.get("COLLEGEDB_SHARD_KILLS", "3" if is_sanitized() else "4"))

# A move of one row is over in a few milliseconds: where the victim's moves are held up for a moment
# at each step, kills find all of them.
SLOW = ",".join(f"{step}.before=sleep:25*-1" for step in (
    "copy", "verify", "fence", "prepare_destination", "prepare_source", "journal_committed",
    "commit_destination", "commit_source", "publish", "retire")) if has_failpoints() else ""


@pytest.fixture(name="world", scope="module")
def _world():
    with Shards(3, names=["db-east", "db-west", "db-north"]) as shards, Place(shards, "chaos_kill") as place:
        settings = {"journal": {"recovery_interval": f"{RECOVERY_INTERVAL:.0f}s"}}
        with Proxy(shards, place.dbname, name="victim", failpoints=SLOW, **settings) as victim, \
                Proxy(shards, place.dbname, name="survivor", **settings) as survivor:
            moves.shard_counters(survivor, place)
            yield place, victim, survivor


def settle(place, proxies, chaos, books):
    ledger, faults = chaos.judge(books)
    print("\n" + chaos.report(ledger))
    assert faults == []
    moves.assert_moves_settled(place)
    place.assert_at_rest(patience=10)
    moves.assert_locate_agrees(proxies, place, [load.key_name(i) for i in range(load.KEYS)])
    return ledger


def reset(place):
    place.everywhere("UPDATE counters SET n = 0")


@pytest.mark.deadline(300)
def test_kill_of_the_moving_proxy(world, seed):
    place, victim, survivor = world
    reset(place)
    chaos = Chaos(place, victim, survivor, seed)
    at_victim = load.Load([victim.conninfo(), survivor.conninfo()], 8, seed, pace=0.05)
    at_survivor = load.Load([survivor.conninfo()], 8, seed + 1, pace=0.05)
    with at_victim, at_survivor:
        chaos.kill_proxies(PROXY_KILLS)
        theirs, ours = at_victim.stop(), at_survivor.stop()
    settle(place, [victim, survivor], chaos, theirs + ours)
    # Whoever was connected to the surviving proxy has at most waited.
    assert [e for b in ours for e in b.errors if e[0] != "40001"] == []
    assert sum(v for state, v in chaos.states.items() if state not in ("none", "done", "published")) >= PROXY_KILLS // 4, \
        f"too few kills met a move: {chaos.states}"


@pytest.mark.deadline(300)
def test_kill_of_a_shards_server(world, seed):
    place, victim, survivor = world
    reset(place)
    chaos = Chaos(place, victim, survivor, seed + 7)
    with load.Load([victim.conninfo(), survivor.conninfo()], 16, seed + 7, pace=0.05) as clients:
        chaos.kill_shards(SHARD_KILLS)
        books = clients.stop()
    settle(place, [victim, survivor], chaos, books)
    for proxy in (victim, survivor):
        proxy.assert_alive()


@pytest.mark.deadline(120)
def test_4b_row_20_a_finished_move_survives_the_loss_of_its_journal_server(world, seed):
    """The databases default to synchronous_commit = off; each move is followed at once by kill -9 of
    the journal shard's server. What the operator was told must still be so."""
    place, _, survivor = world
    for cluster in place.shards:
        cluster.psql(f"ALTER DATABASE {place.dbname} SET synchronous_commit = off")
    try:
        for number in range(3):
            key = load.key_name(number)
            source = moves.locate(survivor, key)[0]
            destination = next(n for n in place.names if n != source)
            rows = survivor.query(moves.REASSIGN, (key, destination, "counters"))
            place.shards[0].kill9()
            place.shards[0].start()
            op, _, reached, _, _, _ = rows[0]
            assert reached == destination
            states = place.on(0, "SELECT state FROM collegedb.moves WHERE op = %s", (op,))
            assert states and states[0][0] in ("committed", "published", "retired"), states
            wait_until(lambda k=key, d=destination: attempt(lambda: moves.locate(survivor, k)[0]) == (None, d), 10,
                       "locate after the restart")
            assert place.holders("counters", "id", key) == [destination]
    finally:
        for cluster in place.shards:
            cluster.psql(f"ALTER DATABASE {place.dbname} RESET synchronous_commit")
