"""What `lockctl fence sql --dialect mysql` prints runs as it is printed, and refuses what is stale."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from lockctl.fence import LARGEST, sql
from tests.fence.contract import LIMIT, OTHER, Client, mark
from tests.fence.databases import MysqlHarness
from tests.fence.printed import NAME, STOCK, examples, starting
from tests.jobs import eventually
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.fence import Mark
    from tests.servers.mariadb import MariaDb

PADDED = mark(1).domain + " "  # as a text, the same to MySQL

HARD = "file:h:/o'brien's \\ \"$(x)\" \N{SNOWMAN} "  # to quote for SQL and for a shell


def printed_init(shown: Mark) -> str:
    """The option of the client that is printed, as a shell makes it."""
    lines = [line.removeprefix("--   ") for line in sql.text("mysql").splitlines()]
    recipe = [line for line in lines if line.startswith(("hex=", "mariadb "))]
    assert len(recipe) == 2
    script = "\n".join(['mariadb() { printf %s "$1"; }', *recipe])
    return programs.run(["sh", "-c", script], LOCKCTL_TOKEN=str(shown.token), LOCKCTL_TOKEN_DOMAIN=shown.domain)


class Program:
    """A program with an init command for its connections, and nothing else of ours."""

    def __init__(self, harness: MysqlHarness) -> None:
        self.harness = harness

    def connect(self, shown: Mark | None, charset: str = "utf8mb4") -> Any:
        """A connection that counts the rows that a statement has found."""
        server = self.harness.server
        quoted = "" if shown is None else shown.domain.replace("\\", "\\\\").replace("'", "''")
        return pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=self.harness.database,
            charset=charset,
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
            init_command=None
            if shown is None
            else f"SET @lockctl_token = '{shown.token}', @lockctl_domain = '{quoted}'",
        )

    def run(self, statement: str, shown: Mark | None = None, charset: str = "utf8mb4") -> None:
        """One statement and a commit. Raises ``pymysql.err.MySQLError``."""
        with contextlib.closing(self.connect(shown, charset)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()

    def amount(self) -> str:
        """What is in the table."""
        return self.harness.command("select amount from stock where id = 1")


@pytest.fixture
def program(mariadb_server: MariaDb) -> Iterator[Program]:
    with contextlib.closing(MysqlHarness(mariadb_server, table=False)) as harness:
        for _ in range(2):
            mariadb_server.client([], database=harness.database, text=sql.text("mysql", NAME))
        harness.command(STOCK)
        yield Program(harness)


def fence_table(program: Program) -> None:
    for statement in starting(sql.text("mysql", NAME), "CREATE TRIGGER"):
        program.harness.command(statement)


def test_mysql_runs_all_that_is_printed(program: Program) -> None:
    harness = program.harness
    shown = mark(33, HARD)
    init = printed_init(shown)
    printed = harness.server.client([init], database=harness.database, text="".join(examples(sql.text("mysql", NAME))))
    assert printed.splitlines() == ["33"]
    assert program.amount() == "9"
    with contextlib.closing(program.connect(None)) as connection, connection.cursor() as cursor:
        cursor.execute("select * from lockctl_mark")
        assert cursor.fetchall() == ((NAME, HARD, 33),)
        cursor.execute("select fence_domain, fence_token from stock")
        assert cursor.fetchall() == ((HARD, 33),)


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1"])
@pytest.mark.parametrize(
    "change", ["insert into stock values (2, 5)", "update stock set amount = 7", "delete from stock"]
)
def test_a_mysql_trigger_fences_a_program_that_knows_nothing(program: Program, change: str, charset: str) -> None:
    fence_table(program)
    client = Client(program.harness, NAME)
    client.advance(mark(2**53 + 1))
    for offered, reason in (
        (None, "refuses a change without a fencing token"),
        (mark(2**53), f"refuses token {2**53}: it has already seen token {2**53 + 1}"),
        (mark(2**53 + 2, OTHER), f"its mark is of another domain, {mark(1).domain}"),
        (mark(2**53 + 2, PADDED), f"its mark is of another domain, {mark(1).domain}"),
    ):
        with pytest.raises(pymysql.err.MySQLError) as refused:
            program.run(change, offered, charset)
        assert NAME in str(refused.value.args[1])
        assert reason in refused.value.args[1]
    assert program.harness.command("select * from stock") == "1\t10"
    program.run(change, mark(2**53 + 1), charset)
    assert program.harness.command("select * from stock") != "1\t10"
    program.run("insert into stock values (9, 9)", mark(2**53 + 2), charset)
    assert client.current() == mark(2**53 + 2)
    client.store.close()


@pytest.mark.parametrize(
    "token", ["''", "'x'", "-1", "0", "'33 '", "1.5", "'1e3'", str(LARGEST + 1), "'" + "9" * 19 + "'", "NULL"]
)
def test_a_mysql_trigger_takes_nothing_for_a_token_that_is_none(program: Program, token: str) -> None:
    fence_table(program)
    with contextlib.closing(program.connect(None)) as connection, connection.cursor() as cursor:
        cursor.execute(f"set @lockctl_token = {token}, @lockctl_domain = 'd', sql_mode = ''")
        with pytest.raises(pymysql.err.MySQLError, match="without a fencing token"):
            cursor.execute("delete from stock")
        cursor.execute("set @lockctl_token = 33, @lockctl_domain = NULL")
        with pytest.raises(pymysql.err.MySQLError, match="without a fencing token"):
            cursor.execute("delete from stock")
        cursor.execute(f"set @lockctl_token = {LARGEST}, @lockctl_domain = 'd'")
        assert cursor.execute("delete from stock") == 1


def test_a_mysql_refusal_fits_into_a_message_however_long_the_names_are(mariadb_server: MariaDb) -> None:
    name = "r" * 300
    with contextlib.closing(MysqlHarness(mariadb_server)) as harness:
        harness.command(STOCK)
        for statement in starting(sql.text("mysql", name), "CREATE TRIGGER"):
            harness.command(statement)
        program = Program(harness)
        program.run("update stock set amount = 1", mark(LARGEST, "d" * 300))
        for offered in (None, mark(LARGEST - 1, "d" * 300), mark(LARGEST, "e" * 300)):
            with pytest.raises(pymysql.err.MySQLError, match="rrr refuses"):
                program.run("delete from stock", offered)


def test_an_old_mysql_writer_that_waits_for_a_newer_one_is_refused(program: Program) -> None:
    fence_table(program)
    program.run("update stock set amount = 20", mark(33))
    waiting = "select count(*) from information_schema.processlist where info like '%amount = 99'"
    with (
        contextlib.closing(program.connect(mark(34))) as newer,
        newer.cursor() as cursor,
        ThreadPoolExecutor(1) as pool,
    ):
        cursor.execute("update stock set amount = amount + 1 where id = 1")
        older = pool.submit(program.run, "update stock set amount = 99", mark(33))
        eventually(lambda: program.harness.command(waiting) == "1")
        newer.commit()
        with pytest.raises(pymysql.err.MySQLError, match="already seen token 34"):
            older.result(LIMIT)
    assert program.amount() == "21"


def test_a_mysql_program_that_checks_by_itself_sees_whether_it_is_stale(program: Program) -> None:
    text = sql.text("mysql", NAME)
    begin, upsert, look = [each for each in examples(text) if each.startswith(("START", "INSERT", "SELECT"))]
    found = []
    for offered in (mark(33), mark(34), mark(34), mark(33), mark(35, OTHER), mark(35, PADDED)):
        with contextlib.closing(program.connect(offered)) as connection, connection.cursor() as cursor:
            cursor.execute(begin)
            cursor.execute(upsert)
            cursor.execute(look)
            found.append(cursor.fetchall())
            connection.commit()
    assert found == [((33,),), ((34,),), ((34,),), (), (), ()]


def test_a_row_with_its_own_mark_in_mysql_refuses_older_tokens(program: Program) -> None:
    text = sql.text("mysql", NAME)
    program.harness.command("".join(starting(text, "ALTER TABLE")))
    show, write = starting(text, "UPDATE stock")
    counts = []
    for offered in (mark(33), mark(34), mark(34), mark(33), mark(35, OTHER), mark(35, PADDED)):
        with contextlib.closing(program.connect(offered)) as connection, connection.cursor() as cursor:
            counts += [cursor.execute(statement) for statement in (show, write)]
            connection.commit()
    assert counts == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert program.amount() == "7"
