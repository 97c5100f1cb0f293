"""What lockctl-fencing(7) tells people to do with their data does what it says, as it stands there."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2.extensions
import pytest
import redis

from lockctl.model import Revocation
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Claim
    from tests.servers.consul import Consul
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


def test_the_transaction_of_consul_refuses_who_is_not_the_holder_any_more(
    consul_server: Consul, need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    for tool in ("curl", "jq"):
        need_tool(tool)
    asking, beginning, writing = example("key=lockctl/").partition("test ")
    name, at = f"recipe-{os.urandom(4).hex()}", f"http://{consul_server.address}"

    def run(script: str, holder: Claim, data: str, session: str = "") -> tuple[bool, str]:
        (tmp_path / "new").write_text(data)
        variables = {"LOCKCTL_OWNER": holder.owner, "LOCKCTL_LOCK": name, "CONSUL_HTTP_ADDR": at, "session": session}
        variables["key"] = f"lockctl/{name}/.lock"
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        return done.returncode == 0, done.stdout

    def stored() -> str:
        return subprocess.run(
            ["curl", "-sf", f"{at}/v1/kv/stock?raw"], capture_output=True, text=True, check=True
        ).stdout

    whole = asking + beginning + writing
    with contextlib.closing(open_backend(parse_url(f"consul://{consul_server.address}"))) as locks:
        older, newer = claim(name, ttl=20.0), claim(name, ttl=20.0)
        take(locks, older)
        assert run(whole, older, "by the older")[0]
        assert not run(whole, newer, "by one who waits")[0]
        _, session = run(f'{asking} printf %s "$session"', older, "")
        assert session
        (holder,) = locks.inspect(name, timeout=LIMIT).holders
        assert locks.revoke(name, holder, Revocation(True, "ops", "a test"), timeout=LIMIT)
        assert not run(whole, older, "when nobody holds it")[0]
        granted = take(locks, newer)
        assert stored() == "by the older"
        assert not run(whole, older, "late")[0]
        assert not run(beginning + writing, older, "late", session)[0]  # paused in between
        assert stored() == "by the older"
        assert run(whole, newer, "by the newer")[0]
        assert stored() == "by the newer"
        locks.release(granted, timeout=LIMIT)
    subprocess.run(["curl", "-sf", "-X", "DELETE", f"{at}/v1/kv/stock"], capture_output=True, check=True)
