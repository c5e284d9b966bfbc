"""Thirty-two clients hammer one key without pause; moves of that key still get their turn."""

import threading
import time

import pytest

from bench import pgbench
from proxy import is_sanitized
from world import quantile

HAMMER = "UPDATE items SET v = v + 1 WHERE id = 'hot';\n"


@pytest.mark.deadline(150)
@pytest.mark.parametrize("protocol", ["simple", "prepared"])
def test_a_move_gets_its_turn_and_stalls_writers_for_milliseconds(place, pair, at_rest, protocol):
    pair[0].query("INSERT INTO items VALUES ('hot', 0) ON CONFLICT (id) DO UPDATE SET v = 0")
    runs = []
    threads = [threading.Thread(target=lambda p=p: runs.append(
        pgbench(p.conninfo(), script=HAMMER, clients=16, seconds=10, protocol=protocol, log=True))) for p in pair]
    for thread in threads:
        thread.start()
    time.sleep(1)
    took, stalls = [], []
    mover = pair[1].connect()
    with mover.cursor() as cursor:
        until = time.monotonic() + 7
        while time.monotonic() < until:
            for destination in place.names:
                started = time.monotonic()
                cursor.execute("SELECT source, destination, write_stall_ms FROM "
                               "collegedb_reassign('hot', %s, 'items')", (destination,))
                source, reached, stall = cursor.fetchone()
                assert reached == destination
                if source != destination:
                    took.append(time.monotonic() - started)
                    stalls.append(float(stall) / 1000)
                time.sleep(0.05)
    mover.close()
    for thread in threads:
        thread.join()
    latencies = [latency for run in runs for latency in run.latencies]
    print(f"\n{len(took)} moves, p50 {quantile(took, .5) * 1000:.0f} ms, max {max(took) * 1000:.0f} ms; stall p50 "
          f"{quantile(stalls, .5) * 1000:.1f} max {max(stalls) * 1000:.1f} ms; {len(latencies)} writes, "
          f"p50 {quantile(latencies, .5) * 1000:.1f} p99 {quantile(latencies, .99) * 1000:.1f} "
          f"max {max(latencies) * 1000:.0f} ms")
    for run in runs:
        run.assert_clean()
    rows = [row for rows in place.everywhere("SELECT v FROM items WHERE id = 'hot'").values() for row in rows]
    assert rows == [(sum(run.transactions for run in runs),)]
    # Without a fair queue a move gets no turn at all; with it, writers wait some milliseconds.
    slower = 10 if is_sanitized() else 1
    assert len(took) >= 10 / slower and max(took) < 2.0 * slower
    assert quantile(stalls, 0.5) < 0.05 * slower and max(latencies) < 1.5 * slower
