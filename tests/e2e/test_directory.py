"""The directory as an operator sees it: lookup names, rows that came past the proxy, the ledger."""

import contextlib
import threading

import psycopg2
import pytest

from proxy import is_sanitized
from world import attempt

EAST, WEST, NORTH = "db-east", "db-west", "db-north"
ROWS = 40_000 if is_sanitized() else 200_000
DOUBLED = 1200


def row(proxy, sql, arguments=None):
    """The only row of an answer, as a dictionary."""
    with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        rows = cursor.fetchall()
        assert len(rows) == 1, rows
        return dict(zip([column.name for column in cursor.description], rows[0]))


def refusal(action):
    """(SQLSTATE, message, DETAIL)"""
    with pytest.raises(psycopg2.Error) as error:
        action()
    return error.value.pgcode, error.value.diag.message_primary, error.value.diag.message_detail


def names(proxy, key, table="items"):
    return [name for (name,) in proxy.query("SELECT lookup FROM collegedb_lookups(%s, %s)", (key, table))]


@pytest.fixture(scope="module", name="people")
def _people(place, pair):
    place.everywhere("CREATE TABLE people (id bigint PRIMARY KEY, name text)")
    pair[0].query("SELECT * FROM collegedb_shard_table('people')")
    return pair[0]


def test_functions_are_listed_and_most_are_for_administrators(people):
    listed = people.psql("-Atc", r"\df collegedb_*").stdout
    calls = {
        "collegedb_import": "collegedb_import('items')",
        "collegedb_lookup_add": "collegedb_lookup_add('k', 'items', '{a}')",
        "collegedb_lookup_remove": "collegedb_lookup_remove('k', 'items', '{a}')",
        "collegedb_reconcile": "collegedb_reconcile()",
    }
    for name in [*calls, "collegedb_lookups"]:
        assert f"|{name}|" in listed, name
    people.query("CREATE ROLE visitor LOGIN")
    try:
        for name, call in calls.items():
            state, message, _ = refusal(lambda c=call: people.query(f"SELECT * FROM {c}", user="visitor"))
            assert state == "42501" and name in message, message
        assert people.query("SELECT * FROM collegedb_lookups('k', 'items')", user="visitor") == []
    finally:
        people.query("DROP ROLE visitor")


def test_a_key_has_names_and_a_name_has_one_key(pair, item):
    first, second = pair
    key, other = item(), item(WEST)
    mail, phone = f"email:{key}@b.org", f"phone:{key}"
    done = row(first, "SELECT * FROM collegedb_lookup_add(%s, 'items', ARRAY[%s, %s])", (key, mail, phone))
    assert done == {"key": key, "changed": 2, "lookups": [mail, phone]}
    # Lists as drivers pass them, names of arguments, any proxy; again is nothing new.
    assert row(second, "SELECT changed FROM collegedb_lookup_add(lookup => %s, key => %s, \"table\" => 'items')",
               ([phone], key)) == {"changed": 0}
    assert names(first, key) == [mail, phone]
    state, message, detail = refusal(
        lambda: first.query("SELECT collegedb_lookup_add(%s, 'items', %s)", (other, ["tax:7", mail])))
    assert state == "23505" and mail in message and detail == f"Key: {key}.", (message, detail)
    assert names(first, other) == [], "half of the names were added"
    # A name is as good as its key.
    assert names(first, mail) == [mail, phone]
    assert row(first, "SELECT * FROM collegedb_lookup_remove(%s, 'items', %s)", (mail, [phone, "nobody's"])) == {
        "key": key, "changed": 1, "lookups": [mail]}
    assert row(first, "SELECT changed FROM collegedb_lookup_add(%s, 'items', %s)", (other, [phone])) == {"changed": 1}


def test_administrators_may_say_the_name(pair, place, item):
    first, _ = pair
    key = item(EAST)
    name = f"email:{key}"
    first.query("SELECT collegedb_lookup_add(%s, 'items', %s)", (key, [name]))
    assert row(first, "SELECT shard FROM collegedb_locate(%s, 'items')", (name,)) == {"shard": EAST}
    moved = row(first, "SELECT key, state FROM collegedb_reassign(%s, %s, 'items')", (name, NORTH))
    assert moved == {"key": key, "state": "retired"}
    assert place.holders("items", "id", key) == [NORTH]
    assert row(first, "SELECT key, destination FROM collegedb_migration_status(%s, 'items')", (name,)) == {
        "key": key, "destination": NORTH}
    assert row(first, "SELECT shard FROM collegedb_locate(%s, 'items')", (name,)) == {"shard": NORTH}


def test_a_key_that_exists_wins_over_a_name(people, place, item):
    # Any text can be a key here: what exists is meant.
    key, other = item(EAST), item(WEST)
    people.query("SELECT collegedb_lookup_add(%s, 'items', %s)", (key, [other]))
    assert row(people, "SELECT shard FROM collegedb_locate(%s, 'items')", (other,)) == {"shard": WEST}
    place.on(WEST, "DELETE FROM items WHERE id = %s", (other,))
    assert row(people, "SELECT shard FROM collegedb_locate(%s, 'items')", (other,)) == {"shard": EAST}
    # Of numbers, too; what is no number can only be a name.
    people.query("INSERT INTO people VALUES (4711, 'a')")
    people.query("INSERT INTO people VALUES (12, 'b')")
    people.query("SELECT collegedb_lookup_add('12', 'people', '{4711,4712,email:b}')")
    found = {text: [key for key, _ in people.query("SELECT * FROM collegedb_lookups(%s, 'people')", (text,))]
             for text in ("12", "4711", "4712", "email:b")}
    assert found == {"12": ["12"] * 3, "4711": [], "4712": ["12"] * 3, "email:b": ["12"] * 3}
    assert refusal(lambda: people.query("SELECT collegedb_locate('email:c', 'people')"))[0] == "22P02"


@pytest.mark.parametrize("call, state", [
    ("collegedb_lookup_add('k', 'items', NULL)", "22004"),
    ("collegedb_lookup_add(NULL, 'items', '{a}')", "22004"),
    ("collegedb_lookup_add('k', NULL, '{a}')", "22004"),
    ("collegedb_lookup_add('k', 'items', ARRAY['a', NULL])", "22004"),
    ("collegedb_lookup_add('k', 'items', ARRAY['a', ''])", "22023"),
    ("collegedb_lookup_add('k', 'items', 'a')", "22P02"),
    (f"collegedb_lookup_add('k', 'items', '{{{'x' * 1025}}}')", "22001"),
    ("collegedb_lookup_add('k', 'nothing', '{a}')", "42P01"),
    ("collegedb_lookup_remove('k', 'items', ARRAY[''])", "22023"),
    ("collegedb_lookups(NULL, 'items')", "22004"),
    ("collegedb_import(NULL)", "22004"),
    ("collegedb_import('nothing')", "42P01"),
    ("collegedb_import('items', 'perhaps')", "22P02"),
    ("collegedb_reconcile()", "55000"),
    ("collegedb_reconcile(repair => true)", "22023"),
    ("collegedb_reconcile(max_rows => 0)", "22023"),
    ("collegedb_reconcile(max_rows => 'many')", "22P02"),
    ("collegedb_reconcile(verify_tables => ARRAY['nothing'])", "42P01"),
])
def test_bad_arguments_are_refused(pair, call, state):
    assert refusal(lambda: pair[0].query(f"SELECT * FROM {call}"))[0] == state


def test_two_calls_for_one_name(pair, item):
    keys = [item() for _ in range(8)]
    results = [None] * len(keys)

    def add(i):
        proxy = pair[i % 2]
        wanted = ["race:1", "race:2", "race:3"] if i % 3 else ["race:3", "race:1", "race:2"]
        results[i] = attempt(
            lambda: proxy.query("SELECT collegedb_lookup_add(%s, 'items', %s)", (keys[i], wanted)))[0]

    threads = [threading.Thread(target=add, args=(i,)) for i in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=str) == ["23505"] * (len(keys) - 1) + [None]
    assert names(pair[0], keys[results.index(None)]) == ["race:1", "race:2", "race:3"]


@pytest.fixture(scope="module", name="loaded")
def _loaded(place, pair):
    """A table whose rows an operator has loaded straight into one shard, some of them into two."""
    place.everywhere("CREATE TABLE bulk (id text PRIMARY KEY, v int NOT NULL DEFAULT 0)")
    pair[0].query("SELECT * FROM collegedb_shard_table('bulk')")
    place.on(EAST, f"INSERT INTO bulk SELECT 'key-' || g FROM generate_series(1, {ROWS}) g")
    place.on(WEST, f"INSERT INTO bulk SELECT 'key-' || g FROM generate_series(1, {DOUBLED}) g")
    place.everywhere("ANALYZE bulk")
    return pair


@pytest.mark.deadline(400)
@pytest.mark.usefixtures("at_rest")
def test_rows_loaded_past_the_proxy_are_brought_into_the_directory(loaded, place):
    first, second = loaded
    astray = place.on(EAST, "SELECT count(*) FROM bulk WHERE collegedb.owner(%s, id) <> %s"
                            " AND substr(id, 5)::int > %s", (place.names, EAST, DOUBLED))[0][0]
    assert astray > ROWS / 2
    told = row(first, "SELECT * FROM collegedb_import('bulk', dry_run => true)")
    assert (told["examined"], told["mapped"], told["conflicts"]["count"]) == (ROWS, astray, DOUBLED)
    assert place.on(EAST, "SELECT count(*) FROM collegedb.exceptions WHERE grp = 'public.bulk'") == [(0,)]
    assert not any(rows[0][0] for rows in place.everywhere(
        "SELECT count(*) FROM collegedb.retired WHERE grp = 'public.bulk'").values())

    # One that has slept through it all knows only the owners.
    second.freeze()
    done = row(first, "SELECT * FROM collegedb_import('bulk')")
    assert (done["examined"], done["mapped"]) == (ROWS, astray)
    conflicts = done["conflicts"]
    assert conflicts["count"] == DOUBLED and len(conflicts["keys"]) == 1000
    assert all(each["shards"] == [EAST, WEST] and each["directory"] is None and "several shards" in each["reason"]
               for each in conflicts["keys"])
    sample = place.on(EAST, "SELECT id FROM bulk WHERE substr(id, 5)::int > %s ORDER BY md5(id) LIMIT 60", (DOUBLED,))
    second.thaw()
    for proxy in (second, first):
        with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
            for (key,) in sample:
                cursor.execute("UPDATE bulk SET v = v + 1 WHERE id = %s", (key,))
                assert cursor.rowcount == 1, key
                cursor.execute("INSERT INTO bulk VALUES (%s) ON CONFLICT DO NOTHING", (key,))
                assert cursor.rowcount == 0, f"{key} was made a second time"
    assert first.query("SELECT count(*) FROM bulk") == [(ROWS + DOUBLED,)]
    again = row(second, "SELECT examined, mapped FROM collegedb_import('bulk')")
    assert again == {"examined": ROWS, "mapped": 0}
    located = {row(first, "SELECT shard FROM collegedb_locate(%s, 'bulk')", (key,))["shard"] for (key,) in sample}
    assert located == {EAST}


@pytest.mark.deadline(240)
def test_conflicts_are_put_right_and_imported(loaded, place):
    first, _ = loaded
    place.on(WEST, "DELETE FROM bulk")
    done = row(first, "SELECT * FROM collegedb_import('bulk')")
    assert done["conflicts"] == {"count": 0, "keys": []}
    assert 0 < done["mapped"] < DOUBLED
    assert first.query("SELECT v FROM bulk WHERE id = 'key-7'") == [(0,)]
    # Its tombstones are no debris of moves.
    assert row(first, "SELECT ghosts, stranded_archives FROM collegedb_verify()") == {
        "ghosts": [], "stranded_archives": []}


@pytest.mark.deadline(300)
@pytest.mark.usefixtures("at_rest")
def test_writers_go_on_during_an_import(pair, place, keys):
    """Keys without rows at their owner while writers upsert them: every acknowledged write is there,
    and a key that was adopted has rows on one shard."""
    first, second = pair
    place.everywhere("CREATE TABLE busy (id text PRIMARY KEY, n int NOT NULL)")
    first.query("SELECT * FROM collegedb_shard_table('busy')")
    mine = [keys.on(WEST) for _ in range(150)]
    for key in mine:
        place.on(EAST, "INSERT INTO busy VALUES (%s, 0)", (key,))
    acknowledged = dict.fromkeys(mine, 0)
    errors = []
    imported = threading.Event()

    def write(proxy):
        with contextlib.closing(proxy.connect()) as connection, connection.cursor() as cursor:
            ended = 0
            while ended < 2 and not errors:
                ended += imported.is_set()
                for key in mine[::2] if proxy is first else mine[1::2]:
                    try:
                        cursor.execute("UPDATE busy SET n = n + 1 WHERE id = %s", (key,))
                        acknowledged[key] += cursor.rowcount
                    except psycopg2.Error as error:
                        errors.append(error)

    writers = [threading.Thread(target=write, args=(proxy,)) for proxy in pair]
    for writer in writers:
        writer.start()
    done = row(second, "SELECT * FROM collegedb_import('busy')")
    imported.set()
    for writer in writers:
        writer.join()
    assert not errors, errors
    assert done["mapped"] == len(mine) and done["conflicts"]["count"] == 0, done
    assert dict(place.on(EAST, "SELECT id, n FROM busy")) == acknowledged
    assert place.on(WEST, "SELECT * FROM busy") == []
    assert min(acknowledged.values()) > 0


def test_the_ledger_is_compared_with_the_directory(pair, place, item, move):
    first, _ = pair
    stays, moves, lost = item(EAST), item(EAST), item(WEST)
    move(moves, NORTH)
    for key, shard in ((stays, EAST), (moves, EAST), (lost, NORTH), ("never-written", WEST)):
        place.on(EAST, "INSERT INTO collegedb.allocations (scope, grp, key, shard, strategy, allocated_at)"
                       " SELECT scope, 'public.items', %s, %s, 'hash', now() - interval '1 hour'"
                       " FROM collegedb.manifest", (key, shard))
    owner = place.on(EAST, "SELECT collegedb.owner(%s, 'never-written')", (place.names,))[0][0]
    place.on(EAST, "UPDATE collegedb.allocations SET shard = %s WHERE key = 'never-written'", (owner,))
    done = row(first, "SELECT * FROM collegedb_reconcile(verify_tables => ARRAY['items'])")
    assert done == {
        "examined": 4, "routing_agreed": 3, "record_verified": 3, "record_missing_count": 1, "record_unchecked": 0,
        "disagreeing_count": 1,
        "missing_keys": [{"grp": "public.items", "key": "never-written", "ledger": owner, "routing": owner}],
        "disagreeing_keys": [{"grp": "public.items", "key": lost, "ledger": NORTH, "routing": WEST}],
        "repaired": 0, "pruned": 0}
    assert row(first, "SELECT examined, record_unchecked FROM collegedb_reconcile(2)") == {
        "examined": 2, "record_unchecked": 2}
    done = row(first, "SELECT pruned, examined FROM collegedb_reconcile(NULL, %s, prune_verified => true)",
               (["public.items"],))
    assert done == {"pruned": 3, "examined": 4}
    assert place.on(EAST, "SELECT key FROM collegedb.allocations") == [(lost,)]
