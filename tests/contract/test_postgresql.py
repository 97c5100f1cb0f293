"""The contract, held by the postgresql backend on a real server, and what only this backend has."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

import psycopg2
import pytest

from lockctl.registry import open_backend
from lockctl.stores.postgresql.lock import PostgresqlBackend
from lockctl.stores.postgresql.queue import mark
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, ProxiedHarness, take
from tests.contract.suite import BackendContract
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.postgres import Postgres

NUMBERS = itertools.count()
# seconds: longer than what a cut-off client is given, and a lease outlives it. TCP loses no bytes of a connection that
# lives on, so a cut that heals is a delay; what a cut that does not heal does is in tests/faults
STALL = "delay=0.7"


class PostgresqlHarness(ProxiedHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = PostgresqlBackend.capabilities
    cut = STALL
    foreign_was_ours = True

    def __init__(self, server: Postgres, more: str = "", pooler: PgBouncer | None = None) -> None:
        super().__init__()
        self.server = server
        self.target = pooler or server
        self.prefix = f"contract-{os.getpid()}-{next(NUMBERS)}:"
        self.more = more

    def client(self, prefix: str = "") -> Backend:
        proxy = Proxy(self.target)
        url = self.server.url.replace(self.server.address, proxy.address)
        return self.keep(open_backend(parse_url(f"{url}?prefix={prefix or self.prefix}{self.more}")), proxy)

    def neighbour(self) -> Backend:
        return self.client(f"another-{self.prefix}")

    def key(self, name: str) -> str:
        """As the backend computes it in SQL, in other words than in Python."""
        digest = f"left(encode(sha256('{self.prefix}{name}'), 'hex'), 16)"
        return self.server.command(f"select ('x' || {digest})::bit(64)::bigint").strip()

    def holders(self, name: str) -> str:
        """A query for the server processes that have the lock."""
        key = self.key(name)
        return f"select pid from pg_locks where locktype = 'advisory' and granted and (classid::bigint << 32 | objid::bigint) = {key}"

    def expire(self, grant: Grant) -> None:
        its = f"from pg_stat_activity where application_name like '{mark(grant.claim.owner)}%'"
        self.server.command(f"select pg_terminate_backend(pid) {its}")
        eventually(lambda: self.server.command(f"select count(*) {its}").strip() == "0")

    def usurp(self, name: str) -> None:
        pids = self.server.command(self.holders(name)).split()
        assert pids
        for pid in pids:
            self.server.command(f"select pg_terminate_backend({pid})")
        alive = f"select count(*) from pg_stat_activity where pid in ({','.join(pids)})"
        eventually(lambda: self.server.command(alive).strip() == "0")

    def forget(self, name: str) -> None:
        self.server.command(f"delete from lockctl_fence where name = '{self.prefix}{name}'")

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        # nobody can tell the name from the number of a lock, so lockctl must have seen it once to list it
        client = self.client()
        client.release(take(client, self.claim(name)), timeout=LIMIT)
        other = psycopg2.connect(self.server.url)
        pid = other.info.backend_pid
        try:
            other.autocommit = True
            with other.cursor() as cursor:
                cursor.execute(f"select pg_advisory_lock({self.key(name)})")
            yield
        finally:
            other.close()
            gone = f"select count(*) from pg_stat_activity where pid = {pid}"
            eventually(lambda: self.server.command(gone).strip() == "0")


@pytest.fixture
def harness(postgres_server: Postgres) -> Iterator[PostgresqlHarness]:
    made = PostgresqlHarness(postgres_server)
    yield made
    made.close()


class TestPostgresql(BackendContract):
    """Every promise, held by sessions."""


class TestTransactionScope(BackendContract):
    """Every promise, held by transactions behind a pooler that lends connections for one of them."""

    @pytest.fixture
    def harness(self, postgres_server: Postgres, pgbouncer_wide: PgBouncer) -> Iterator[PostgresqlHarness]:
        made = PostgresqlHarness(postgres_server, "&scope=transaction", pgbouncer_wide)
        yield made
        made.close()
