"""The demonstration: clients write through two proxies while keys are moved under them."""

import os

import pytest

import load
import moves
from proxy import Proxy, is_sanitized
from world import Place, quantile
from cluster import Shards

SLOWER = 4 if is_sanitized() else 1
SECONDS = int(os.environ.get("COLLEGEDB_DEMO_SECONDS", "20" if is_sanitized() else "60"))
MOVES = max(5, 200 * SECONDS // 60 // SLOWER)


@pytest.mark.deadline(SECONDS + 180)
def test_nothing_is_lost_while_keys_move(seed):
    with Shards(3, names=["db-east", "db-west", "db-north"]) as shards, Place(shards, "demo_load") as place:
        with Proxy(shards, place.dbname, name="first") as first, Proxy(shards, place.dbname, name="second") as second:
            run(place, [first, second], seed)


def run(place, proxies, seed):
    moves.shard_counters(proxies[0], place)
    # The two proxies get their clients in halves; a client keeps its proxy.
    loads = [load.Load([p.conninfo()], 8, seed + i, pace=0.02) for i, p in enumerate(proxies)]
    movers = [moves.Mover(proxies[i:] + proxies[:i], place, seed + i, share=(i, 2)) for i in range(2)]
    with loads[0], loads[1]:
        for mover in movers:
            mover.start()
        movers[0].join(SECONDS)
        for mover in movers:
            mover.stop()
        ledger = load.Ledger(loads[0].stop() + loads[1].stop())
    stalls = [move[3] for mover in movers for move in mover.moves]
    print(f"\n{len(stalls)} moves, stall p50 {quantile(stalls, 0.5):.1f} p99 {quantile(stalls, 0.99):.1f} ms; "
          f"{ledger.summary()}")

    assert [failure for mover in movers for failure in mover.failures] == []
    assert len(stalls) >= MOVES
    autocommit = [e for e in ledger.errors if e[3] == "autocommit"]
    assert autocommit == []
    assert [e for e in ledger.errors if e[1] != "40001"] == []
    assert sum(ledger.unknown.values()) == 0
    assert len(ledger.books) == 16 and all(sum(b.acknowledged.values()) > SECONDS / SLOWER for b in ledger.books)
    assert ledger.judge(place) == []
    moves.assert_moves_settled(place)
    place.assert_at_rest()
    moves.assert_locate_agrees(proxies, place, [load.key_name(i) for i in range(load.KEYS)])
    assert ledger.longest < 5 * SLOWER, "a write waited longer than write_hold"
