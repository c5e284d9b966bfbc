#!/usr/bin/python3
"""CPU of the proxy per transaction beside PgBouncer's, in one run, A and B alternating.

    cpu_per_transaction.py [--rounds 5] [--seconds 3] [--clients 1,8,32]

Prints one table row per case: microseconds of user and system time per transaction, median (min to
max) of the rounds, and the ratio of the medians. One worker thread here as there; loopback TCP.
PgBouncer is Debian's, in transaction mode. Before 1.21 it cannot pool prepared statements: for
`prepared` it then runs in session mode with a server connection per client, marked (session).
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

import bench  # noqa: E402
from cluster import Shards, free_port  # noqa: E402
from proxy import REPOSITORY, Proxy  # noqa: E402
from world import Place  # noqa: E402

ROWS = 5000
SCRIPT = f"\\set aid random(1, {ROWS})\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
TABLE = ("CREATE TABLE {0} (aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler char(84))")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PgBouncer:
    """Debian's PgBouncer in front of one server."""

    def __init__(self, conninfo, mode, pool):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="collegedb-pgbouncer-")
        config = os.path.join(self.folder, "pgbouncer.ini")
        with open(config, "w", encoding="utf-8") as out:
            out.write(f"[databases]\napp = {conninfo}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
                      f"auth_type = any\nunix_socket_dir =\npool_mode = {mode}\ndefault_pool_size = {pool}\n"
                      f"max_client_conn = 200\nlogfile = {self.folder}/log\nignore_startup_parameters = extra_float_digits\n")
        os.chmod(self.folder, 0o777)
        as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        self.process = subprocess.Popen(["pgbouncer", "-q", config], **as_user)
        deadline = time.monotonic() + 10
        while subprocess.run(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError("pgbouncer does not start")
            time.sleep(0.05)

    def conninfo(self):
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=app"

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)
        subprocess.run(["rm", "-rf", self.folder], check=True)


def pgbouncer_version():
    out = subprocess.run(["pgbouncer", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(n) for n in re.search(r"PgBouncer (\d+)\.(\d+)", out).groups())


def measure(target, protocol, clients, seconds, table):
    """Microseconds of CPU of `target` per transaction."""
    script = SCRIPT.replace("pgbench_accounts", table)
    before = target.cpu_seconds()
    run = bench.pgbench(target.conninfo(), script=script, clients=clients, seconds=seconds, protocol=protocol)
    run.assert_clean()
    return (target.cpu_seconds() - before) * 1e6 / run.transactions, run.tps


def row(name, ours, theirs, note):
    def cell(values):
        return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    ratio = statistics.median(ours) / statistics.median(theirs)
    return f"| {name} | {cell(ours)} | {cell(theirs)}{note} | {ratio:.2f} |"


def fill(place, proxy):
    for name in place.names:
        place.on(name, TABLE.format("pgbench_accounts"))
    proxy.query("SELECT * FROM collegedb_shard_table('pgbench_accounts', 'aid')")
    with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
        for aid in range(1, ROWS + 1):
            cursor.execute(f"INSERT INTO pgbench_accounts VALUES ({aid}, 1, 0, '')")
    place.on(0, TABLE.format("plain_accounts"))
    place.on(0, f"INSERT INTO plain_accounts SELECT i, 1, 0, '' FROM generate_series(1, {ROWS}) i")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--protocols", default="simple,extended,prepared")
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True,
                            check=False).stdout.strip()
    print(f"commit {commit}, PgBouncer {'.'.join(map(str, pgbouncer_version()))}, {os.cpu_count()} cores, "
          f"{options.rounds} rounds of {options.seconds} s\n")
    print("| case | proxy, µs per transaction | PgBouncer, µs per transaction | ratio |\n|---|---|---|---|")
    pools_prepared = pgbouncer_version() >= (1, 21)
    with Shards(3, fsync=False) as shards, Place(shards, "bench") as place, \
            Proxy(shards, place.dbname, proxy={"workers": 1}, pool={"size": 10}) as proxy:
        fill(place, proxy)
        for protocol in options.protocols.split(","):
            for clients in map(int, options.clients.split(",")):
                session = protocol == "prepared" and not pools_prepared
                target = shards[0].conninfo(place.dbname)
                with PgBouncer(target, "session" if session else "transaction", clients if session else 10) as bouncer:
                    # plain: an unregistered table, passed to the journal shard; keyed: over three shards.
                    figures = {"plain": [], "keyed": [], "bouncer": []}
                    for _ in range(options.rounds):
                        figures["plain"].append(measure(proxy, protocol, clients, options.seconds, "plain_accounts")[0])
                        figures["bouncer"].append(measure(bouncer, protocol, clients, options.seconds, "plain_accounts")[0])
                        figures["keyed"].append(measure(proxy, protocol, clients, options.seconds, "pgbench_accounts")[0])
                    note = " (session)" if session else ""
                    for kind in ("plain", "keyed"):
                        print(row(f"{protocol}, {clients} clients, {kind}", figures[kind], figures["bouncer"], note),
                              flush=True)


if __name__ == "__main__":
    sys.exit(main())
