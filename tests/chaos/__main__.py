"""Chaos on demand: `python3 tests/chaos --seed N --minutes M`. A failing seed is printed; the same
seed makes the same choices again."""

import argparse
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

import load  # noqa: E402
import moves  # noqa: E402
from chaos import RECOVERY_INTERVAL, Chaos  # noqa: E402
from cluster import Shards  # noqa: E402
from proxy import Proxy  # noqa: E402
from world import Place  # noqa: E402


def one_round(place, victim, survivor, seed):
    place.everywhere("UPDATE counters SET n = 0")
    chaos = Chaos(place, victim, survivor, seed)
    with load.Load([victim.conninfo(), survivor.conninfo()], 16, seed, pace=0.03) as clients:
        chaos.kill_proxies(8)
        chaos.kill_shards(3)
        books = clients.stop()
    ledger, faults = chaos.judge(books)
    moves.assert_moves_settled(place)
    place.assert_at_rest(patience=10)
    print(chaos.report(ledger), flush=True)
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--minutes", type=float, default=5)
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    settings = {"journal": {"recovery_interval": f"{RECOVERY_INTERVAL:.0f}s"}}
    with Shards(3, names=["db-east", "db-west", "db-north"]) as shards, Place(shards, "chaos") as place, \
            Proxy(shards, place.dbname, name="victim", **settings) as victim, \
            Proxy(shards, place.dbname, name="survivor", **settings) as survivor:
        moves.shard_counters(survivor, place)
        seed = options.seed
        while time.monotonic() < until:
            print(f"seed {seed}", flush=True)
            faults = one_round(place, victim, survivor, seed)
            if faults:
                print("\n".join(faults))
                print(f"FAILED with seed {seed}")
                return 1
            seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
