"""Every admin function means the same table and the same key by the same words."""

import contextlib
import pathlib
import re

import psycopg2
import pytest


@pytest.fixture(name="two_groups", scope="module")
def _two_groups(place, proxy):
    place.everywhere('CREATE TABLE items (id text PRIMARY KEY, v int);'
                     'CREATE SCHEMA app; CREATE TABLE app.items (id text PRIMARY KEY, v int);'
                     'CREATE TABLE app."Items" (id bytea PRIMARY KEY, v int)')
    for table in ("items", "app.items", 'app."Items"'):
        proxy.query("SELECT * FROM collegedb_shard_table(%s)", (table,))
    return proxy


def moves(place):
    return place.on(0, "SELECT count(*) FROM collegedb.moves")[0][0]


CALLS = ("SELECT * FROM collegedb_locate({})", "SELECT * FROM collegedb_migration_status({})",
         "SELECT * FROM collegedb_reassign({}, shard => 'db-west')")


@pytest.mark.parametrize("call", CALLS)
def test_without_a_table_the_groups_are_listed(place, two_groups, call):
    before = moves(place)
    with pytest.raises(psycopg2.Error) as refused:
        two_groups.query(call.format("key => 'k1'"))
    assert refused.value.pgcode == "42725"
    assert 'app."Items", app.items, public.items' in str(refused.value)
    assert moves(place) == before


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("table", ['"ITEMS"', "nope", "app.items.x", '"items'])
def test_names_that_mean_nothing(place, two_groups, call, table):
    before = moves(place)
    with pytest.raises(psycopg2.Error) as refused:
        two_groups.query(call.format(f"key => 'k1', \"table\" => '{table}'"))
    assert refused.value.pgcode in ("42P01", "42602")
    assert moves(place) == before


@pytest.mark.parametrize("path, table, group", [
    ("public", "items", "public.items"), ("public", "ITEMS", "public.items"),
    ("app", "items", "app.items"), ("app, public", "Items", "app.items"),
    ("app", '"Items"', 'app."Items"'), ("app", "public.items", "public.items"),
])
def test_search_path_and_case(place, two_groups, path, table, group):
    key = "0a0b" if group == 'app."Items"' else "key " + path + table
    spelling = "\\x0A0B" if group == 'app."Items"' else key
    where = f"key => '{spelling}', \"table\" => '{table}'"
    with contextlib.closing(two_groups.connect()) as client:
        cursor = client.cursor()
        cursor.execute(f"SET search_path = {path}")
        cursor.execute(f"SELECT * FROM collegedb_locate({where})")
        owner = cursor.fetchone()[0]
        target = next(s for s in ("db-east", "db-west") if s != owner)
        cursor.execute(f"SELECT * FROM collegedb_reassign({where}, shard => '{target}')")
        op = cursor.fetchone()[0]
        cursor.execute(f"SELECT * FROM collegedb_migration_status({where})")
        assert cursor.fetchone()[0] == op
        cursor.execute(f"SELECT * FROM collegedb_locate({where})")
        assert cursor.fetchone()[0] == target
    assert place.on(0, "SELECT grp FROM collegedb.moves WHERE op = %s", (op,)) == [(group,)]
    assert place.on(0, "SELECT key FROM collegedb.exceptions WHERE grp = %s", (group,))[-1][0]


def test_a_bytea_key_is_moved_with_its_rows(place, two_groups):
    two_groups.query("INSERT INTO app.\"Items\" VALUES ('\\x0102', 1)")
    owner = two_groups.query("SELECT * FROM collegedb_locate('\\x0102', 'app.\"Items\"')")[0][0]
    target = next(s for s in ("db-east", "db-west") if s != owner)
    moved = two_groups.query("SELECT * FROM collegedb_reassign('\\x0102', %s, 'app.\"Items\"')", (target,))[0]
    assert (moved[4], moved[6]) == ("retired", 1)
    assert two_groups.query("SELECT v FROM app.\"Items\" WHERE id = '\\x0102'") == [(1,)]
    assert place.holders('app."Items"', "id", b"\x01\x02") == [target]


def test_errors_that_have_no_code_are_worded_as_postgresqls(place, two_groups):
    with pytest.raises(psycopg2.Error, match='operation "nope" does not exist') as unknown:
        two_groups.query("SELECT * FROM collegedb_cancel_move('nope')")
    assert unknown.value.pgcode == "42704"
    place.everywhere("CREATE TABLE exact (id numeric)")
    with pytest.raises(psycopg2.Error, match="cannot be a key column") as refused:
        two_groups.query("SELECT * FROM collegedb_shard_table('exact')")
    assert refused.value.pgcode == "0A000"
    assert "numeric(p,0)" in refused.value.diag.message_hint


def test_check_says_what_the_documents_say():
    root = pathlib.Path(__file__).parents[2]
    for name in ("README.md", "docs/errors.md", "docs/configuration.md", "migration/preflight.cpp",
                 "migration/mover.cpp", "proxy/admin/broadcast.cpp"):
        text = " ".join((root / name).read_text().replace('"', "").split())
        told = re.findall(r"at least (\d+)", text)
        assert told and set(told) == {"16"}, (name, told)
