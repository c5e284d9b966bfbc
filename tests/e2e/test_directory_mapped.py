"""The directory under mapped placement: rows from before get their mappings, the ledger is compared
with them, and what a failed INSERT has left is found."""

import contextlib
import threading

import psycopg2
import pytest

from proxy import is_sanitized
from test_directory import refusal, row

EAST, WEST, NORTH = "db-east", "db-west", "db-north"
ROWS = 30_000 if is_sanitized() else 200_000
DOUBLED = 1200


@pytest.fixture(scope="module", name="pair")
def _pair(place, proxies):
    first, second = (proxies(routing={"placement": "mapped", "mapping_cache_ttl": "1h"}) for _ in range(2))
    place.everywhere("CREATE TABLE users (id text PRIMARY KEY, v int NOT NULL CHECK (v >= 0))")
    place.everywhere("CREATE TABLE bulk (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0)")
    first.query("SELECT * FROM collegedb_shard_table('users')")
    first.query("SELECT * FROM collegedb_shard_table('bulk')")
    return first, second


def mapping(place, key, grp="public.users"):
    rows = place.on(EAST, "SELECT shard FROM collegedb.mappings WHERE grp = %s AND key = %s", (grp, key))
    return rows[0][0] if rows else None


@pytest.mark.deadline(400)
@pytest.mark.usefixtures("at_rest")
def test_every_key_from_before_gets_its_mapping(pair, place):
    first, second = pair
    for i, name in enumerate((EAST, WEST, NORTH)):
        place.on(name, f"INSERT INTO bulk SELECT g FROM generate_series(1, {ROWS}) g WHERE g %% 3 = %s", (i,))
    place.on(EAST, f"INSERT INTO bulk SELECT g FROM generate_series(1, {3 * DOUBLED}) g WHERE g % 3 = 1")
    place.everywhere("ANALYZE bulk")
    told = row(first, "SELECT * FROM collegedb_import('bulk', true)")
    assert (told["examined"], told["mapped"]) == (ROWS, ROWS - DOUBLED)
    assert place.on(EAST, "SELECT count(*) FROM collegedb.mappings") == [(0,)]

    done = {}
    caller = threading.Thread(target=lambda: done.update(row(first, "SELECT * FROM collegedb_import('bulk')")))
    caller.start()
    # Meanwhile clients write what has no mapping yet: they and the import come to the same shard.
    written = 0
    with contextlib.closing(second.connect()) as connection, connection.cursor() as cursor:
        for key in range(ROWS, 3 * DOUBLED, -997):
            cursor.execute("UPDATE bulk SET v = v + 1 WHERE id = %s", (key,))
            assert cursor.rowcount == 1, key
            written += 1
    caller.join()
    assert done["examined"] == ROWS
    # What a client's write has entered before the import came to it is not counted here.
    assert ROWS - DOUBLED - written <= done["mapped"] <= ROWS - DOUBLED
    conflicts = done["conflicts"]
    assert conflicts["count"] == DOUBLED and len(conflicts["keys"]) == 1000
    assert all(each["shards"] == [EAST, WEST] and each["directory"] is None for each in conflicts["keys"])
    assert place.on(EAST, "SELECT shard, count(*) FROM collegedb.mappings m, generate_series(0, 2) r"
                          " WHERE key::int %% 3 = r AND shard = (%s)[r + 1] GROUP BY 1 ORDER BY 1",
                    ([EAST, WEST, NORTH],)) == sorted(
        (name, sum(1 for g in range(1, ROWS + 1) if g % 3 == i and not (i == 1 and g <= 3 * DOUBLED)))
        for i, name in enumerate((EAST, WEST, NORTH)))
    assert place.on(EAST, "SELECT count(*) FROM collegedb.allocations WHERE grp = 'public.bulk'") == [(0,)]
    for key in (ROWS, ROWS - 1, ROWS - 2):
        shard = (EAST, WEST, NORTH)[key % 3]
        assert second.query("SELECT shard, via FROM collegedb_locate(%s, 'bulk')", (str(key),)) == [(shard, "mapping")]
        assert second.query("SELECT count(*) FROM bulk WHERE id = %s", (key,)) == [(1,)]
    # Rows of one key on two shards: nobody guesses.
    state, message, _ = refusal(lambda: second.query("SELECT v FROM bulk WHERE id = 4"))
    assert state == "0A000" and EAST in message and WEST in message, message
    place.on(EAST, "DELETE FROM bulk WHERE id % 3 = 1")
    again = row(second, "SELECT * FROM collegedb_import('bulk')")
    assert (again["mapped"], again["conflicts"]["count"]) == (DOUBLED, 0)
    assert second.query("SELECT v FROM bulk WHERE id = 4") == [(0,)]


@pytest.mark.usefixtures("at_rest")
def test_an_insert_that_failed_leaves_an_allocation_that_is_found(pair, place):
    first, second = pair
    with pytest.raises(psycopg2.Error):
        first.query("INSERT INTO users VALUES ('dangling', -1)")
    first.query("INSERT INTO users VALUES ('whole', 1)")
    home = mapping(place, "dangling")
    assert home is not None
    done = row(first, "SELECT * FROM collegedb_reconcile(verify_tables => ARRAY['users'], prune_verified => true)")
    assert done["missing_keys"] == [{"grp": "public.users", "key": "dangling", "ledger": home, "routing": home}]
    assert (done["examined"], done["routing_agreed"], done["record_verified"], done["pruned"]) == (2, 2, 1, 1)
    place.on(EAST, "UPDATE collegedb.allocations SET allocated_at = now() - interval '2 minutes'")
    done = row(first, "SELECT * FROM collegedb_reconcile(verify_tables => ARRAY['users'], prune_verified => true)")
    assert (done["examined"], done["record_missing_count"], done["pruned"]) == (1, 1, 1)
    assert row(second, "SELECT examined FROM collegedb_reconcile()") == {"examined": 0}
    # One that has remembered the mapping and one that asks write to the same shard.
    assert mapping(place, "dangling") == home
    assert second.query("INSERT INTO users VALUES ('dangling', 1)") == 1
    with pytest.raises(psycopg2.errors.UniqueViolation):
        first.query("INSERT INTO users VALUES ('dangling', 2)")
    assert place.holders("users", "id", "dangling") == [home]


@pytest.mark.usefixtures("at_rest")
def test_a_lost_mapping_is_written_again(pair, place):
    first, second = pair
    for i in range(9):
        first.query("INSERT INTO users VALUES (%s, 1)", (f"lost-{i}",))
    first.query("INSERT INTO users VALUES ('moved', 1)")
    other = next(name for name in (EAST, WEST, NORTH) if name != mapping(place, "moved"))
    first.query("SELECT * FROM collegedb_reassign('moved', %s, 'users')", (other,))
    before = place.on(EAST, "SELECT key, shard FROM collegedb.mappings WHERE key LIKE 'lost-%' ORDER BY key")
    place.on(EAST, "DELETE FROM collegedb.mappings WHERE key LIKE 'lost-%'")
    place.everywhere("DELETE FROM users WHERE id = 'lost-8'")
    done = row(second, "SELECT * FROM collegedb_reconcile(verify_tables => ARRAY['users'])")
    assert (done["disagreeing_count"], done["repaired"]) == (9, 0)
    assert {each["key"] for each in done["disagreeing_keys"]} == {f"lost-{i}" for i in range(9)}
    assert all(each["routing"] is None for each in done["disagreeing_keys"])
    done = row(second, "SELECT * FROM collegedb_reconcile(verify_tables => ARRAY['users'], repair => true)")
    assert (done["disagreeing_count"], done["repaired"]) == (1, 8)
    after = place.on(EAST, "SELECT key, shard FROM collegedb.mappings WHERE key LIKE 'lost-%' ORDER BY key")
    assert after == before[:8]


@pytest.mark.usefixtures("at_rest")
def test_names_of_mapped_keys(pair, place):
    first, second = pair
    first.query("INSERT INTO users VALUES ('ada', 1)")
    home = mapping(place, "ada")
    first.query("SELECT collegedb_lookup_add('ada', 'users', ARRAY['email:ada@b.org'])")
    assert second.query("SELECT shard, via FROM collegedb_locate('email:ada@b.org', 'users')") == [(home, "mapping")]
    other = next(name for name in (EAST, WEST, NORTH) if name != home)
    assert row(second, "SELECT key FROM collegedb_reassign('email:ada@b.org', %s, 'users')", (other,)) == {"key": "ada"}
    assert place.holders("users", "id", "ada") == [other] and mapping(place, "ada") == other
