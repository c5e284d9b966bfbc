"""The PostgreSQL protocol by hand: builders of frontend messages and a client that records traces.

A trace is a list of words, one per message: its letter, and where it matters what it says:
`ZI`, `C(INSERT 0 1)`, `E[ERROR 22012 division by zero]`, `N[...]`, `S(name=value)`, `D(a,b)`,
`T(name:type:format,...)`, `t(oids)`; `EOF` when the server has closed. Left out: pid and key (`K`),
file, line and routine of errors, and table OIDs of columns.
"""

import hashlib
import socket
import ssl
import struct
import time


class Closed(Exception):
    """The server has closed the connection."""


def message(letter, body=b""):
    return letter.encode() + struct.pack("!i", len(body) + 4) + body


def cstr(text):
    return (text if isinstance(text, bytes) else text.encode()) + b"\0"


def Q(sql):
    return message("Q", cstr(sql))


def P(name, sql, oids=()):
    return message("P", cstr(name) + cstr(sql) + struct.pack(f"!h{len(oids)}I", len(oids), *oids))


def B(portal, statement, values=(), formats=(), results=()):
    """values: str, bytes or None each."""
    parts = [cstr(portal), cstr(statement), struct.pack(f"!H{len(formats)}h", len(formats), *formats),
             struct.pack("!H", len(values))]
    for value in values:
        if value is None:
            parts.append(struct.pack("!i", -1))
        else:
            raw = value if isinstance(value, bytes) else str(value).encode()
            parts += [struct.pack("!i", len(raw)), raw]
    parts.append(struct.pack(f"!h{len(results)}h", len(results), *results))
    return message("B", b"".join(parts))


def D(kind, name):
    return message("D", kind.encode() + cstr(name))


def E(portal="", limit=0):
    return message("E", cstr(portal) + struct.pack("!i", limit))


def C(kind, name):
    return message("C", kind.encode() + cstr(name))


H = message("H")
S = message("S")
X = message("X")


def startup(parameters, protocol=0x00030000, tail=b"\0"):
    body = struct.pack("!i", protocol)
    for name, value in parameters:
        body += cstr(name) + cstr(value)
    body += tail
    return struct.pack("!i", len(body) + 4) + body


SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)


def cancel_request(pid, key):
    return struct.pack("!iiii", 16, 80877102, pid, key)


def fields(body):
    """{code letter: text} of an ErrorResponse or NoticeResponse."""
    return {part[:1].decode(): part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}


class Wire:
    """One raw connection. `address` is ("127.0.0.1", port) or the path of a unix socket."""

    def __init__(self, address, timeout=20):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.pid = self.key = None
        self.parameters = {}

    def start_tls(self, ca=None):
        """SSLRequest, then TLS; verifies the server as localhost when a CA file is given."""
        self.send(SSL_REQUEST)
        answer = self.receive_exactly(1)
        if answer != b"S":
            raise RuntimeError(f"TLS refused: {answer!r}")
        self.wrap(ca)
        return self

    def wrap(self, ca=None):
        """TLS over what is connected; the server has agreed already."""
        context = ssl.create_default_context(cafile=ca) if ca else ssl._create_unverified_context()
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def login(self, user="postgres", database="app", password=None, **parameters):
        """Start-up and authentication up to the first ReadyForQuery. Raises on an error."""
        words = [("user", user), ("database", database), *parameters.items()]
        self.send(startup(words))
        while True:
            letter, body = self.receive()
            if letter == "R":
                self._authenticate(body, user, password)
            elif letter == "Z":
                return self
            elif letter == "E":
                raise RuntimeError(fields(body))

    def _authenticate(self, body, user, password):
        kind = struct.unpack("!i", body[:4])[0]
        if kind == 0:
            return
        if kind == 3:
            self.send(message("p", cstr(password)))
        elif kind == 5:
            inner = hashlib.md5((password + user).encode()).hexdigest()
            outer = hashlib.md5(inner.encode() + body[4:8]).hexdigest()
            self.send(message("p", cstr("md5" + outer)))
        else:
            raise RuntimeError(f"authentication method {kind} is not spoken here")

    def send(self, *parts, bytewise=False):
        data = b"".join(parts)
        if not bytewise:
            self.socket.sendall(data)
            return
        for i in range(len(data)):
            self.socket.sendall(data[i:i + 1])

    def receive_exactly(self, count):
        while len(self.buffer) < count:
            try:
                more = self.socket.recv(65536)
            except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
                more = b""
            if not more:
                raise Closed
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def receive(self):
        """(letter, body) of the next message; keeps pid, key and parameters up to date."""
        head = self.receive_exactly(5)
        body = self.receive_exactly(struct.unpack("!i", head[1:])[0] - 4)
        letter = chr(head[0])
        if letter == "K":
            self.pid, self.key = struct.unpack("!ii", body)
        elif letter == "S":
            name, value = body.split(b"\0")[:2]
            self.parameters[name.decode()] = value.decode()
        return letter, body

    def trace(self, ready=1, quiet=0.3):
        """Words of the messages up to the `ready`-th ReadyForQuery or EOF; ready=0: until nothing
        has come for `quiet` seconds."""
        words = []
        old = self.socket.gettimeout()
        try:
            while True:
                self.socket.settimeout(quiet if ready == 0 else old)
                try:
                    letter, body = self.receive()
                except Closed:
                    return words + ["EOF"]
                except TimeoutError:
                    if ready == 0 and not self.buffer:
                        return words
                    raise TimeoutError(f"no more messages after {words}") from None
                words.append(word(letter, body))
                if letter == "Z" and ready:
                    ready -= 1
                    if ready == 0:
                        return words
        finally:
            self.socket.settimeout(old)

    def rest(self, seconds=5):
        """Raw bytes until the server closes; TimeoutError when it does not."""
        deadline = time.monotonic() + seconds
        data, self.buffer = self.buffer, b""
        while True:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return data
            if not more:
                return data
            data += more

    def run(self, *parts, ready=1):
        self.send(*parts)
        return self.trace(ready)

    def close(self):
        try:
            self.socket.sendall(X)
        except OSError:
            pass
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def word(letter, body):
    if letter == "Z":
        return "Z" + body.decode()
    if letter == "C":
        return f"C({body[:-1].decode()})"
    if letter in "EN":
        f = fields(body)
        more = "".join(f" {code}={f[code]}" for code in "DHPpqWstcdn" if code in f)
        return f"{letter}[{f.get('S')} {f.get('C')} {f.get('M')}{more}]"
    if letter == "S":
        name, value = body.split(b"\0")[:2]
        return f"S({name.decode()}={value.decode()})"
    if letter == "D":
        return "D(" + ",".join(_values(body)) + ")"
    if letter == "T":
        return "T(" + ",".join(_columns(body)) + ")"
    if letter == "t":
        count = struct.unpack("!H", body[:2])[0]
        return "t(" + ",".join(str(o) for o in struct.unpack(f"!{count}I", body[2:])) + ")"
    if letter == "v":
        newest, count = struct.unpack("!ii", body[:8])
        names = [n.decode() for n in body[8:].split(b"\0")[:-1]]
        return f"v({newest:#x},{count},{'|'.join(names)})"
    if letter == "R":
        return f"R{struct.unpack('!i', body[:4])[0]}"
    return letter


def _values(body):
    count, position = struct.unpack("!H", body[:2])[0], 2
    for _ in range(count):
        size = struct.unpack("!i", body[position:position + 4])[0]
        position += 4
        if size < 0:
            yield "NULL"
            continue
        raw = body[position:position + size]
        position += size
        try:
            text = raw.decode()
            yield text if text.isprintable() else raw.hex()
        except UnicodeDecodeError:
            yield raw.hex()


def _columns(body):
    count, position = struct.unpack("!H", body[:2])[0], 2
    for _ in range(count):
        end = body.index(b"\0", position)
        name = body[position:end].decode()
        _, attribute, oid, size, modifier, fmt = struct.unpack("!IhIhih", body[end + 1:end + 19])
        position = end + 19
        yield f"{name}:{attribute}:{oid}:{size}:{modifier}:{fmt}"
