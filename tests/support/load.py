"""Client load of the move tests: processes that add 1 to counters, each in its own dialect.

Table: counters(id text PRIMARY KEY, n bigint NOT NULL). Each client keeps its own books: per key
what was acknowledged and what has an unknown outcome. The sum in the table must lie between.
"""

import collections
import multiprocessing
import random
import signal
import time
import traceback

import psycopg
import psycopg2

import pgwire

KEYS = 1000
PROTOCOLS = ("simple", "extended", "prepared", "raw")
SHAPES = ("autocommit", "transaction")

# Outcomes that an error leaves open; every other SQLSTATE means "not applied". 57P02: the server
# died under the statement.
UNKNOWN = {"08007", "40003", "57P02"}


def key_name(number):
    return f"key-{number}"


class Lost(Exception):
    """The connection broke; `sent`: a statement was under way."""

    def __init__(self, sent, text):
        super().__init__(text)
        self.sent = sent


class Refused(Exception):
    """The server answered with an error; the connection lives."""

    def __init__(self, sqlstate, text):
        super().__init__(f"{sqlstate}: {text}")
        self.sqlstate = sqlstate


class PsycopgClient:
    """psycopg2 sends simple queries; psycopg 3 extended ones, prepared from the first time on."""

    def __init__(self, conninfo, protocol):
        if protocol == "simple":
            self.module = psycopg2
            self.connection = psycopg2.connect(conninfo, connect_timeout=5)
            self.connection.autocommit = True
        else:
            self.module = psycopg
            self.connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=5,
                                              prepare_threshold=0 if protocol == "prepared" else None)
        self.cursor = self.connection.cursor()

    def execute(self, sql, values=()):
        """(row count, rows)."""
        try:
            # psycopg 3 sends a statement without parameters as a simple query: that is BEGIN and COMMIT here.
            self.cursor.execute(sql, values or None)
            rows = self.cursor.fetchall() if self.cursor.description else []
            return self.cursor.rowcount, rows
        except self.module.Error as error:
            code = getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)
            if self.connection.closed:
                raise Lost(True, f"{code}: {error}") from error
            raise Refused(code, str(error).strip()) from error

    def close(self):
        self.connection.close()


class RawClient:
    """Named statements, one Bind/Execute/Sync per statement, nothing between it and the wire."""

    def __init__(self, conninfo):
        words = dict(part.split("=", 1) for part in conninfo.split())
        address = (words["host"], int(words["port"])) if not words["host"].startswith("/") \
            else f"{words['host']}/.s.PGSQL.{words['port']}"
        self.wire = pgwire.Wire(address, timeout=60)
        try:
            self.wire.login(words["user"], words["dbname"])
        except (RuntimeError, pgwire.Closed, OSError) as error:
            raise psycopg2.OperationalError(str(error)) from error
        self.names = {}

    def execute(self, sql, values=()):
        parts = []
        name = self.names.get(sql)
        if name is None:
            name = f"s{len(self.names)}"
            text = sql
            for i in range(len(values)):
                text = text.replace("%s", f"${i + 1}", 1)
            parts.append(pgwire.P(name, text))
        try:
            words = self.wire.run(*parts, pgwire.B("", name, values), pgwire.E(), pgwire.S)
        except (OSError, pgwire.Closed) as error:
            raise Lost(True, repr(error)) from error
        if "1" in words:
            self.names[sql] = name
        errors = [w for w in words if w.startswith("E[")]
        if words[-1] == "EOF":
            raise Lost(True, str(errors))
        if errors:
            raise Refused(errors[0].split()[1], errors[0])
        tag = next(w for w in words if w.startswith("C("))[2:-1]
        rows = [w for w in words if w.startswith("D(")]
        return int(tag.split()[-1]) if tag[-1].isdigit() else -1, rows

    def close(self):
        self.wire.close()


def open_client(conninfo, protocol):
    return RawClient(conninfo) if protocol == "raw" else PsycopgClient(conninfo, protocol)


class Books:
    """What one client knows afterwards."""

    def __init__(self, label):
        self.label = label
        self.acknowledged = collections.Counter()
        self.unknown = collections.Counter()
        self.errors = []          # (SQLSTATE or None, text, shape): every error a client saw
        self.faults = []          # anything that must never happen, whatever is killed
        self.retries = 0
        self.longest = 0.0        # slowest acknowledged statement, seconds

    def note(self, error, shape):
        state = error.sqlstate if isinstance(error, Refused) else None
        if len(self.errors) < 200:
            self.errors.append((state, str(error)[:300], shape))
        self.retries += 1


class Client:
    """One worker process's life."""

    def __init__(self, label, conninfos, protocol, shape, seed, pace, keys):
        self.books = Books(label)
        self.conninfos, self.protocol, self.shape = conninfos, protocol, shape
        self.random = random.Random(seed)
        self.pace, self.keys = pace, keys
        self.client = None
        self.turn = self.random.randrange(len(conninfos))

    def run(self, stop):
        while not stop.is_set():
            if not self.connect():
                continue
            key = key_name(self.random.randrange(self.keys))
            started = time.monotonic()
            try:
                if self.shape == "autocommit":
                    self.one_statement(key)
                else:
                    self.one_transaction(key)
                self.books.acknowledged[key] += 1
                self.books.longest = max(self.books.longest, time.monotonic() - started)
            except Refused as error:
                self.books.note(error, self.shape)
            except Lost as error:
                self.books.note(error, self.shape)
                self.client = None
            rest = self.pace - (time.monotonic() - started)
            if rest > 0:
                time.sleep(rest)
        if self.client:
            self.client.close()

    def connect(self):
        if self.client:
            return True
        self.turn = (self.turn + 1) % len(self.conninfos)
        try:
            self.client = open_client(self.conninfos[self.turn], self.protocol)
            return True
        except (psycopg2.Error, psycopg.Error, OSError) as error:
            self.books.note(Lost(False, f"connect: {error}"), self.shape)
            time.sleep(0.05)
            return False

    def write(self, key):
        """The increment itself, as an UPDATE or as an INSERT ... ON CONFLICT; exactly one row."""
        if self.random.random() < 0.7:
            sql, values = "UPDATE counters SET n = n + 1 WHERE id = %s", (key,)
        else:
            sql = "INSERT INTO counters AS c (id, n) VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + 1"
            values = (key,)
        count, _ = self.client.execute(sql, values)
        if count != 1:
            self.books.faults.append(f"{sql} of {key} touched {count} rows")

    def one_statement(self, key):
        try:
            self.write(key)
        except (Refused, Lost) as error:
            self.settle(error, key)
            raise

    def one_transaction(self, key):
        """BEGIN, a read of the key, its increment, COMMIT. Only COMMIT can have an unknown outcome."""
        committing = False
        try:
            self.client.execute("BEGIN")
            if self.random.random() < 0.5:
                _, rows = self.client.execute("SELECT n FROM counters WHERE id = %s", (key,))
                if len(rows) != 1:
                    self.books.faults.append(f"read of {key} in a transaction found {len(rows)} rows")
            self.write(key)
            committing = True
            self.client.execute("COMMIT")
        except (Refused, Lost) as error:
            if committing:
                self.settle(error, key)
            if isinstance(error, Refused):
                try:
                    self.client.execute("ROLLBACK")
                except (Refused, Lost):
                    self.client = None
            raise

    def settle(self, error, key):
        """Counts the outcome of the write as unknown unless the error says that it was not applied."""
        if isinstance(error, Lost):
            state = str(error).split(":")[0]
            if not error.sent or (len(state) == 5 and state not in UNKNOWN | {"57P01"} and state != "None"):
                return
            self.books.unknown[key] += 1
        elif error.sqlstate in UNKNOWN or error.sqlstate is None:
            self.books.unknown[key] += 1


def _process(pipe, stop, arguments):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    client = Client(*arguments)
    try:
        client.run(stop)
    except BaseException:  # pylint: disable=broad-except  # the parent must hear of everything
        client.books.faults.append(traceback.format_exc())
    pipe.send(client.books)
    pipe.close()


class Load:
    """`count` client processes over the given proxies, all dialects in turn, until stop()."""

    def __init__(self, conninfos, count=16, seed=0, pace=0.01, keys=KEYS):
        self.context = multiprocessing.get_context("fork")
        self.stopping = self.context.Event()
        self.members = []
        for i in range(count):
            protocol = PROTOCOLS[i % len(PROTOCOLS)]
            shape = SHAPES[i // len(PROTOCOLS) % len(SHAPES)]
            mine, theirs = self.context.Pipe(duplex=False)
            process = self.context.Process(
                target=_process, daemon=True,
                args=(theirs, self.stopping,
                      (f"{i}-{protocol}-{shape}", conninfos, protocol, shape, seed * 1000 + i, pace, keys)))
            self.members.append((process, mine, theirs))

    def start(self):
        for process, _, theirs in self.members:
            process.start()
            theirs.close()
        return self

    def stop(self, patience=60):
        """Books of all clients. A client that does not answer is a failure of the system under test."""
        self.stopping.set()
        deadline = time.monotonic() + patience
        books = []
        stuck = []
        for number, (process, mine, _) in enumerate(self.members):
            try:
                if not mine.poll(max(0.1, deadline - time.monotonic())):
                    raise EOFError
                books.append(mine.recv())
                process.join(10)
            except EOFError:
                stuck.append(number)
                process.kill()
                process.join()
        self.members = []
        assert not stuck, f"clients {stuck} hang (or died) at the end"
        return books

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        for process, _, _ in self.members:
            if process.is_alive():
                process.kill()
            process.join()


class Ledger:
    """The books of all clients together, and the judgement over the shards' rows."""

    def __init__(self, books):
        self.books = books
        self.acknowledged = sum((b.acknowledged for b in books), collections.Counter())
        self.unknown = sum((b.unknown for b in books), collections.Counter())
        self.faults = [f"{b.label}: {f}" for b in books for f in b.faults]
        self.errors = [(b.label, *e) for b in books for e in b.errors]
        self.longest = max(b.longest for b in books)

    def summary(self):
        states = collections.Counter((state, shape) for _, state, _, shape in self.errors)
        return (f"{sum(self.acknowledged.values())} acknowledged, {sum(self.unknown.values())} unknown, "
                f"longest {self.longest * 1000:.0f} ms, errors {dict(states)}")

    def judge(self, place, keys=KEYS, table="counters"):
        """Faults found on the shards: lost or doubled increments, keys on no shard or on several."""
        found = list(self.faults)
        where = collections.defaultdict(list)
        for name, rows in place.everywhere(f"SELECT id, n FROM {table}").items():
            for key, value in rows:
                where[key].append((name, value))
        for number in range(keys):
            key = key_name(number)
            rows = where.pop(key, [])
            if len(rows) != 1:
                found.append(f"{key} is on {rows or 'no shard'}")
                continue
            value = rows[0][1]
            low, high = self.acknowledged[key], self.acknowledged[key] + self.unknown[key]
            if not low <= value <= high:
                found.append(f"{key} on {rows[0][0]}: {value}, acknowledged {low}, unknown {high - low}")
        found += [f"unknown key {key}: {rows}" for key, rows in where.items()]
        return found
