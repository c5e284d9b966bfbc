"""`collegedb demo` and the tour of the README, word for word."""

import os
import re
import signal
import subprocess
import time
import urllib.request

import pytest

from cluster import free_port
from proxy import REPOSITORY, binary

START = 120


class Demo:
    def __init__(self, directory, *options):
        self.directory = str(directory)
        self.port = free_port()
        self.metrics_port = free_port()
        self.process = subprocess.Popen(
            [binary(), "demo", "--dir", self.directory, "--port", str(self.port), "--metrics-port",
             str(self.metrics_port), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = []

    def wait_ready(self):
        """Reads standard output up to the last line of what a started demo prints."""
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("stop:"):
                return self
        raise AssertionError(f"the demo ended: {self.process.stderr.read()}")

    @property
    def dsn(self):
        return f"postgresql://postgres@127.0.0.1:{self.port}/app"

    def psql(self, text):
        return subprocess.run(["psql", "-X", "-A", "-t", self.dsn], input=text, check=False,
                              capture_output=True, text=True, timeout=60)

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(60)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture(name="demos")
def _demos():
    started = []
    yield lambda *arguments: started.append(Demo(*arguments)) or started[-1]
    for demo in started:
        demo.stop()


def servers_in(directory):
    """Processes of PostgreSQL whose data is there."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as line:
                if "postgres" in (text := line.read()) and str(directory) in text:
                    found.append(int(entry))
        except OSError:
            continue
    return found


def tour():
    """Statements of the README's first SQL block."""
    with open(os.path.join(REPOSITORY, "README.md"), encoding="utf-8") as readme:
        return re.search(r"```sql\n(.*?)```", readme.read(), re.S).group(1).splitlines()


@pytest.fixture(name="place_for_demo")
def _place_for_demo(tmp_path):
    # Servers that run as user postgres must get there.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        os.chmod(folder, 0o755)
    return tmp_path / "demo"


@pytest.mark.deadline(START + 120)
def test_the_tour_of_the_readme(demos, place_for_demo):
    demo = demos(place_for_demo).wait_ready()
    assert demo.said[:2] == ["ready", demo.dsn]
    with urllib.request.urlopen(f"http://127.0.0.1:{demo.metrics_port}/readyz", timeout=10) as page:
        assert page.status == 200

    lines = tour()
    assert len(lines) == 10
    answers = [demo.psql(line) for line in lines]
    for line, answer in zip(lines[:-1], answers):
        assert answer.returncode == 0 and answer.stderr == "", (line, answer.stderr)
    said = [answer.stdout.strip() for answer in answers]
    assert said[0] == "Barbara|1230"
    assert said[1].startswith("db-east|computed|")
    assert said[2] == "600"
    assert sorted(said[3].splitlines()) == ["Barbara|notebook", "Barbara|pencil"]
    assert re.match(r"[0-9a-f-]{36}\|user-123\|db-east\|db-west\|(published|retired)\|2\|3\|", said[4])
    assert said[5].startswith("db-west|exception|")
    assert said[6] == "UPDATE 1"
    assert said[7].splitlines() == ["BEGIN", "INSERT 0 1", "COMMIT"]
    assert said[8].split("|")[4] in ("published", "retired")
    assert "ERROR:  KEY_REQUIRED: " in answers[9].stderr and "HINT:  " in answers[9].stderr

    printed = next(line for line in demo.said if line.startswith("move:")).removeprefix("move:").strip()
    assert printed == lines[4]
    demo.stop()
    assert demo.process.returncode == 0
    assert not place_for_demo.exists()
    assert servers_in(place_for_demo) == []


@pytest.mark.deadline(2 * START)
def test_what_a_killed_demo_left_is_cleared(demos, place_for_demo):
    killed = demos(place_for_demo, "--shards", "1").wait_ready()
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    assert servers_in(place_for_demo) != []
    again = demos(place_for_demo, "--shards", "1").wait_ready()
    assert again.psql("SELECT count(*) FROM users").stdout.strip() == "300"
    again.stop(signal.SIGTERM)
    assert servers_in(place_for_demo) == []


@pytest.mark.deadline(START + 60)
def test_refusals_say_what_to_do(demos, place_for_demo):
    running = demos(place_for_demo, "--shards", "1").wait_ready()

    def refused(*options):
        done = subprocess.run([binary(), "demo", *options], check=False, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr

    other = str(place_for_demo.parent / "other")
    free = str(free_port())
    assert "choose another with --port" in refused("--dir", other, "--port", str(running.port))
    assert "choose another with --metrics-port" in refused("--dir", other, "--port", free,
                                                           "--metrics-port", str(running.metrics_port))
    assert "a demo runs in" in refused("--dir", str(place_for_demo), "--port", free,
                                       "--metrics-port", str(free_port()))
    os.mkdir(other)
    (place_for_demo.parent / "other" / "mine").write_text("not yours")
    assert "is not the folder of a demo" in refused("--dir", other, "--port", free,
                                                    "--metrics-port", str(free_port()))
    assert (place_for_demo.parent / "other" / "mine").exists()


@pytest.mark.deadline(START)
def test_an_interrupted_start_leaves_nothing(demos, place_for_demo):
    demo = demos(place_for_demo)
    deadline = time.monotonic() + 60
    while not servers_in(place_for_demo) and time.monotonic() < deadline:
        time.sleep(0.05)
    demo.stop(signal.SIGTERM)
    assert demo.process.returncode == 0
    assert not place_for_demo.exists()
    assert servers_in(place_for_demo) == []
