"""psql: its backslash commands, and the README's tour word for word."""

import os
import re
import select
import signal
import subprocess
import time

import pytest

from cluster import free_port
from proxy import REPOSITORY, binary, is_sanitized


@pytest.fixture(scope="module")
def filled(pair):
    pair[0].query("INSERT INTO items VALUES ('a', 1)")
    return pair[0]


@pytest.mark.parametrize("command, wanted", [
    (r"\d", ["items"]), (r"\dt", ["items"]), (r"\d items", ["id", "text", "items_pkey"]), (r"\d+ items", ["items_pkey"]),
    (r"\dn", ["public", "collegedb"]), (r"\du", ["postgres"]), (r"\l", ["postgres"]), (r"\di", ["items_pkey"]),
    (r"\df collegedb_*", ["collegedb_reassign", "collegedb_locate", "collegedb_migration_status", "collegedb_recover",
                          "collegedb_shard_table"]),
    (r"\df collegedb_reassign", ["collegedb_reassign", "retire_after"]),
    (r"\conninfo", ["connected to database"]), (r"\dt collegedb.*", ["moves", "tables", "retired"]),
])
def test_backslash_commands(filled, command, wanted):
    done = filled.psql("-c", command)
    assert done.returncode == 0 and not done.stderr, done
    for word in wanted:
        assert word in done.stdout, done.stdout


def test_a_script_over_standard_input(filled):
    done = filled.psql("-v", "ON_ERROR_STOP=1", "-At", stdin="BEGIN;\nUPDATE items SET v = 2 WHERE id = 'a';\n"
                       "SELECT v FROM items WHERE id = 'a';\nROLLBACK;\nSELECT v FROM items WHERE id = 'a';\n"
                       "\\timing off\n\\set x a\nSELECT v FROM items WHERE id = :'x' \\gset\n\\echo :v\n")
    assert done.returncode == 0, done
    assert done.stdout.split() == ["BEGIN", "UPDATE", "1", "2", "ROLLBACK", "1", "Timing", "is", "off.", "1"]


def test_errors_look_like_postgresql(filled):
    done = filled.psql("-v", "VERBOSITY=verbose", "-c", "SELECT * FORM items")
    assert done.returncode == 1 and "42601" in done.stderr and "LINE 1:" in done.stderr, done
    done = filled.psql("-c", "INSERT INTO items VALUES ('a', 1)")
    assert 'duplicate key value violates unique constraint "items_pkey"' in done.stderr


def test_no_color_without_unix_socket(filled):
    done = filled.psql("-At", "-c", "SELECT 1; SELECT 2")
    assert done.stdout.split() == ["1", "2"]


class Demo:
    """`collegedb demo` until it says ready."""

    def __init__(self, folder):
        self.port, metrics = free_port(), free_port()
        self.process = subprocess.Popen(
            [binary(), "demo", "--dir", str(folder), "--port", str(self.port), "--metrics-port", str(metrics)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd=REPOSITORY)
        self.output = b""
        deadline = time.monotonic() + (240 if is_sanitized() else 60)
        while b"ready" not in self.output:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.5)
            more = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            self.output += more
            if (readable and not more) or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the demo is not ready:\n{self.output.decode()}")
        time.sleep(0.3)
        readable, _, _ = select.select([self.process.stdout], [], [], 1)
        if readable:
            self.output += os.read(self.process.stdout.fileno(), 65536)

    def dsn(self):
        found = re.search(r"postgres(?:ql)?://\S+|psql\s+\"([^\"]+)\"", self.output.decode())
        assert found, self.output.decode()
        return found.group(1) or found.group(0).rstrip("'\"")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "data"
    for parent in folder.parents[:4]:
        try:
            os.chmod(parent, 0o755)
        except OSError:
            break
    running = Demo(folder)
    yield running
    code = running.stop()
    assert code == 0, running.output.decode()
    assert not folder.exists(), "Ctrl-C leaves files behind"


def readme():
    with open(os.path.join(REPOSITORY, "README.md"), encoding="utf-8") as text:
        return text.read()


def tour():
    """The lines of the README's ```sql block."""
    blocks = re.findall(r"```sql\n(.*?)```", readme(), re.S)
    assert len(blocks) == 1
    return blocks[0].splitlines()


@pytest.mark.deadline(150)
def test_the_readme_tour_word_for_word(demo):
    """Every line works; the last one is refused with a hint, as the README says."""
    lines = tour()
    assert len(lines) == 10
    outputs = []
    for number, line in enumerate(lines, 1):
        done = subprocess.run(["psql", "-X", demo.dsn()], input=line + "\n", text=True, capture_output=True, check=False,
                              timeout=60)
        refused = "ERROR" in done.stderr
        assert refused == (number == len(lines)), f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip() or refused, line
        outputs.append(done.stdout)
    assert "KEY_REQUIRED" in done.stderr and "HINT:" in done.stderr, done.stderr
    moved = [n for n, line in enumerate(lines) if "collegedb_reassign" in line][0]
    assert "db-west" in outputs[moved + 1], "collegedb_locate after the move"
    # All of it again in one session, as somebody types it.
    whole = subprocess.run(["psql", "-X", demo.dsn()], text=True, capture_output=True, check=False, timeout=60,
                           input="\n".join(line for line in lines if "INSERT" not in line))
    assert whole.stderr.count("ERROR") == 1, whole.stderr


def test_the_demo_prints_a_dsn_and_a_move(demo):
    output = demo.output.decode()
    assert "ready" in output and "psql" in output and "collegedb_reassign" in output
    shown = re.search(r"psql (postgresql://\S+)", readme()).group(1)
    assert demo.dsn() == shown.replace(":6432/", f":{demo.port}/")
