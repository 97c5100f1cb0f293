"""psql with `pg_advisory_lock()`, for sessions and transactions, and lockctl keep each other out."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LockctlError
from tests.contract.harness import claim, one_of, reader, refused, take, waiters
from tests.contract.keeping import holder_of, revoke
from tests.jobs import LIMIT, eventually
from tests.servers import programs
from tests.stores.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.postgres import Postgres

    Psql = Callable[..., "Session"]

__all__ = ["opened"]  # a fixture
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


def view(opened: Callable[[str], Backend], url: str) -> tuple[Backend, str]:
    """Lockctl's own view of the lock, and its key."""
    client = opened(url)
    return client, client.inspect("nightly", timeout=LIMIT).key


def run(lockctl: Lockctl, url: str, *words: str) -> int:
    return lockctl("run", "-b", url, "-l", "nightly", *words, "--", "true").returncode


@pytest.mark.parametrize("more", ["", "&key=-42", "&key=4,-2", "&scope=transaction"])
@pytest.mark.parametrize("kind", ["", "_xact"])
def test_psql_is_refused_while_lockctl_holds_and_lockctl_while_psql_does(
    url: str, opened: Callable[[str], Backend], psql: Psql, more: str, kind: str
) -> None:
    client, key = view(opened, url + more)
    session, grant = psql(), take(client, claim())
    assert session.ask(f"select pg_try_advisory{kind}_lock({key})") == "f"
    client.release(grant, timeout=LIMIT)
    session.send("begin")
    assert session.ask(f"select pg_try_advisory{kind}_lock({key})") == "t"
    assert refused(client, claim())
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    session.send("commit")
    if not kind:
        assert session.ask(f"select pg_advisory_unlock({key})") == "t"
    assert session.ask("select 1") == "1"
    take(client, claim())


def test_psql_that_waits_goes_on_when_the_job_has_ended_and_lockctl_when_psql_has_left(
    lockctl: Lockctl, url: str, opened: Callable[[str], Backend], psql: Psql
) -> None:
    session, (client, key) = psql(), view(opened, url)
    holder = lockctl.start_holding("nightly", "-b", url)
    session.send(f"select pg_advisory_lock({key}), 'mine'")
    (waiter,) = eventually(lambda: client.inspect("nightly", timeout=LIMIT).waiters)
    assert (waiter.user, waiter.pid) == ("lockctl", None)
    holder.terminate()
    holder.wait(LIMIT)
    assert session.answer() == "|mine"
    assert run(lockctl, url) == HELD
    late = lockctl.start("run", "-b", url, "-l", "nightly", "-w", "20s", "--", "true")
    eventually(lambda: waiters(client))
    session.end()
    assert late.wait(LIMIT) == 0


def test_the_session_of_psql_can_be_ended_by_force(url: str, opened: Callable[[str], Backend], psql: Psql) -> None:
    session, (client, key) = psql(), view(opened, url)
    session.ask(f"select pg_advisory_lock({key})")
    with pytest.raises(LockctlError):
        revoke(client, holder_of(client))
    assert refused(client, claim())
    assert revoke(client, holder_of(client), now=True) is not None
    take(client, claim())


def test_runs_through_a_pooler_and_past_it_exclude_each_other(
    url: str, opened: Callable[[str], Backend], postgres_server: Postgres, pgbouncer_transaction: PgBouncer
) -> None:
    pooled = url.replace(postgres_server.address, pgbouncer_transaction.address) + "&scope=transaction"
    for mine, theirs in ((pooled, url), (url, pooled)):
        holder, other = opened(mine), opened(theirs)
        take(holder, claim())
        assert refused(other, claim())
        for client in (holder, other):
            client.close()
    eventually(lambda: not refused(opened(pooled), claim()))


@pytest.mark.parametrize("more", ["", "&key=4,-2", "&scope=transaction"])
def test_readers_of_psql_and_lockctl_stand_beside_each_other_and_keep_writers_out(
    url: str, opened: Callable[[str], Backend], psql: Psql, more: str
) -> None:
    client, key = view(opened, url + more)
    theirs, writer = psql(), psql()
    assert theirs.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert refused(client, claim())
    grant = take(client, reader())
    assert not refused(client, reader())
    seen = client.inspect("nightly", timeout=LIMIT)
    assert seen.state == "held"
    assert {(holder.mode, holder.owner) for holder in seen.holders} == {("shared", None), ("shared", grant.claim.owner)}
    theirs.end()
    assert writer.ask(f"select pg_try_advisory_lock({key})") == "f"
    writer.send(f"select pg_advisory_lock({key}), 'mine'")
    eventually(lambda: waiters(client))
    assert refused(client, reader()), "a writer waits"
    client.release(grant, timeout=LIMIT)
    assert writer.answer() == "|mine"
    assert refused(client, reader())


def test_psql_can_use_the_slots_of_lockctl(
    lockctl: Lockctl, url: str, opened: Callable[[str], Backend], psql: Psql
) -> None:
    session, prefix, (client, key) = psql(), url.partition("prefix=")[2], view(opened, url)
    turnstile = f"('x' || left(encode(sha256('{prefix}nightly#'), 'hex'), 12) || '0000')::bit(64)::bigint"
    slot = f"select n from generate_series(1, 2) n where pg_try_advisory_lock({turnstile} + n) limit 1"
    grant = take(client, one_of(2))
    assert session.ask(f"select pg_try_advisory_lock({key})") == "f"
    assert session.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert session.ask(slot) == "2"
    assert refused(client, one_of(2))
    waiter = lockctl.start("run", "-b", url, "-l", "nightly", "--slots", "2", "-w", "20s", "--", "true")
    eventually(lambda: waiters(client))
    session.end()
    assert waiter.wait(LIMIT) == 0
    session = psql()
    assert session.ask(f"select pg_try_advisory_lock_shared({key})") == "t"
    assert session.ask(slot) == "2"
    client.release(grant, timeout=LIMIT)
    take(client, one_of(2))


def test_a_hold_is_kept_by_lockctl_and_not_seen_by_psql(url: str, opened: Callable[[str], Backend], psql: Psql) -> None:
    session, (client, key) = psql(), view(opened, url)
    client.release(take(client, claim()), timeout=LIMIT, hold=30.0)
    assert refused(client, claim())
    assert session.ask(f"select pg_try_advisory_lock({key})") == "t"
    assert refused(client, claim())
    session.end()
    assert revoke(client, holder_of(client), now=True) is not None
    take(client, claim())
