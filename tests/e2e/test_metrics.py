"""The metrics port: names, growth, health."""

import psycopg2
import pytest

from cluster import free_port
from proxy import Proxy
from world import attempt, wait_until

# name: labels it must carry. What later steps bring (tail, rebalance, two-phase, epochs ...) is not here.
WANTED = {
    "collegedb_build_info": {"version"},
    "collegedb_clients": {"state"},
    "collegedb_client_logins_total": {"result"},
    "collegedb_pool_connections": {"shard", "state"},
    "collegedb_pool_waiting": {"shard"},
    "collegedb_pool_wait_seconds_count": {"shard"},
    "collegedb_queries_total": {"shard", "kind", "protocol"},
    "collegedb_query_seconds_count": {"shard", "kind"},
    "collegedb_plan_cache_hits_total": set(),
    "collegedb_plan_cache_misses_total": set(),
    "collegedb_plan_cache_evictions_total": set(),
    "collegedb_errors_total": {"code"},
    "collegedb_bytes_total": {"direction"},
    "collegedb_manifest_generation": set(),
    "collegedb_manifest_revision": set(),
    "collegedb_exceptions": set(),
    "collegedb_stale_route_errors_total": {"reason"},
    "collegedb_tombstone_follows_total": set(),
    "collegedb_moves_total": {"result"},
    "collegedb_move_rows_total": set(),
    "collegedb_move_seconds_count": {"phase"},
    "collegedb_move_write_stall_seconds_count": set(),
    "collegedb_recovery_runs_total": {"result"},
    "collegedb_shard_up": {"shard"},
}


@pytest.fixture(scope="module")
def busy(pair, place, keys):
    """Proxies after some of everything."""
    first = pair[0]
    key = keys.on("db-east")
    first.query("INSERT INTO items VALUES (%s, 1)", (key,))
    for _ in range(5):
        first.query("SELECT v FROM items WHERE id = %s", (key,))
    first.query("SELECT count(*) FROM items")
    attempt(lambda: first.query("INSERT INTO items VALUES (NULL, 1)"))
    attempt(lambda: first.query("SELEC 1"))
    first.query("SELECT * FROM collegedb_reassign(%s, 'db-west', 'items')", (key,))
    first.query("SELECT * FROM collegedb_recover()")
    return first


@pytest.mark.parametrize("name", WANTED)
def test_metric_is_there_with_its_labels(busy, name):
    samples = busy.metrics().get(name)
    assert samples, f"{name} is missing"
    for labels in samples:
        assert WANTED[name] <= {label for label, _ in labels}, labels


def test_every_name_has_help_and_type(busy):
    _, text = busy.http("/metrics")
    helps = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")}
    types = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert helps == types
    for name in busy.metrics():
        if name.startswith("collegedb_"):
            assert name in types or name.rsplit("_", 1)[0] in types, name


def test_counters_count(busy, place):
    before = busy.metric("collegedb_queries_total"), busy.metric("collegedb_client_logins_total", result="ok")
    for number in range(10):
        busy.query("SELECT v FROM items WHERE id = %s", (f"nosuch-{number}",))
    after = busy.metric("collegedb_queries_total"), busy.metric("collegedb_client_logins_total")
    assert after[0] - before[0] >= 10 and after[1] - before[1] >= 10
    assert busy.metric("collegedb_moves_total") >= 1
    assert busy.metric("collegedb_move_rows_total") >= 1
    assert {dict(labels)["shard"] for labels in busy.metrics()["collegedb_shard_up"]} == set(place.names)
    assert busy.metric("collegedb_shard_up") == 3


def test_errors_are_counted_by_code(busy):
    before = busy.metric("collegedb_errors_total")
    attempt(lambda: busy.query("UPDATE items SET id = 'other' WHERE id = 'x'"))
    attempt(lambda: busy.query("SELECT FROM WHERE"))
    assert busy.metric("collegedb_errors_total") - before >= 2


def test_no_secret_and_no_key_in_labels(busy, keys):
    busy.query("SELECT v FROM items WHERE id = 'very-secret-key'")
    _, text = busy.http("/metrics")
    assert "very-secret-key" not in text and "items" not in text


def test_health_and_readiness(busy):
    assert busy.http("/healthz")[0] == 200
    assert busy.http("/readyz")[0] == 200
    assert busy.http("/nosuch")[0] == 404


class Nowhere:
    """A shard nobody runs."""

    name = "db-gone"

    def __init__(self):
        self.port = free_port()

    def conninfo(self, dbname):
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={dbname} connect_timeout=1"


def test_not_ready_while_the_journal_shard_is_away(place):
    """Healthy but not ready; statements are refused, never guessed."""
    proxy = Proxy([Nowhere(), *place.shards[1:]], place.dbname, name="unready")
    proxy.start(wait=False)
    try:
        wait_until(lambda: proxy.http("/healthz")[0] == 200, 15, "/healthz")
        assert proxy.http("/readyz")[0] == 503
        with pytest.raises(psycopg2.Error) as refused:
            proxy.query("UPDATE items SET v = 1 WHERE id = 'x'")
        text = str(refused.value)
        assert "PLACEMENT_UNVERIFIED" in text or "SHARD_UNAVAILABLE" in text or refused.value.pgcode == "57P03" \
            or "not ready" in text or "refused" in text, text
    finally:
        proxy.close()
