"""Kills at random and at chosen moments, under load, and what must hold whatever was killed."""

import collections
import random
import threading
import time

import psycopg2

import load
import moves
from proxy import is_sanitized
from world import quantile, wait_until

RECOVERY_INTERVAL = 1.0
# What a client may see while something is being killed; None: the connection was lost.
EXPECTED = {None, "08007", "40003", "08006", "08001", "57P01", "57P02", "57P03", "40001"}
MOMENTS = ("prepared", "copied", "verified", "cutover_pending", "committed", "published",
           "one half prepared", "both halves prepared")


def flow_limit():
    """Seconds within which writes to every key must flow again."""
    return RECOVERY_INTERVAL + 2.0 * (4 if is_sanitized() else 1)


class Prober:
    """Writes to single keys until one is acknowledged; keeps books like any other client."""

    def __init__(self):
        self.books = load.Books("prober")

    def until_acknowledged(self, proxy, key, since, limit):
        """Seconds from `since` to the first acknowledged write of the key through the proxy."""
        connection = None
        try:
            while True:
                sent = False
                try:
                    if connection is None or connection.closed:
                        connection = proxy.connect()
                    with connection.cursor() as cursor:
                        sent = True
                        cursor.execute("UPDATE counters SET n = n + 1 WHERE id = %s", (key,))
                        if cursor.rowcount != 1:
                            self.books.faults.append(f"write of {key} touched {cursor.rowcount} rows")
                    self.books.acknowledged[key] += 1
                    return time.monotonic() - since
                except psycopg2.Error as error:
                    if sent and (error.pgcode in load.UNKNOWN or error.pgcode in (None, "57P01")):
                        self.books.unknown[key] += 1
                    if error.pgcode not in EXPECTED:
                        self.books.faults.append(f"write of {key}: {error.pgcode} {error}")
                    if time.monotonic() - since > limit + 10:
                        raise AssertionError(f"{key} still not writable after {limit + 10:.0f} s: "
                                             f"{error.pgcode} {error}") from error
                    time.sleep(0.02)
        finally:
            if connection is not None:
                connection.close()


class Watcher:
    """Sees how far a move has come, from outside: the journal and the prepared transactions."""

    def __init__(self, place):
        self.journal = psycopg2.connect(place.shards[0].conninfo(place.dbname), application_name="test-direct")
        self.journal.autocommit = True
        self.shards = [psycopg2.connect(c.conninfo(place.dbname), application_name="test-direct")
                       for c in place.shards]
        for connection in self.shards:
            connection.autocommit = True

    def state(self):
        with self.journal.cursor() as cursor:
            cursor.execute("SELECT state FROM collegedb.moves WHERE state NOT IN ('retired', 'aborted')"
                           " ORDER BY op DESC LIMIT 1")
            row = cursor.fetchone()
            return row[0] if row else "none"

    def halves(self):
        count = 0
        for connection in self.shards:
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()")
                count += cursor.fetchone()[0]
        return count

    def wait_for(self, moment, done, seconds=10):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not done.is_set():
            if moment == "one half prepared":
                if self.halves() == 1:
                    return True
            elif moment == "both halves prepared":
                if self.halves() == 2:
                    return True
            elif self.state() == moment:
                return True
        return False

    def close(self):
        for connection in [self.journal, *self.shards]:
            connection.close()


def reassign(proxy, key, destination, done=None):
    """One move; the error's text, or None."""
    try:
        connection = proxy.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(moves.REASSIGN, (key, destination, "counters"))
                return None
        finally:
            connection.close()
    except psycopg2.Error as error:
        return f"{error.pgcode} {str(error).strip()}"
    finally:
        if done is not None:
            done.set()


class Chaos:
    """victim and survivor: proxies over the place; `rounds` of each kind of kill."""

    def __init__(self, place, victim, survivor, seed):
        self.place, self.victim, self.survivor, self.seed = place, victim, survivor, seed
        self.random = random.Random(seed)
        self.prober = Prober()
        self.states = collections.Counter()   # state of the op when its mover died
        self.flows = []                       # seconds until writes flowed again
        self.log = []

    def owner(self, key):
        return moves.locate(self.survivor, key)[0]

    def elsewhere(self, key):
        owner = self.owner(key)
        return self.random.choice([n for n in self.place.names if n != owner])

    def random_key(self):
        return load.key_name(self.random.randrange(load.KEYS))

    def median_move(self):
        """Duration of a healthy move here and now."""
        took = []
        for _ in range(5):
            key = self.random_key()
            destination = self.elsewhere(key)
            started = time.monotonic()
            fault = reassign(self.victim, key, destination)
            assert fault is None, fault
            took.append(time.monotonic() - started)
        return quantile(took, 0.5)

    def kill_proxies(self, rounds):
        duration = self.median_move()
        watcher = Watcher(self.place)
        try:
            for number in range(rounds):
                self.kill_proxy(watcher, number, duration)
        finally:
            watcher.close()

    def kill_proxy(self, watcher, number, duration):
        key = self.random_key()
        destination = self.elsewhere(key)
        done = threading.Event()
        mover = threading.Thread(target=reassign, args=(self.victim, key, destination, done), daemon=True)
        moment = MOMENTS[number % len(MOMENTS)] if number % 3 else "random"
        mover.start()
        if moment == "random":
            time.sleep(self.random.uniform(0, 1.2 * duration))
        else:
            watcher.wait_for(moment, done)
        over = done.is_set()
        self.victim.kill9()
        died = time.monotonic()
        state = "done" if over else watcher.state()
        self.states[state] += 1
        took = self.prober.until_acknowledged(self.survivor, key, died, flow_limit())
        self.flows.append(took)
        self.log.append(f"{number}: {key} to {destination}, killed at {moment}, found {state}, "
                        f"flows after {took:.2f} s")
        mover.join(10)
        assert not mover.is_alive(), "the mover's client hangs after its proxy died"
        self.victim.start()

    def kill_shards(self, rounds):
        """kill -9 of a whole PostgreSQL server while keys move to and from it."""
        for number in range(rounds):
            cluster = self.place.shards[number % len(self.place.shards)]
            mover = moves.Mover([self.survivor, self.victim], self.place, self.seed + number)
            mover.start()
            time.sleep(self.random.uniform(0.5, 1.5))
            keys = [key for key in {m[0] for m in mover.moves[-5:]} | {self.random_key() for _ in range(5)}]
            current = mover.current
            cluster.kill9()
            self.others_go_on(cluster)
            cluster.start()
            back = time.monotonic()
            if current:
                keys.append(current[0])
            for key in keys:
                for proxy in (self.survivor, self.victim):
                    # The keys are asked one after the other: each within the limit of the restart.
                    took = self.prober.until_acknowledged(proxy, key, back, flow_limit())
                    self.flows.append(took)
            self.log.append(f"shard {cluster.name}: flows after {self.flows[-1]:.2f} s")
            mover.stop()

    def others_go_on(self, dead):
        """Keys at rest on the other shards stay writable while one shard is down."""
        started = time.monotonic()
        living = next(n for n in self.place.names if n != dead.name)
        rows = self.place.on(living, "SELECT id FROM counters ORDER BY random() LIMIT 3")
        for (key,) in rows:
            for proxy in (self.survivor, self.victim):
                took = self.prober.until_acknowledged(proxy, key, time.monotonic(), flow_limit())
                assert took < flow_limit(), f"{key} on {living} waits {took:.1f} s for dead {dead.name}"
        time.sleep(max(0.0, 0.3 - (time.monotonic() - started)))

    def judge(self, books):
        """All faults, after everything has come to rest by itself."""
        ledger = load.Ledger([*books, self.prober.books])
        unexpected = [e for e in ledger.errors if e[1] not in EXPECTED]
        wait_until(lambda: not self.open_moves(), flow_limit() + 5, "end of all operations")
        found = [f"unexpected error {e}" for e in unexpected[:10]]
        found += ledger.judge(self.place)
        slow = [f for f in self.flows if f > flow_limit()]
        if slow:
            found.append(f"writes flowed again only after {slow} s (limit {flow_limit()})")
        return ledger, found

    def open_moves(self):
        return self.place.on(0, "SELECT op, state FROM collegedb.moves "
                                "WHERE state NOT IN ('retired', 'published', 'aborted')")

    def report(self, ledger):
        return "\n".join([*self.log, f"states at death {dict(self.states)}",
                          f"flow p50 {quantile(self.flows, 0.5):.2f} max {max(self.flows):.2f} s",
                          ledger.summary()])
