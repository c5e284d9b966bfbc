"""A proxy process under test: configuration, life cycle, log, metrics, sanitizer reports."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import psycopg2

from cluster import dies_with_parent, free_port, give_back_port

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SANITIZER_REPORT = re.compile(
    r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|MemorySanitizer|runtime error:|Assertion .* failed")


def binary_path():
    return os.path.join(REPOSITORY, os.environ.get("COLLEGEDB_BIN", "build/release/collegedb"))


def binary():
    """The program under test: COLLEGEDB_BIN, else the release build."""
    path = binary_path()
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"no program at {path}: build it, or set COLLEGEDB_BIN")
    return path


def is_sanitized():
    """True when the program is an ASan or TSan build: everything takes several times longer."""
    return bool(re.search(r"asan|tsan|ubsan", binary_path()))


def has_failpoints():
    """True for a program whose fail points can be armed, as its build folder says."""
    try:
        with open(os.path.join(os.path.dirname(binary_path()), "CMakeCache.txt"), encoding="utf-8") as cache:
            return "COLLEGEDB_FAILPOINTS:BOOL=ON" in cache.read()
    except FileNotFoundError:
        return False


def toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(v)}" for key, v in value.items()) + " }"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def toml(sections, shards, tables=(), reference_tables=()):
    """Text of a configuration. sections: {"pool": {"size": 3}}; shards: [(name, conninfo)];
    tables: [(name, key)] or [(name, key, colocate_with)]."""
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in values.items()]
    for name, conninfo in shards:
        lines += ["[[shards]]", f"name = {toml_value(name)}", f"conninfo = {toml_value(conninfo)}"]
    for name, key, *group in tables:
        lines += ["[[tables]]", f"name = {toml_value(name)}", f"key = {toml_value(key)}"]
        lines += [f"colocate_with = {toml_value(g)}" for g in group]
    for name in reference_tables:
        lines += ["[[reference_tables]]", f"name = {toml_value(name)}"]
    return "\n".join(lines) + "\n"


def thread_states(pid):
    """The state letter of each thread of a process (proc(5), stat)."""
    states = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii", errors="replace") as stat:
            states.append(stat.read().rpartition(")")[2].split()[0])
    return states


class ProxyDied(AssertionError):
    """The proxy ended by itself, or a sanitizer spoke."""


class Proxy:
    """One `collegedb serve`. Start and stop may alternate; the ports stay the same."""

    def __init__(self, shards, dbname="postgres", *, name="proxy", tables=(), reference_tables=(),
                 unix=False, users=None, tls=None, failpoints="", **sections):
        """shards: clusters. sections override the defaults below, e.g. pool={"size": 2}.
        failpoints: armed at the next start; see migration/failpoint.h."""
        self.name = name
        self.failpoints = failpoints
        self.directory = tempfile.mkdtemp(prefix=f"collegedb-{name}-")
        os.chmod(self.directory, 0o755)
        self.port = free_port()
        self.metrics_port = free_port()
        self.log_path = os.path.join(self.directory, "log")
        self.config_path = os.path.join(self.directory, "collegedb.toml")
        self.shards = list(shards)
        self.process = None
        self.frozen = False
        listen = [f"127.0.0.1:{self.port}"]
        if unix:
            listen.append(self.directory)
        settings = {
            "proxy": {"listen": listen, "database": "app", "workers": 2, "drain_timeout": "2s"},
            "auth": {"method": "trust", "admin_users": ["postgres"]},
            "pool": {"size": 10},
            "journal": {"shard": self.shards[0].name, "recovery_interval": "1s"},
            "metrics": {"listen": f"127.0.0.1:{self.metrics_port}"},
        }
        if users is not None:
            settings["auth"]["users_file"] = "users.toml"
            self._write("users.toml", users, 0o600)
        if tls is not None:
            settings["tls"] = dict(tls)
        for section, values in sections.items():
            settings.setdefault(section, {}).update(values)
        self._write("collegedb.toml",
                    toml(settings, [(c.name, c.conninfo(dbname)) for c in self.shards], tables,
                         reference_tables))

    def _write(self, name, text, mode=0o644):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, mode)

    # --- addresses

    def conninfo(self, user="postgres", unix=False, dbname="app", **extra):
        host = self.directory if unix else "127.0.0.1"
        more = "".join(f" {key}={value}" for key, value in extra.items())
        return f"host={host} port={self.port} user={user} dbname={dbname}{more}"

    def connect(self, autocommit=True, **extra):
        """A psycopg2 connection."""
        connection = psycopg2.connect(self.conninfo(**extra), connect_timeout=15)
        connection.autocommit = autocommit
        return connection

    def query(self, sql, arguments=None, **extra):
        """Rows of one autocommit statement over a new connection."""
        connection = self.connect(**extra)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, arguments)
                return cursor.fetchall() if cursor.description else cursor.rowcount
        finally:
            connection.close()

    def psql(self, *arguments, unix=False, timeout=60, stdin=None):
        return subprocess.run(["psql", "-X", "-d", self.conninfo(unix=unix), *arguments], check=False,
                              capture_output=True, text=True, timeout=timeout, input=stdin)

    # --- life

    def start(self, wait=True, timeout=60):
        environment = dict(os.environ)
        environment.setdefault("ASAN_OPTIONS", "abort_on_error=0:detect_leaks=1")
        environment.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
        if self.failpoints:
            environment["COLLEGEDB_FAILPOINTS"] = self.failpoints
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", "--config", self.config_path], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=environment, start_new_session=True,
                preexec_fn=dies_with_parent(signal.SIGKILL))
        self.frozen = False
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            self.assert_alive()
            if self.http("/readyz")[0] == 200:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} not ready after {timeout} s:\n{self.log()[-4000:]}")
            time.sleep(0.05)

    def assert_alive(self):
        if self.process is None or self.process.poll() is not None:
            code = self.process.returncode if self.process else None
            raise ProxyDied(f"{self.name} ended with {code}:\n{self.log()[-4000:]}")

    def stop(self, timeout=30):
        """SIGTERM; it must end by itself with status 0."""
        if self.process is None:
            return
        self.thaw()
        process, self.process = self.process, None
        died = process.poll()
        if died is not None:
            raise ProxyDied(f"{self.name} ended with {died}:\n{self.log()[-4000:]}")
        process.terminate()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ProxyDied(f"{self.name} did not end {timeout} s after SIGTERM:\n"
                            f"{self.log()[-4000:]}") from None
        if code != 0:
            raise ProxyDied(f"{self.name} ended with {code} after SIGTERM:\n{self.log()[-4000:]}")

    def kill9(self):
        """kill -9, dead when this returns."""
        process, self.process = self.process, None
        process.kill()
        process.wait()

    def freeze(self):
        """Returns when every thread stands still: the signal alone comes to them one after another."""
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True
        until = time.monotonic() + 10
        while not all(state == "T" for state in thread_states(self.process.pid)):
            assert time.monotonic() < until, f"{self.name} does not stop"
            time.sleep(0.001)

    def thaw(self):
        if self.frozen and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def close(self):
        """Stops, removes the files, fails on a sanitizer report."""
        try:
            self.stop(timeout=90 if is_sanitized() else 30)
            self.check_sanitizers()
        finally:
            if self.process is not None:
                self.kill9()
            keep = os.environ.get("COLLEGEDB_KEEP_LOGS")
            if keep and os.path.exists(self.log_path):  # not when it was never started
                os.makedirs(keep, exist_ok=True)
                shutil.copy(self.log_path, os.path.join(keep, os.path.basename(self.directory) + ".log"))
            shutil.rmtree(self.directory, ignore_errors=True)
            give_back_port(self.port)
            give_back_port(self.metrics_port)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                self.process = None
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def __exit__(self, *_):
        self.close()

    # --- what it says

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def check_sanitizers(self):
        found = SANITIZER_REPORT.search(self.log())
        if found:
            raise ProxyDied(f"{self.name}: {self.log()[max(0, found.start() - 500):][:6000]}")

    def http(self, path):
        """(status, text) of a page of the metrics port; status 0 when nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=10) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self):
        """{name: {(("label", "value"), ...): number}} as scraped now."""
        status, text = self.http("/metrics")
        if status != 200:
            raise RuntimeError(f"/metrics answers {status}")
        return parse_metrics(text)

    def metric(self, name, **labels):
        """Sum over the samples of `name` that carry these labels."""
        wanted = set(labels.items())
        return sum(value for key, value in self.metrics().get(name, {}).items() if wanted <= set(key))

    def cpu_seconds(self):
        """User and system time of the process so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text):
    """Strict reading of the text format: a line that is neither a comment nor a sample is a fault."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        if not match:
            raise ValueError(f"not a sample: {line!r}")
        labels = tuple(sorted(LABEL.findall(match.group(2) or "")))
        found.setdefault(match.group(1), {})[labels] = float(match.group(3))
    return found
