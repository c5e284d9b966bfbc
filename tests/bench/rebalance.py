#!/usr/bin/python3
"""Keys per second of a rebalance from one shard to three, one row a key, alone and under clients.

    rebalance.py [--keys 150000] [--clients 8] [--pace 20]

About two thirds of the keys move. First half of them alone, then the rest while `--clients` update
random keys over another proxy, each with a pause of `--pace` milliseconds; before, during and after,
the clients' latencies are taken. fsync on.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from bench import pgbench  # noqa: E402
from cluster import Shards  # noqa: E402
from proxy import REPOSITORY, Proxy  # noqa: E402
from world import Place, quantile  # noqa: E402

SCRIPT = "\\set k random(1, {keys})\nUPDATE items SET v = v + 1 WHERE id = :k;\n\\sleep {pace} ms\n"


def start(shards, place, name):
    return Proxy(shards, place.dbname, name=name, pool={"size": 20})


def clients(options, proxy, seconds):
    out = []
    script = SCRIPT.format(keys=options.keys, pace=options.pace)
    thread = threading.Thread(target=lambda: out.append(pgbench(
        proxy.conninfo(), script=script, clients=options.clients, seconds=seconds, log=True)))
    thread.start()
    return thread, out


def latencies(run):
    """Of the statements, without the pauses of the script."""
    thread, out = run
    thread.join()
    out[0].assert_clean()
    return out[0].latencies


def rebalance(proxy, max_keys="NULL"):
    started = time.monotonic()
    moved, failed = proxy.query(f"SELECT moved, failed FROM collegedb_rebalance(max_keys => {max_keys})")[0]
    assert failed == 0
    return moved, time.monotonic() - started


def run(options, shards, place):
    place.on(place.names[0], "CREATE TABLE items (id bigint PRIMARY KEY, v int NOT NULL, filler text NOT NULL)")
    place.on(place.names[0], "INSERT INTO items SELECT g, 0, repeat('x', 80) FROM generate_series(1, %s) g",
             (options.keys,))
    place.on(place.names[0], "ANALYZE items")
    with start(shards[:1], place, "old") as old:
        old.query("SELECT * FROM collegedb_shard_table('items')")
    with start(shards, place, "first") as first, start(shards, place, "second") as second:
        for name in place.names[1:]:
            first.query(f"SELECT * FROM collegedb_add_shard('{name}')")
        lines = []
        moved, took = rebalance(first, options.keys // 3)
        lines.append(f"| alone | {moved} | {moved / took:.0f} | |")
        quiet = latencies(clients(options, second, 8))
        busy = clients(options, second, 15)
        time.sleep(1)
        moved, took = rebalance(first)
        busy = latencies(busy)
        pause = options.pace / 1000
        ratio = [f"p{q * 100:.0f} {(quantile(quiet, q) - pause) * 1000:.1f} to "
                 f"{(quantile(busy, q) - pause) * 1000:.1f}" for q in (.5, .99)]
        lines.append(f"| under {options.clients} clients | {moved} | {moved / took:.0f} | {', '.join(ratio)} |")
        stalls = [float(ms) for (ms,) in place.on(
            place.names[0], "SELECT write_stall_ms FROM collegedb.moves WHERE write_stall_ms IS NOT NULL")]
        keys_per_operation = place.on(place.names[0], "SELECT avg(rows)::int FROM collegedb.moves")[0][0]
        print("| | keys moved | keys/s | write latency, ms |\n|---|---|---|---|")
        print("\n".join(lines))
        print(f"\n{len(stalls)} operations of {keys_per_operation} keys, write stall p50 {quantile(stalls, .5):.1f} ms, "
              f"p99 {quantile(stalls, .99):.1f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=150000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pace", type=int, default=20)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True,
                            check=False).stdout.strip()
    print(f"commit {commit}, {os.cpu_count()} cores\n")
    with Shards(3) as shards, Place(shards, "bench") as place:
        run(options, list(shards), place)


if __name__ == "__main__":
    sys.exit(main())
