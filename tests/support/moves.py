"""Moving keys through the admin functions, and what must hold afterwards."""

import contextlib
import random
import threading
import time

import psycopg2

import load


def shard_counters(proxy, place, keys=load.KEYS):
    """Makes, registers and fills table counters with zeroes."""
    for name in place.names:
        place.on(name, "CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL)")
    proxy.query("SELECT * FROM collegedb_shard_table('counters', 'id')")
    with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
        for number in range(keys):
            cursor.execute("INSERT INTO counters VALUES (%s, 0)", (load.key_name(number),))
            assert cursor.rowcount == 1


def locate(proxy, key, table="counters"):
    return proxy.query("SELECT shard, via FROM collegedb_locate(%s, %s)", (key, table))[0]


REASSIGN = 'SELECT op, source, destination, state, copies, write_stall_ms FROM collegedb_reassign(%s, %s, %s)'


class Mover(threading.Thread):
    """Moves random keys from where they are to another shard, and some of them back, until stop()."""

    def __init__(self, proxies, place, seed, keys=load.KEYS, rest=0.0, share=(0, 1)):
        """share: (i, n): only every n-th key from i on, so that several movers do not meet."""
        super().__init__(daemon=True)
        self.share = share
        self.proxies, self.place, self.rest = proxies, place, rest
        self.random = random.Random(seed)
        self.keys = keys
        self.moves = []       # (key, source, destination, stall in ms)
        self.failures = []    # texts
        self.current = None   # (key, destination) while one is under way
        self.stopping = threading.Event()

    def run(self):
        turn = 0
        connection = None
        while not self.stopping.is_set():
            turn += 1
            if self.moves and self.random.random() < 0.4:  # back again
                key, destination = self.moves[-1][0], self.moves[-1][1]
            else:
                first, step = self.share
                key = load.key_name(self.random.randrange(first, self.keys, step))
                destination = self.random.choice(self.place.names)
            try:
                if connection is None or turn % 20 == 0:
                    if connection is not None:
                        connection.close()
                    connection = self.proxies[turn // 20 % len(self.proxies)].connect()
                self.current = (key, destination)
                with connection.cursor() as cursor:
                    cursor.execute(REASSIGN, (key, destination, "counters"))
                    _, source, reached, state, _, stall = cursor.fetchone()
                if source != destination:
                    self.moves.append((key, source, reached, float(stall or 0)))
                    if reached != destination or state not in ("published", "retired"):
                        self.failures.append(f"{key} to {destination}: {state} at {reached}")
            except psycopg2.Error as error:
                self.failures.append(f"{key} to {destination}: {error.pgcode} {str(error).strip()}")
                if connection is None or connection.closed:
                    connection = None
                    time.sleep(0.05)
            self.current = None
            time.sleep(self.rest)
        if connection is not None:
            connection.close()

    def stop(self, patience=60):
        self.stopping.set()
        self.join(patience)
        assert not self.is_alive(), f"the mover hangs at {self.current}"


def assert_locate_agrees(proxies, place, keys, table="counters"):
    """collegedb_locate names the shard that holds the rows, at every proxy."""
    where = {}
    for name, rows in place.everywhere(f"SELECT id FROM {table}").items():
        for (key,) in rows:
            where[key] = name
    for proxy in proxies:
        with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
            wrong = []
            for key in keys:
                cursor.execute("SELECT shard FROM collegedb_locate(%s, %s)", (key, table))
                said = cursor.fetchone()[0]
                if said != where[key]:
                    wrong.append(f"{key} is on {where[key]}, located at {said}")
            assert not wrong, wrong
        connection.close()


def assert_moves_settled(place):
    """No operation under way, no claim, no key both alive and retired on one shard."""
    journal = place.names[0]
    open_moves = place.on(journal, "SELECT op, state, error FROM collegedb.moves "
                                   "WHERE state NOT IN ('retired', 'published', 'aborted')")
    assert open_moves == []
    for name in place.names:
        assert place.on(name, "SELECT key, op FROM collegedb.incoming") == []
        ghosts = place.on(name, "SELECT r.key FROM collegedb.retired r JOIN counters c ON c.id = r.key "
                                "WHERE r.grp IS NOT NULL")
        assert ghosts == [], f"{name}: live rows of keys that have left it"
