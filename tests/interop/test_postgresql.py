"""psql with `pg_advisory_lock()`, for sessions and transactions, and lockctl keep each other out."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs import LIMIT, eventually
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.postgres import Postgres

    Psql = Callable[..., "Session"]

HELD = 75  # what lockctl ends with when another holds the lock


class Session:
    """One psql that is given a statement at a time."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [programs.find("psql"), "-XAtqd", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            env=programs.environment(),
        )

    def send(self, statement: str) -> None:
        """Without waiting for the answer, which is one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{statement};\n")

    def answer(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, statement: str) -> str:
        """The line that it prints for a statement."""
        self.send(statement)
        return self.answer()

    def end(self) -> None:
        """Leave, with all that it holds; may be called again."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()


@pytest.fixture
def url(postgres_server: Postgres) -> str:
    return f"{postgres_server.url}?prefix=interop-{os.urandom(4).hex()}:"


@pytest.fixture
def psql(postgres_server: Postgres) -> Iterator[Psql]:
    """Start a psql."""
    started: list[Session] = []

    def start() -> Session:
        started.append(Session(postgres_server.url))
        return started[-1]

    yield start
    for session in started:
        session.end()


def inspect(lockctl: Lockctl, url: str) -> dict[str, Any]:
    answer = lockctl("inspect", "nightly", "--json", "-b", url)
    assert answer.returncode in (0, 1), answer.stderr  # 1: not known yet
    seen = json.loads(answer.stdout)
    assert isinstance(seen, dict)
    return seen


def run(lockctl: Lockctl, url: str, *words: str) -> int:
    return lockctl("run", "-b", url, "-l", "nightly", *words, "--", "true").returncode


@pytest.mark.parametrize("more", ["", "&key=-42", "&key=4,-2", "&scope=transaction"])
@pytest.mark.parametrize("kind", ["", "_xact"])
def test_psql_is_refused_while_lockctl_holds_and_lockctl_while_psql_does(
    lockctl: Lockctl, url: str, psql: Psql, more: str, kind: str
) -> None:
    url += more
    key = inspect(lockctl, url)["key"]
    session = psql()
    holder = lockctl.start_holding("nightly", "-b", url)
    assert session.ask(f"select pg_try_advisory{kind}_lock({key})") == "f"
    holder.terminate()
    holder.wait(LIMIT)
    session.send("begin")
    assert session.ask(f"select pg_try_advisory{kind}_lock({key})") == "t"
    assert run(lockctl, url) == HELD
    assert inspect(lockctl, url)["state"] == "foreign"
    session.send("commit")
    if not kind:
        assert session.ask(f"select pg_advisory_unlock({key})") == "t"
    assert session.ask("select 1") == "1"
    assert run(lockctl, url) == 0


def test_psql_that_waits_goes_on_when_the_job_has_ended(lockctl: Lockctl, url: str, psql: Psql) -> None:
    session = psql()
    key = inspect(lockctl, url)["key"]
    holder = lockctl.start_holding("nightly", "-b", url)
    session.send(f"select pg_advisory_lock({key}), 'mine'")
    (waiter,) = eventually(lambda: inspect(lockctl, url)["waiters"])
    assert (waiter["user"], waiter["pid"]) == ("lockctl", None)
    holder.terminate()
    holder.wait(LIMIT)
    assert session.answer() == "|mine"
    assert run(lockctl, url) == HELD


def test_lockctl_that_waits_goes_on_when_psql_has_left(lockctl: Lockctl, url: str, psql: Psql) -> None:
    session = psql()
    session.ask(f"select pg_advisory_lock({inspect(lockctl, url)['key']})")
    waiter = lockctl.start("run", "-b", url, "-l", "nightly", "-w", "20s", "--", "true")
    eventually(lambda: inspect(lockctl, url)["waiters"])
    session.end()
    assert waiter.wait(LIMIT) == 0


def test_a_shared_lock_of_psql_keeps_lockctl_out(lockctl: Lockctl, url: str, psql: Psql) -> None:
    key = inspect(lockctl, url)["key"]
    session = psql()
    session.ask(f"select pg_advisory_lock_shared({key})")
    assert run(lockctl, url) == HELD
    assert session.ask(f"select pg_advisory_unlock_shared({key})") == "t"
    assert run(lockctl, url) == 0


def test_the_session_of_psql_can_be_ended_by_force(lockctl: Lockctl, url: str, psql: Psql) -> None:
    session = psql()
    session.ask(f"select pg_advisory_lock({inspect(lockctl, url)['key']})")
    refused = lockctl("force-release", "nightly", "-b", url, "--yes")
    assert refused.returncode != 0
    assert run(lockctl, url) == HELD
    done = lockctl("force-release", "nightly", "-b", url, "--yes", "--now")
    assert done.returncode == 0, done.stderr
    assert run(lockctl, url) == 0


def test_runs_through_a_pooler_and_past_it_exclude_each_other(
    lockctl: Lockctl, url: str, postgres_server: Postgres, pgbouncer_transaction: PgBouncer
) -> None:
    pooled = url.replace(postgres_server.address, pgbouncer_transaction.address) + "&scope=transaction"
    holder = lockctl.start_holding("nightly", "-b", pooled)
    assert run(lockctl, url) == HELD
    holder.terminate()
    holder.wait(LIMIT)
    holder = lockctl.start_holding("nightly", "-b", url)
    assert run(lockctl, pooled) == HELD
    holder.terminate()
    holder.wait(LIMIT)
    assert run(lockctl, pooled) == 0


@pytest.mark.parametrize("more", ["", "&key=4,-2", "&scope=transaction"])
def test_readers_of_psql_and_lockctl_stand_beside_each_other_and_keep_writers_out(
    lockctl: Lockctl, url: str, psql: Psql, more: str
) -> None:
    url += more
    key = inspect(lockctl, url)["key"]
    theirs, writer = psql(), psql()
    assert theirs.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert run(lockctl, url) == HELD
    holder = lockctl.start_holding("nightly", "-b", url, "--shared")
    assert run(lockctl, url, "--shared") == 0
    seen = inspect(lockctl, url)
    assert seen["state"] == "held"
    assert sorted((holder["mode"], holder["owner"] is None) for holder in seen["holders"]) == [
        ("shared", False),
        ("shared", True),
    ]
    theirs.end()
    assert writer.ask(f"select pg_try_advisory_lock({key})") == "f"
    writer.send(f"select pg_advisory_lock({key}), 'mine'")
    eventually(lambda: inspect(lockctl, url)["waiters"])
    assert run(lockctl, url, "--shared") == HELD, "a writer waits"
    holder.terminate()
    holder.wait(LIMIT)
    assert writer.answer() == "|mine"
    assert run(lockctl, url, "--shared") == HELD


def test_psql_can_use_the_slots_of_lockctl(lockctl: Lockctl, url: str, psql: Psql) -> None:
    session, prefix = psql(), url.partition("prefix=")[2]
    key = inspect(lockctl, url)["key"]
    turnstile = f"('x' || left(encode(sha256('{prefix}nightly#'), 'hex'), 12) || '0000')::bit(64)::bigint"
    slot = f"select n from generate_series(1, 2) n where pg_try_advisory_lock({turnstile} + n) limit 1"
    holder = lockctl.start_holding("nightly", "-b", url, "--slots", "2")
    assert session.ask(f"select pg_try_advisory_lock({key})") == "f"
    assert session.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert session.ask(slot) == "2"
    assert run(lockctl, url, "--slots", "2") == HELD
    waiter = lockctl.start("run", "-b", url, "-l", "nightly", "--slots", "2", "-w", "20s", "--", "true")
    eventually(lambda: inspect(lockctl, url)["waiters"])
    session.end()
    assert waiter.wait(LIMIT) == 0
    session = psql()
    assert session.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert session.ask(slot) == "2"
    holder.terminate()
    holder.wait(LIMIT)
    assert run(lockctl, url, "--slots", "2") == 0


def test_a_hold_is_kept_by_lockctl_and_not_seen_by_psql(lockctl: Lockctl, url: str, psql: Psql) -> None:
    session = psql()
    key = inspect(lockctl, url)["key"]
    assert run(lockctl, url, "--min-hold", "30s") == 0
    assert run(lockctl, url) == HELD
    assert session.ask(f"select pg_try_advisory_lock({key})") == "t"
    assert run(lockctl, url) == HELD
    session.end()
    done = lockctl("force-release", "nightly", "-b", url, "--yes", "--now")
    assert done.returncode == 0, done.stderr
    assert run(lockctl, url) == 0
