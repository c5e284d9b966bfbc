"""A database of the same name on every shard, and what tests ask of all shards together."""

import contextlib
import os
import re
import time

import psycopg2

LEFTOVERS = """
SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT format('advisory lock %s %s %s of %s: %s', l.classid, l.objid, l.mode, a.application_name, a.query)
  FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL
SELECT format('open transaction of %s (%s): %s', application_name, state, query) FROM pg_stat_activity
 WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND application_name <> 'test-direct'
UNION ALL
SELECT 'replication slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
"""


class Place:
    """Databases `dbname` on all shards; direct() reaches them without a proxy."""

    def __init__(self, shards, dbname):
        self.shards = list(shards)
        self.dbname = re.sub(r"[^a-z0-9_]", "_", dbname.lower())
        self.names = [cluster.name for cluster in self.shards]

    def __enter__(self):
        for cluster in self.shards:
            cluster.psql(f'DROP DATABASE IF EXISTS {self.dbname} WITH (FORCE)')
            cluster.psql(f'CREATE DATABASE {self.dbname}')
        return self

    def __exit__(self, *_):
        for cluster in self.shards:
            if cluster.process is None:
                continue
            for gid in cluster.psql("SELECT gid FROM pg_prepared_xacts WHERE database = "
                                    f"'{self.dbname}'").splitlines():
                cluster.psql(f"ROLLBACK PREPARED '{gid}'", self.dbname, check=False)
            cluster.psql(f'DROP DATABASE IF EXISTS {self.dbname} WITH (FORCE)', check=False)

    def cluster(self, name):
        return self.shards[self.names.index(name)]

    @contextlib.contextmanager
    def direct(self, name, autocommit=True):
        """A psycopg2 connection straight to one shard (by name or number)."""
        cluster = self.shards[name] if isinstance(name, int) else self.cluster(name)
        connection = psycopg2.connect(cluster.conninfo(self.dbname), connect_timeout=10,
                                      application_name="test-direct")
        connection.autocommit = autocommit
        try:
            yield connection
        finally:
            connection.close()

    def on(self, name, sql, arguments=None):
        """Rows (or the row count) of one statement straight on one shard."""
        with self.direct(name) as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return cursor.fetchall() if cursor.description else cursor.rowcount

    def everywhere(self, sql, arguments=None):
        """{shard name: rows} straight from each shard."""
        return {name: self.on(name, sql, arguments) for name in self.names}

    def holders(self, table, key_column, key):
        """Names of the shards on which rows of the key are."""
        return [name for name, rows in self.everywhere(
            f"SELECT count(*) FROM {table} WHERE {key_column} = %s", (key,)).items() if rows[0][0]]

    def leftovers(self):
        """What a healthy system at rest does not have, as text lines."""
        found = []
        for name in self.names:
            with self.direct(name) as connection, connection.cursor() as cursor:
                cursor.execute(LEFTOVERS)
                found += [f"{name}: {line}" for (line,) in cursor.fetchall()]
        return found

    def assert_at_rest(self, patience=5):
        """No prepared transaction, advisory lock, open transaction or slot; background work of the
        proxies may need a moment to end."""
        deadline = time.monotonic() + patience
        while True:
            found = self.leftovers()
            if not found:
                return
            if time.monotonic() > deadline:
                raise AssertionError("left behind:\n" + "\n".join(found))
            time.sleep(0.1)


def wait_until(condition, seconds=10, what="condition", step=0.02):
    """Returns the first true value of condition(), which may not take longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} not reached within {seconds} s")
        time.sleep(step)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


class Keys:
    """Fresh keys whose computed owner is known: keys.on("db-west")."""

    def __init__(self, place):
        self.place = place
        self.count = 0

    def on(self, shard):
        while True:
            self.count += 1
            key = f"user-{self.count}"
            owner = self.place.on(0, "SELECT collegedb.owner(%s, %s)", (self.place.names, key))[0][0]
            if owner == shard:
                return key


def attempt(action):
    """(SQLSTATE or None, result or error) of something that may fail in the database."""
    try:
        return None, action()
    except Exception as error:  # pylint: disable=broad-except  # sorted out on the next lines
        state = getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)
        if state is None:
            raise
        return state, error


def attempt_lost(action):
    """attempt() of something whose connection may break: then ("lost", error)."""
    try:
        return attempt(action)
    except psycopg2.OperationalError as error:
        return "lost", error


def local_ports(pid):
    """TCP ports on this side of a process's connections."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[9] in inodes]
