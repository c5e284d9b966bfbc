#!/usr/bin/python3
"""Throw-away PostgreSQL clusters for the tests.

As a library:

    with Shards(3) as shards:            # or: cluster = Cluster("a"); cluster.start()
        shards[0].psql("SELECT 1")

As a command, which runs another one with the clusters around it:

    cluster.py run --shards 3 [--port P] [--no-fsync] -- command ...

The command finds the conninfos, separated by semicolons, in COLLEGEDB_TEST_SHARDS. Everything is
stopped and removed afterwards, also when this program is told to stop by a signal.
"""

import argparse
import atexit
import ctypes
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_prepared_transactions": "64",
    "deadlock_timeout": "1s",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "shared_buffers": "32MB",
    "log_line_prefix": "%m [%p] %a ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def bin_dir():
    """Folder of initdb and postgres: PATH first, then Debian's newest version."""
    for name in ("initdb",):
        found = shutil.which(name)
        if found and os.path.exists(os.path.join(os.path.dirname(os.path.realpath(found)), "postgres")):
            return os.path.dirname(os.path.realpath(found))
    candidates = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if not candidates:
        raise RuntimeError("no PostgreSQL server programs found")
    newest = max(candidates, key=lambda p: int(p.split("/")[4].split(".")[0]))
    return os.path.dirname(newest)


_handed_out = set()


def give_back_port(port):
    _handed_out.discard(port)


def _candidates():
    first, _, last = os.environ.get("COLLEGEDB_TEST_PORTS", "").partition("-")
    if last:
        return range(int(first), int(last) + 1)
    # Below the range from which the system gives ports to outgoing connections.
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
        end = min(int(limits.read().split()[0]), 32768)
    return random.SystemRandom().sample(range(end // 2, end), 200)


def free_port():
    """A port nobody listens on: of the range in COLLEGEDB_TEST_PORTS ("first-last"), else any."""
    for candidate in _candidates():
        if candidate in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
        _handed_out.add(candidate)
        return candidate
    raise RuntimeError("no free port left")


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def dies_with_parent(number):
    """preexec_fn that sends the child a signal when this process dies, however it dies. Only from
    the main thread: the kernel means the thread that forked."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def _as_server_user():
    """Arguments of Popen that run a program as the owner of the data directories."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [],
            "env": {**os.environ, "HOME": user.pw_dir, "USER": "postgres", "LOGNAME": "postgres"}}


class Cluster:
    """One PostgreSQL server with its own data directory, superuser `postgres`, trust login."""

    def __init__(self, name="shard", port=None, fsync=True, settings=None, directory=None):
        self.name = name
        self.port = port or free_port()
        self.directory = directory or tempfile.mkdtemp(prefix=f"collegedb-{name}-")
        self.data = os.path.join(self.directory, "data")
        self.socket_dir = self.directory
        self.log_path = os.path.join(self.directory, "log")
        self.settings = {**SETTINGS, "fsync": "on" if fsync else "off", **(settings or {})}
        self.process = None
        self._bin = bin_dir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        os.chmod(self.directory, 0o755)

    def conninfo(self, dbname="postgres", unix=False):
        host = self.socket_dir if unix else "127.0.0.1"
        return f"host={host} port={self.port} user=postgres dbname={dbname}"

    def init(self):
        subprocess.run(
            [os.path.join(self._bin, "initdb"), "--no-sync", "-D", self.data, "-U", "postgres",
             "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions"],
            check=True, stdout=subprocess.DEVNULL, cwd="/", **_as_server_user())
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            for key, value in self.settings.items():
                conf.write(f"{key} = '{value}'\n")
            conf.write(f"port = {self.port}\nunix_socket_directories = '{self.socket_dir}'\n")

    def start(self, timeout=60):
        """Starts the server (and makes it, the first time) and waits until it accepts a query."""
        if not os.path.exists(self.data):
            self.init()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self._bin, "postgres"), "-D", self.data],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True, preexec_fn=dies_with_parent(signal.SIGQUIT),
                **_as_server_user())
        self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} stopped while starting:\n{self.log()[-3000:]}")
            done = subprocess.run(
                [os.path.join(self._bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
                check=False)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} not ready after {timeout} s:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def stop(self, mode="fast", timeout=30):
        """Shuts down: fast (default), smart or immediate."""
        if self.process is None:
            return
        number = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill9()
        self.process = None

    def kill9(self):
        """kill -9 of the postmaster and of every server process, as a power failure would."""
        if self.process is None:
            return
        children = self._children()
        for pid in [self.process.pid, *children]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in children):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: server processes outlive kill -9")
            time.sleep(0.01)
        self.process = None

    def restart(self, mode="fast"):
        self.stop(mode)
        return self.start()

    def _children(self):
        """Processes whose parent is the postmaster."""
        parent = self.process.pid
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry))
        return found

    def remove(self):
        if self.process is not None:
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)
        give_back_port(self.port)

    def psql(self, sql, dbname="postgres", check=True, timeout=60):
        """Runs SQL by psql; returns its unaligned, tuples-only output without the last newline."""
        done = subprocess.run(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo(dbname), "-c", sql],
            check=False, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def __enter__(self):
        if self.process is None:
            self.start()
        return self

    def __exit__(self, *_):
        self.remove()


class Shards(list):
    """N clusters, started together; removes all of them at the end."""

    def __init__(self, count, port=None, fsync=True, settings=None, names=None):
        super().__init__()
        for i in range(count):
            self.append(Cluster(names[i] if names else f"shard{i + 1}",
                                port + i if port else None, fsync, settings))

    def start(self):
        try:
            for cluster in self:
                cluster.start()
        except BaseException:
            self.remove()
            raise
        return self

    def conninfos(self):
        return ";".join(cluster.conninfo() for cluster in self)

    def remove(self):
        for cluster in self:
            cluster.remove()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.remove()


def _run(options):
    shards = Shards(options.shards, options.port, not options.no_fsync)
    atexit.register(shards.remove)
    child = None

    def stop(number, _frame):
        if child is not None and child.poll() is None:
            child.send_signal(number)
        else:
            sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    shards.start()
    child = subprocess.Popen(options.command,
                             env={**os.environ, "COLLEGEDB_TEST_SHARDS": shards.conninfos()})
    code = child.wait()
    if code != 0 and options.logs:
        for cluster in shards:
            sys.stderr.write(f"--- {cluster.name}\n{cluster.log()[-4000:]}\n")
    return code if code >= 0 else 128 - code


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run a command with clusters around it")
    run.add_argument("--shards", type=int, default=3)
    run.add_argument("--port", type=int, help="first port (default: free ones)")
    run.add_argument("--no-fsync", action="store_true", help="faster, not for tests of durability")
    run.add_argument("--logs", action="store_true", help="print the servers' logs when the command fails")
    run.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    if not options.command:
        parser.error("no command given")
    return _run(options)


if __name__ == "__main__":
    sys.exit(main())
