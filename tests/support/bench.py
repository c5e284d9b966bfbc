"""pgbench as a library: runs, its own latency log, its figures."""

import glob
import os
import re
import subprocess
import tempfile


class Pgbench:
    """Result of one run."""

    def __init__(self, done, latencies):
        self.output = done.stdout + done.stderr
        self.returncode = done.returncode
        self.latencies = latencies  # seconds, one per transaction (only with log=True)

    def _number(self, pattern):
        found = re.search(pattern, self.output)
        assert found, self.output
        return float(found.group(1))

    @property
    def transactions(self):
        return int(self._number(r"number of transactions actually processed: (\d+)"))

    @property
    def tps(self):
        return self._number(r"tps = ([\d.]+) \(without initial connection time\)")

    def assert_clean(self, expected=None):
        assert self.returncode == 0, self.output
        assert "aborted" not in self.output and "ERROR" not in self.output, self.output
        assert re.search(r"number of failed transactions: 0 ", self.output), self.output
        if expected is not None:
            assert self.transactions == expected, self.output


def environment(conninfo):
    words = dict(part.split("=", 1) for part in conninfo.split())
    return {**os.environ, "PGHOST": words["host"], "PGPORT": words["port"], "PGUSER": words["user"],
            "PGDATABASE": words["dbname"], "PGOPTIONS": ""}


def pgbench(conninfo, *arguments, script=None, clients=8, jobs=2, seconds=None, transactions=None,
            protocol="simple", log=False, timeout=300):
    """`script`: SQL text; else the built-in selected by `arguments`. `jobs` is pgbench's threads: it
    prepares a statement with a call that blocks its thread, so clients of one thread that hold
    server connections in a transaction can starve it of the one it waits for."""
    with tempfile.TemporaryDirectory(prefix="collegedb-pgbench-") as folder:
        command = ["pgbench", "-n", "-M", protocol, "-c", str(clients), "-j", str(min(jobs, clients)), *arguments]
        command += ["-T", str(seconds)] if seconds else ["-t", str(transactions)]
        if script is not None:
            path = os.path.join(folder, "script.sql")
            with open(path, "w", encoding="utf-8") as out:
                out.write(script)
            command += ["-f", path]
        if log:
            command += ["--log", f"--log-prefix={folder}/log"]
        done = subprocess.run(command, env=environment(conninfo), capture_output=True, text=True, check=False,
                              timeout=timeout)
        latencies = []
        for path in glob.glob(f"{folder}/log.*"):
            with open(path, encoding="ascii") as lines:
                latencies += [int(line.split()[2]) / 1e6 for line in lines if line.split()[2].isdigit()]
        return Pgbench(done, latencies)
