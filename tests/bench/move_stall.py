#!/usr/bin/python3
"""Write stall of one-row moves of one key under writers on that key.

    move_stall.py [--moves 100] [--writers 32]

The stall is what the mover reports (from the fence until the new owner is open) and, beside it, what
the writers themselves saw. fsync on; the time of one fdatasync on the same file system is printed,
since a cutover waits for about six of them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from bench import pgbench  # noqa: E402
from cluster import Shards  # noqa: E402
from proxy import REPOSITORY, Proxy  # noqa: E402
from world import Place, quantile  # noqa: E402


def fsync_ms():
    """Median time of write and fdatasync of 8 KiB."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(50):
            file.write(bytes(8192))
            file.flush()
            started = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - started) * 1000)
    return quantile(took, 0.5)


def line(name, values):
    return (f"| {name} | {quantile(values, .5):.1f} | {quantile(values, .99):.1f} | {max(values):.1f} |")


def run(options, place, first, second):
    for name in place.names:
        place.on(name, "CREATE TABLE items (id text PRIMARY KEY, v int)")
    first.query("SELECT * FROM collegedb_shard_table('items', 'id')")
    first.query("INSERT INTO items VALUES ('hot', 0)")
    runs, stalls, took = [], [], []
    seconds = max(5, options.moves * 0.15 + 3)
    threads = [threading.Thread(target=lambda p=p: runs.append(pgbench(
        p.conninfo(), script="UPDATE items SET v = v + 1 WHERE id = 'hot';\n", clients=options.writers // 2,
        seconds=int(seconds), protocol="prepared", log=True))) for p in (first, second)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    connection = second.connect()
    with connection.cursor() as cursor:
        cursor.execute("SELECT shard FROM collegedb_locate('hot', 'items')")
        at = place.names.index(cursor.fetchone()[0])
        for _ in range(options.moves):
            at = (at + 1) % len(place.names)
            started = time.monotonic()
            cursor.execute("SELECT write_stall_ms FROM collegedb_reassign('hot', %s, 'items')", (place.names[at],))
            took.append((time.monotonic() - started) * 1000)
            stalls.append(float(cursor.fetchone()[0]))
            time.sleep(0.05)
    connection.close()
    for thread in threads:
        thread.join()
    for one in runs:
        one.assert_clean()
    latencies = [latency * 1000 for one in runs for latency in one.latencies]
    print("| | p50 ms | p99 ms | max ms |\n|---|---|---|---|")
    print(line("write stall of a move", stalls))
    print(line("whole move", took))
    print(line(f"a write, {options.writers} writers on one key", latencies))
    print(f"\n{len(stalls)} moves, {len(latencies)} writes, 0 errors, one fdatasync {fsync_ms():.2f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--writers", type=int, default=32)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True,
                            check=False).stdout.strip()
    print(f"commit {commit}, {os.cpu_count()} cores\n")
    with Shards(3) as shards, Place(shards, "bench") as place, \
            Proxy(shards, place.dbname, name="first", pool={"size": 20}) as first, \
            Proxy(shards, place.dbname, name="second", pool={"size": 20}) as second:
        run(options, place, first, second)


if __name__ == "__main__":
    sys.exit(main())
