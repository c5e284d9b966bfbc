"""The checkers are tested too: with the fence taken out, they must see the damage."""

import collections

import pytest

import load
import moves
import pgwire
from proxy import ProxyDied, SANITIZER_REPORT, parse_metrics

KEYS = 30


@pytest.fixture(scope="module")
def unfenced(place, proxies):
    """Two proxies over counters, on shards whose check for moved keys does nothing."""
    first, second = proxies(), proxies()
    moves.shard_counters(first, place, KEYS)
    place.everywhere("CREATE OR REPLACE FUNCTION collegedb.check_moved(in_scope text, in_grp text, in_keys text[]) "
                     "RETURNS text LANGUAGE sql VOLATILE AS 'SELECT NULL::text'")
    return first, second


def books(acknowledged):
    made = load.Books("test")
    made.acknowledged = collections.Counter(acknowledged)
    return load.Ledger([made])


def test_a_write_at_the_former_owner_is_noticed(place, unfenced):
    frozen, other = unfenced
    key = load.key_name(1)
    source = moves.locate(other, key)[0]
    destination = next(n for n in place.names if n != source)
    assert books({}).judge(place, KEYS) == []
    with pgwire.Wire(("127.0.0.1", frozen.port)).login() as client:
        frozen.freeze()
        try:
            client.send(pgwire.Q(f"INSERT INTO counters AS c VALUES ('{key}', 1) "
                                 "ON CONFLICT (id) DO UPDATE SET n = c.n + 1"))
            other.query(moves.REASSIGN, (key, destination, "counters"))
        finally:
            frozen.thaw()
        assert "C(INSERT 0 1)" in client.trace()
    assert sorted(place.holders("counters", "id", key)) == sorted([source, destination])
    found = books({key: 1}).judge(place, KEYS)
    assert len(found) == 1 and found[0].startswith(f"{key} is on ["), found


def test_lost_and_doubled_increments_are_noticed(place, unfenced):
    two, three = load.key_name(2), load.key_name(3)
    unfenced[0].query("UPDATE counters SET n = n + 1 WHERE id = %s", (two,))
    assert any(two in f for f in books({}).judge(place, KEYS))
    assert any(two in f for f in books({two: 2}).judge(place, KEYS))
    assert not any(two in f for f in books({two: 1}).judge(place, KEYS))
    owner = moves.locate(unfenced[0], three)[0]
    place.on(owner, "DELETE FROM counters WHERE id = %s", (three,))
    assert f"{three} is on no shard" in books({two: 1}).judge(place, KEYS)


def test_leftovers_are_noticed(place, unfenced):
    assert place.leftovers() == []
    with place.direct(1, False) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(7)")
        connection.commit()
        assert any("advisory lock" in line for line in place.leftovers())
    with place.direct(2) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN; CREATE TABLE x (); PREPARE TRANSACTION 'test_leftovers'")
        try:
            assert any("test_leftovers" in line for line in place.leftovers())
        finally:
            cursor.execute("ROLLBACK PREPARED 'test_leftovers'")
    assert place.leftovers() == []


def test_a_proxy_that_dies_is_noticed(proxies):
    proxy = proxies()
    process = proxy.process
    process.kill()
    process.wait()
    with pytest.raises(ProxyDied):
        proxy.stop()


def test_sanitizer_reports_are_noticed():
    for text in ("==1==ERROR: AddressSanitizer: heap-use-after-free on address",
                 "WARNING: ThreadSanitizer: data race (pid=1)", "x.cpp:3:4: runtime error: signed integer overflow",
                 "==9==ERROR: LeakSanitizer: detected memory leaks"):
        assert SANITIZER_REPORT.search(text)
    assert not SANITIZER_REPORT.search("an error at run time")


def test_broken_metrics_are_noticed():
    assert parse_metrics('a{b="c"} 1\n# HELP x y\n') == {"a": {(("b", "c"),): 1.0}}
    with pytest.raises(ValueError):
        parse_metrics("not a sample\n")
