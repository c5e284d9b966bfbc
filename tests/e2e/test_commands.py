"""`collegedb check`, `init`, `--version`, faults of the configuration, SIGHUP."""

import re
import shutil
import subprocess

import psycopg2
import pytest

import world
from proxy import Proxy, binary

USERS = """
[[users]]
name = "ann"
password = "one"
[[users]]
name = "postgres"
password = "boss"
"""


def run(*arguments):
    return subprocess.run([binary(), *arguments], check=False, capture_output=True, text=True, timeout=60)


def test_version():
    assert re.fullmatch(r"collegedb \d+\.\d+\.\d+\n", run("--version").stdout)


def test_all_faults_of_a_file_are_told_with_their_lines(tmp_path):
    path = tmp_path / "collegedb.toml"
    path.write_text('[proxy]\nworkrs = 1\n[auth]\nmethod = "trust"\n[pool]\nsize = 0\n[journal]\nshard = "x"\n'
                    '[[shards]]\nname = "a"\nconninfo = "host=127.0.0.1"\n')
    for command in ("serve", "check", "init"):
        done = run(command, "--config", str(path))
        said = (done.stdout + done.stderr).splitlines()
        assert done.returncode == 1
        assert said[0] == f'{path}:2: proxy.workrs: unknown key; did you mean "workers"?'
        assert said[1].startswith(f"{path}:6: pool.size: ")
        assert said[2].startswith(f"{path}:8: journal.shard: INVALID_JOURNAL_SHARD: ")
        assert len(said) == 3


@pytest.fixture(name="fresh")
def _fresh(shards):
    with world.Place(shards, "test_commands_fresh") as made:
        yield made


def test_check_and_init(fresh):
    proxy = Proxy(fresh.shards, fresh.dbname)
    try:
        done = run("check", "--config", proxy.config_path)
        assert done.returncode == 0, done.stdout
        assert run("init", "--config", proxy.config_path).returncode == 0
        assert run("init", "--config", proxy.config_path).returncode == 0, "init can be repeated"
        assert fresh.on(0, "SELECT count(*) FROM collegedb.manifest") == [(1,)]
        assert run("check", "--config", proxy.config_path).returncode == 0
    finally:
        shutil.rmtree(proxy.directory)


def test_check_names_the_shard_that_does_not_answer(fresh):
    class Nowhere:
        name = "db-gone"

        @staticmethod
        def conninfo(dbname):
            return f"host=127.0.0.1 port=1 dbname={dbname}"

    proxy = Proxy([*fresh.shards, Nowhere], fresh.dbname)
    try:
        done = run("check", "--config", proxy.config_path)
        assert done.returncode == 1
        assert re.search(r"^error: db-gone: ", done.stdout, re.M), done.stdout
    finally:
        shutil.rmtree(proxy.directory)


def test_sighup_changes_users_and_keeps_the_old_ones_on_a_fault(place):
    with Proxy(place.shards, place.dbname, users=USERS, auth={"method": "scram-sha-256"}) as proxy:
        def can_log_in(password):
            try:
                proxy.query("SELECT 1", user="ann", password=password)
                return True
            except psycopg2.OperationalError as refused:
                assert "password authentication failed" in str(refused)
                return False

        def reload_and_wait_for(text, users):
            seen = proxy.log().count(text)
            proxy._write("users.toml", users, 0o600)
            proxy.reload()
            world.wait_until(lambda: proxy.log().count(text) > seen, 10, text)

        assert can_log_in("one") and not can_log_in("two")
        client = proxy.connect(user="ann", password="one")
        reload_and_wait_for("reloaded users", USERS.replace('"one"', '"two"'))
        assert can_log_in("two") and not can_log_in("one")
        with client.cursor() as cursor:  # who was in stays in
            cursor.execute("SELECT 1")
        client.close()
        reload_and_wait_for("the old configuration stays", '[[users]]\nnme = "ann"\npassword = ""\n')
        assert "users.toml line 2: users[0].nme: unknown key" in proxy.log()
        assert can_log_in("two")
