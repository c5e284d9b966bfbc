"""TLS to clients and to shards, and the proxy's login on the shards."""

import struct
import subprocess

import psycopg2
import pytest

import pgwire
from certificates import Authority
from cluster import Cluster
from pgwire import Q
from proxy import Proxy


@pytest.fixture(scope="module")
def authority():
    with Authority() as made:
        yield made


@pytest.fixture(scope="module")
def stranger():
    with Authority("somebody else") as made:
        yield made


@pytest.fixture(scope="module")
def certificate(authority):
    return dict(zip(("cert", "key"), authority.issue("proxy", "proxy")))


@pytest.fixture(scope="module")
def preferring(proxies, certificate):
    return proxies(tls={"mode": "prefer", **certificate})


@pytest.fixture(scope="module")
def requiring(proxies, certificate):
    return proxies(tls={"mode": "require", **certificate})


def uses_tls(connection):
    return connection.info.ssl_in_use


@pytest.mark.parametrize("mode, tls", [("disable", False), ("prefer", True), ("require", True)])
def test_clients_choose(preferring, mode, tls):
    connection = preferring.connect(sslmode=mode)
    assert uses_tls(connection) == tls
    with connection.cursor() as cursor:
        cursor.execute("SELECT repeat('x', 300000)")
        assert len(cursor.fetchone()[0]) == 300000
        cursor.execute("SELECT length(%s)", ("y" * 300000,))
        assert cursor.fetchone() == (300000,)
    connection.close()


def test_clients_can_verify_the_proxy(preferring, authority, stranger):
    connection = preferring.connect(sslmode="verify-full", sslrootcert=authority.ca)
    assert uses_tls(connection)
    connection.close()
    with pytest.raises(psycopg2.OperationalError, match="certificate verify failed"):
        preferring.connect(sslmode="verify-full", sslrootcert=stranger.ca)


def test_T6_plaintext_is_refused_where_tls_is_required(requiring):
    with pytest.raises(psycopg2.OperationalError, match="FATAL"):
        requiring.connect(sslmode="disable")
    wire = pgwire.Wire(("127.0.0.1", requiring.port))
    wire.send(pgwire.startup([("user", "postgres"), ("database", "app")]))
    words = wire.trace()
    assert words[0].startswith("E[FATAL 28000") and words[-1] == "EOF", words
    connection = requiring.connect(sslmode="require")
    connection.close()


def test_a_client_certificate_is_demanded_by_verify_full(proxies, certificate, authority, stranger):
    proxy = proxies(tls={"mode": "verify-full", **certificate, "ca": authority.ca})
    mine, key = authority.issue("client", "postgres")
    theirs, their_key = stranger.issue("client", "postgres")
    connection = proxy.connect(sslmode="require", sslcert=mine, sslkey=key)
    assert uses_tls(connection)
    connection.close()
    for options in ({"sslcert": theirs, "sslkey": their_key}, {"sslcert": "/nonexistent"}, {}):
        with pytest.raises(psycopg2.OperationalError):
            proxy.connect(sslmode="require", **options)


def test_T2_bytes_after_ssl_request_are_refused_inside_tls(preferring):
    """Bytes in clear behind an SSLRequest are never taken as part of the session."""
    wire = pgwire.Wire(("127.0.0.1", preferring.port))
    wire.send(pgwire.SSL_REQUEST + pgwire.startup([("user", "postgres"), ("database", "app")]))
    assert wire.receive_exactly(1) == b"S"
    try:
        wire.wrap()
        words = wire.trace()
        assert words[0].startswith("E[FATAL 08P01"), words
    except OSError:
        pass  # closed without a word: the handshake cannot have gone on
    wire.socket.close()


@pytest.mark.parametrize("second", [pgwire.SSL_REQUEST, pgwire.GSSENC_REQUEST], ids=["ssl", "gss"])
def test_T3_a_second_request_inside_tls(preferring, second):
    wire = pgwire.Wire(("127.0.0.1", preferring.port)).start_tls()
    wire.send(second)
    words = wire.trace()
    assert words[0].startswith("E[FATAL 0A000 unsupported frontend protocol 1234."), words
    assert words[-1] == "EOF"
    wire.socket.close()


def test_K10_cancel_inside_tls_and_in_clear(preferring):
    for tls in (False, True):
        with pgwire.Wire(("127.0.0.1", preferring.port)).start_tls().login() as wire:
            wire.send(Q("select pg_sleep(10)"))
            wire.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                wire.receive()
            wire.socket.settimeout(20)
            canceller = pgwire.Wire(("127.0.0.1", preferring.port))
            if tls:
                canceller.start_tls()
            canceller.send(pgwire.cancel_request(wire.pid, wire.key))
            assert canceller.rest() == b""
            canceller.socket.close()
            assert [w for w in wire.trace() if w[0] == "E"] == ["E[ERROR 57014 canceling statement due to user request]"]


def test_F13_many_messages_in_one_record_and_one_in_many(preferring):
    with pgwire.Wire(("127.0.0.1", preferring.port)).start_tls().login() as wire:
        wire.send(b"".join(Q(f"select {i}") for i in range(200)))
        words = wire.trace(200)
        assert [w for w in words if w[0] == "D"] == [f"D({i})" for i in range(200)]
        wire.send(Q("select length('" + "z" * 100_000 + "')"))
        assert "D(100000)" in wire.trace()


# --- the servers' side

HBA = "hostssl all tls_only 127.0.0.1/32 trust\nhost all tls_only 127.0.0.1/32 reject\n" \
      "host all with_scram 127.0.0.1/32 scram-sha-256\nhost all with_md5 127.0.0.1/32 md5\n" \
      "host all with_password 127.0.0.1/32 password\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n"


class Login:
    """A shard as seen by a proxy that logs in with this conninfo."""

    def __init__(self, cluster, user, more=""):
        self.name = cluster.name
        self.conninfo = lambda dbname: f"host=127.0.0.1 port={cluster.port} dbname={dbname} user={user}{more}"


@pytest.fixture(scope="module")
def server(authority):
    """One server with TLS and a role per way to log in."""
    certificate, key = authority.issue("server", "localhost", owner="postgres")
    with Cluster("db-tls", fsync=False, settings={"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key}) as made:
        made.psql("SET password_encryption = 'md5'; CREATE ROLE with_md5 SUPERUSER LOGIN PASSWORD 'pass word'")
        for role in ("with_scram", "with_password", "tls_only"):
            made.psql(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'pass word'")
        with open(f"{made.data}/pg_hba.conf", "w", encoding="ascii") as hba:
            hba.write(HBA)
        made.psql("SELECT pg_reload_conf()")
        yield made


def answers(login):
    with Proxy([login], "postgres", name="login") as proxy:
        return proxy.query("SELECT current_user::text, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())")


@pytest.mark.parametrize("user", ["with_scram", "with_md5", "with_password"])
def test_server_login_by_password(server, user):
    assert answers(Login(server, user, " password='pass word' sslmode=disable")) == [(user, False)]
    assert answers(Login(server, user, " password='pass word'")) == [(user, True)]


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_server_tls(server, authority, mode):
    assert answers(Login(server, "tls_only", f" sslmode={mode} sslrootcert={authority.ca}")) == [("tls_only", True)]


@pytest.mark.parametrize("more", [" sslmode=disable", " sslmode=verify-full sslrootcert={stranger}",
                                  " sslmode=verify-full sslrootcert={ca} hostaddr=127.0.0.1 host=elsewhere"],
                         ids=["refused in clear", "unknown authority", "another name"])
def test_server_tls_never_downgrades(server, authority, stranger, more):
    more = more.format(ca=authority.ca, stranger=stranger.ca)
    proxy = Proxy([Login(server, "tls_only", more)], "postgres", name="login")
    proxy.start(wait=False)
    try:
        with pytest.raises((psycopg2.Error, AssertionError)):
            for _ in range(50):
                proxy.assert_alive()
                if proxy.http("/healthz")[0] == 200:
                    break
                subprocess.run(["sleep", "0.1"], check=True)
            proxy.query("SELECT 1")
        if proxy.process.poll() is None:
            assert proxy.http("/readyz")[0] != 200
    finally:
        if proxy.process.poll() is not None:
            proxy.process = None
        proxy.close()


def test_wrong_server_password(server):
    proxy = Proxy([Login(server, "with_scram", " password=wrong")], "postgres", name="login")
    proxy.start(wait=False)
    try:
        with pytest.raises((psycopg2.Error, AssertionError)):
            for _ in range(50):
                proxy.assert_alive()
                if proxy.http("/healthz")[0] == 200:
                    break
                subprocess.run(["sleep", "0.1"], check=True)
            proxy.query("SELECT 1")
        assert "wrong" not in proxy.log().replace("wrong password", "")
    finally:
        if proxy.process.poll() is not None:
            proxy.process = None
        proxy.close()


def test_direct_tls_hello_is_closed(preferring):
    """T5: a TLS ClientHello as the first byte, without ALPN, is closed."""
    wire = pgwire.Wire(("127.0.0.1", preferring.port))
    wire.send(b"\x16\x03\x01" + struct.pack("!H", 4) + b"\x01\0\0\0")
    assert wire.rest()[:1] in (b"", b"\x15")
    wire.socket.close()
