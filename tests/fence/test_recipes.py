"""What lockctl-fencing(7) tells people to put into their databases does what it says, as it stands there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2.extensions
import pytest
import redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis

PAGE = Path(__file__).parents[2] / "man" / "text" / "lockctl-fencing.7.txt"
REFUSED = [("d", 33), ("d", 9), ("e", 34), ("e", 10**18)]  # when the mark is 34 of domain d


def example(first_words: str) -> str:
    """The indented lines of the page that begin with these words."""
    found = [
        textwrap.dedent(block)
        for block in PAGE.read_text(encoding="utf-8").split("\n\n")
        if block.startswith(f"    {first_words}")
    ]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[psycopg2.extensions.cursor]:
    """A transaction that is never committed, with the tables of the recipes."""
    connection = psycopg2.connect(postgres_server.url)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE lockctl_mark (resource text PRIMARY KEY, domain text NOT NULL, token bigint NOT NULL)"
        )
        cursor.execute("CREATE TEMP TABLE account (id int, balance int, token bigint)")
        yield cursor
    connection.close()


def test_the_statement_for_a_transaction_refuses_old_tokens_and_other_domains(
    database: psycopg2.extensions.cursor,
) -> None:
    statement = example("INSERT INTO lockctl_mark").rstrip().rstrip(";")
    database.execute(f"PREPARE show (text, text, bigint) AS {statement}")

    def accepted(domain: str, token: int) -> bool:
        database.execute("EXECUTE show ('stock', %s, %s)", (domain, token))
        return database.fetchall() == [(token,)]

    assert accepted("d", 33)
    assert accepted("d", 34)
    assert accepted("d", 34)
    assert [accepted(*each) for each in REFUSED] == [False] * len(REFUSED)
    database.execute("SELECT * FROM lockctl_mark")
    assert database.fetchall() == [("stock", "d", 34)]
    assert accepted("d", 2**63 - 1)


def test_the_statement_for_a_column_refuses_old_tokens(database: psycopg2.extensions.cursor) -> None:
    (statement,) = re.findall(r"`(UPDATE account [^`]*)`", PAGE.read_text(encoding="utf-8"))
    database.execute("INSERT INTO account VALUES (1, 10, 33)")
    database.execute(f"PREPARE change (int, bigint, int) AS {statement}")
    for balance, token, rows in [(20, 34, 1), (30, 33, 0), (40, 34, 1)]:
        database.execute("EXECUTE change (%s, %s, 1)", (balance, token))
        assert database.rowcount == rows
    database.execute("SELECT balance, token FROM account")
    assert database.fetchall() == [(40, 34)]


def test_the_script_for_redis_refuses_old_tokens_and_other_domains(redis_server: Redis) -> None:
    client = redis.Redis(redis_server.host, redis_server.port, decode_responses=True)
    data, mark = "recipe:stock", "recipe:stock.fence"
    write = client.register_script(example("local seen = "))
    assert client.delete(data, mark) == 0

    def accepted(domain: str, token: int) -> bool:
        try:
            write(keys=[data, mark], args=[domain, token, f"by {token}"])
        except redis.ResponseError as refused:
            return "STALE" not in str(refused)
        return True

    assert accepted("d", 9)
    assert accepted("d", 34)
    assert accepted("d", 34)
    assert [accepted(*each) for each in REFUSED] == [False] * len(REFUSED)
    assert client.get(data) == "by 34"
    assert accepted("d", 2**53 + 1)
    assert not accepted("d", 2**53)
    assert accepted("d", 2**63 - 1)
    assert not accepted("d", 2**63 - 2)
    client.delete(data, mark)
    client.close()
