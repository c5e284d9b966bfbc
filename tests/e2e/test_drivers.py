"""Drivers as people use them: connect, prepare, insert, read back, run a transaction, handle errors."""

import asyncio
import datetime
import glob
import shutil
import subprocess

import asyncpg
import psycopg
import psycopg2
import psycopg2.errors
import pytest

pytestmark = pytest.mark.usefixtures("at_rest")


@pytest.fixture(scope="module")
def app(place, proxies):
    place.everywhere("CREATE TABLE people (id bigint PRIMARY KEY, name text, born date, score numeric, data jsonb)")
    proxy = proxies(pool={"size": 3})
    proxy.query("SELECT * FROM collegedb_shard_table('people', 'id')")
    return proxy


def test_psycopg2(app):
    connection = psycopg2.connect(app.conninfo())
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO people VALUES (%s, %s, '2001-02-03', 1.50, '{\"a\": 1}') RETURNING id", (1, "ann"))
        assert cursor.fetchall() == [(1,)]
        cursor.execute("UPDATE people SET score = score + 1 WHERE id = %s RETURNING score::text", (1,))
        assert cursor.fetchall() == [("2.50",)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, born, data FROM people WHERE id = 1")
        name, born, data = cursor.fetchone()
        assert (name, born.isoformat(), data) == ("ann", "2001-02-03", {"a": 1})
        with pytest.raises(psycopg2.errors.UniqueViolation):
            cursor.execute("INSERT INTO people (id) VALUES (1)")
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            cursor.execute("SELECT name FROM people WHERE id = 1")
        connection.rollback()
        cursor.execute("SELECT count(*) FROM people WHERE id = 1")
        assert cursor.fetchone() == (1,)
    connection.close()


@pytest.mark.parametrize("threshold", [None, 0, 1], ids=["extended", "prepared at once", "prepared later"])
def test_psycopg3(app, threshold):
    base = 100 + 10 * (threshold or 0) + (5 if threshold is None else 0)
    with psycopg.connect(app.conninfo(), prepare_threshold=threshold) as connection:
        for number in range(4):
            connection.execute("INSERT INTO people (id, name) VALUES (%s, %s)", (base, "bob"))
            connection.rollback()
        connection.execute("INSERT INTO people (id, name) VALUES (%s, %s)", (base, "bob"))
        connection.commit()
        for _ in range(3):
            row = connection.execute("SELECT name FROM people WHERE id = %s", (base,)).fetchone()
            assert row == ("bob",)
            connection.commit()
        with connection.cursor(binary=True) as cursor:
            cursor.execute("SELECT id, name FROM people WHERE id = %b", (base,))
            assert cursor.fetchall() == [(base, "bob")]
        connection.commit()
        with connection.transaction():
            connection.execute("UPDATE people SET name = 'eve' WHERE id = %s", (base,))
            with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
                connection.execute("UPDATE people SET score = 1 / 0 WHERE id = %s", (base,))
        assert connection.execute("SELECT name FROM people WHERE id = %s", (base,)).fetchone() == ("eve",)


def test_psycopg3_pipeline(app):
    with psycopg.connect(app.conninfo(), autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            for number in range(200, 210):
                connection.execute("INSERT INTO people (id, name) VALUES (%s, 'p')", (number,))
                pipeline.sync()
            cursors = []
            for number in range(200, 210):
                cursors.append(connection.execute("SELECT id FROM people WHERE id = %s", (number,)))
                pipeline.sync()
        assert [c.fetchone()[0] for c in cursors] == list(range(200, 210))


def test_asyncpg(app):
    async def run():
        connection = await asyncpg.connect(host="127.0.0.1", port=app.port, user="postgres", database="app")
        try:
            statement = await connection.prepare("INSERT INTO people (id, name, born) VALUES ($1, $2, $3)")
            for number in range(300, 306):
                await statement.fetch(number, "kim", datetime.date(2000, 1, 1))
            rows = await connection.fetch("SELECT id, born FROM people WHERE id = $1", 303)
            assert [(r["id"], r["born"].year) for r in rows] == [(303, 2000)]
            async with connection.transaction():
                await connection.execute("UPDATE people SET name = 'jo' WHERE id = $1", 300)
                assert await connection.fetchval("SELECT name FROM people WHERE id = $1", 300) == "jo"
            with pytest.raises(asyncpg.UniqueViolationError):
                await connection.execute("INSERT INTO people (id) VALUES ($1)", 300)
            with pytest.raises(asyncpg.PostgresSyntaxError):
                await connection.fetch("SELEC 1")
            assert await connection.fetchval("SELECT count(*) FROM people WHERE id = $1", 300) == 1
            async with connection.transaction():
                cursor = await connection.cursor("SELECT generate_series(1, 5)")
                assert [r[0] for r in await cursor.fetch(2)] == [1, 2]
                assert [r[0] for r in await cursor.fetch(9)] == [3, 4, 5]
        finally:
            await connection.close()
        pool = await asyncpg.create_pool(host="127.0.0.1", port=app.port, user="postgres", database="app",
                                         min_size=4, max_size=8)
        try:
            async def one(number):
                async with pool.acquire() as held:
                    return await held.fetchval("SELECT id FROM people WHERE id = $1", 300 + number % 6)
            assert await asyncio.gather(*(one(n) for n in range(60))) == [300 + n % 6 for n in range(60)]
        finally:
            await pool.close()

    asyncio.run(asyncio.wait_for(run(), 45))


NODE = r"""
const {Client, Pool} = require('pg');
const assert = require('assert');
(async () => {
  const where = {host: '127.0.0.1', port: +process.argv[2], user: 'postgres', database: 'app'};
  const client = new Client(where);
  await client.connect();
  for (const id of [400, 401, 402]) {
    const done = await client.query({name: 'put', text: 'INSERT INTO people (id, name, data) VALUES ($1, $2, $3)',
                                     values: [id, 'node', {n: id}]});
    assert.strictEqual(done.rowCount, 1);
  }
  const back = await client.query({name: 'get', text: 'SELECT id, data FROM people WHERE id = $1', values: [401]});
  assert.deepStrictEqual(back.rows, [{id: '401', data: {n: 401}}]);
  await client.query('BEGIN');
  await client.query('UPDATE people SET name = $1 WHERE id = $2', ['x', 400]);
  await client.query('ROLLBACK');
  await assert.rejects(client.query('INSERT INTO people (id) VALUES (400)'), {code: '23505'});
  await assert.rejects(client.query('SELECT nosuch FROM people WHERE id = $1', [400]), {code: '42703'});
  assert.strictEqual((await client.query('SELECT name FROM people WHERE id = 400')).rows[0].name, 'node');
  await client.end();
  const pool = new Pool({...where, max: 8});
  const rows = await Promise.all([...Array(40).keys()].map(
      n => pool.query('SELECT $1::int AS n, name FROM people WHERE id = $2', [n, 400 + n % 3])));
  rows.forEach((r, n) => assert.deepStrictEqual(r.rows, [{n, name: 'node'}]));
  await pool.end();
  console.log('done');
})().catch(error => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "pg@8"], cwd=folder,
                          capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.deadline(180)
def test_node_pg(app, node_modules):
    script = node_modules / "smoke.js"
    script.write_text(NODE)
    done = subprocess.run(["node", str(script), str(app.port)], cwd=node_modules, capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stdout + done.stderr


JAVA = r"""
import java.sql.*;

public class Smoke {
  static void check(boolean right, String what) {
    if (!right) throw new IllegalStateException(what);
  }

  public static void main(String[] args) throws Exception {
    try (Connection c = DriverManager.getConnection(args[0])) {
      try (PreparedStatement put = c.prepareStatement("INSERT INTO people (id, name) VALUES (?, ?)")) {
        for (int id = 500; id < 512; ++id) {  // more than prepareThreshold: becomes a named statement
          put.setLong(1, id);
          put.setString(2, "java");
          check(put.executeUpdate() == 1, "insert");
        }
        for (int id = 520; id < 524; ++id) {
          put.setLong(1, id);
          put.setString(2, "batch");
          put.addBatch();
        }
        c.setAutoCommit(false);
        try {
          for (int count : put.executeBatch()) check(count == 1, "batch");
          c.commit();
        } catch (BatchUpdateException refused) {  // one transaction over several shards: a later step
          check(refused.getSQLState().equals("0A000"), "batch: " + refused.getSQLState() + refused);
          c.rollback();
        }
      }
      try (PreparedStatement get = c.prepareStatement("SELECT id, name FROM people WHERE id = ?")) {
        for (int id = 500; id < 512; ++id) {
          get.setLong(1, id);
          try (ResultSet rows = get.executeQuery()) {
            check(rows.next() && rows.getLong(1) == id && rows.getString(2).equals("java") && !rows.next(), "read");
          }
          c.commit();
        }
      }
      try (Statement s = c.createStatement()) {
        check(s.executeUpdate("UPDATE people SET name = 'tx' WHERE id = 500") == 1, "update");
        c.rollback();
        try {
          s.executeUpdate("INSERT INTO people (id) VALUES (500)");
          check(false, "duplicate accepted");
        } catch (SQLException duplicate) {
          check(duplicate.getSQLState().equals("23505"), duplicate.toString());
        }
        c.rollback();
        try (ResultSet rows = s.executeQuery("SELECT name FROM people WHERE id = 500")) {
          check(rows.next() && rows.getString(1).equals("java"), "after rollback");
        }
        c.commit();
      }
      try (PreparedStatement paged = c.prepareStatement("SELECT generate_series(1, 25)")) {
        paged.setFetchSize(10);  // portals with a row limit
        int sum = 0;
        try (ResultSet rows = paged.executeQuery()) {
          while (rows.next()) sum += rows.getInt(1);
        }
        check(sum == 325, "paged " + sum);
        c.commit();
      }
    }
    System.out.println("done");
  }
}
"""


@pytest.mark.deadline(120)
def test_pgjdbc(app, tmp_path):
    jars = glob.glob("/usr/share/java/postgresql.jar")
    assert jars and shutil.which("javac"), "libpostgresql-jdbc-java and a JDK are needed"
    (tmp_path / "Smoke.java").write_text(JAVA)
    subprocess.run(["javac", "-J-Xmx200m", "Smoke.java"], cwd=tmp_path, check=True, timeout=90)
    url = f"jdbc:postgresql://127.0.0.1:{app.port}/app?user=postgres"
    done = subprocess.run(["java", "-Xmx200m", "-cp", f"{jars[0]}:{tmp_path}", "Smoke", url], capture_output=True,
                          text=True, check=False, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stdout + done.stderr
