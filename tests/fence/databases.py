"""Places for marks in the databases that tests share: each test has tables of its own, behind a proxy."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

from lockctl.fence import sql
from tests.fence.contract import FenceHarness
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres

NUMBERS = itertools.count()


class PostgresqlHarness(FenceHarness):
    """A schema of its own in a shared server, behind a proxy."""

    def __init__(self, server: Postgres, front: Any = None, *, table: bool = True) -> None:
        self.server = server
        self.proxy = Proxy(front or server)
        self.schema = f"Fence {os.getpid()} {next(NUMBERS)}"
        self.command(f'create schema "{self.schema}" authorization {server.user}')
        if table:
            self.command(f"set role {server.user}; {sql.text('postgresql', schema=self.schema)}")

    def command(self, statement: str) -> str:
        """What psql prints, as superuser."""
        return self.server.command(f'set search_path = "{self.schema}"; {statement}').strip()

    def url(self, more: str = "") -> str:
        """The URL of the store."""
        plain = self.server.url.replace(self.server.address, self.proxy.address)
        return f"{plain}?schema={self.schema.replace(' ', '%20')}{more}"

    def behind(self, address: str) -> tuple[str, str]:
        """As :meth:`words`, through a server at this address."""
        return "stock", self.url().replace(self.proxy.address, address)

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return resource, self.url()

    def damage(self, resource: str = "stock") -> None:
        self.command("alter table lockctl_mark drop constraint lockctl_mark_token_check")
        self.command(f"update lockctl_mark set token = -7 where resource = '{resource}'")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.mode = "blackhole"
        try:
            yield
        finally:
            self.proxy.mode = "pass"

    def close(self) -> None:
        self.proxy.close()
        self.command(f'drop schema "{self.schema}" cascade')


class MysqlHarness(FenceHarness):
    """A database of its own in a shared server, behind a proxy."""

    crashes = 6

    def __init__(self, server: MariaDb, *, table: bool = True) -> None:
        self.server = server
        self.proxy = Proxy(server)
        self.database = f"fence_{os.getpid()}_{next(NUMBERS)}"
        server.command(f"create database {self.database}; grant all on {self.database}.* to {server.user}", database="")
        if table:
            server.client([], database=self.database, text=sql.text("mysql"))

    def command(self, statements: str) -> str:
        """What the client prints, as superuser."""
        return self.server.command(statements, database=self.database).strip()

    def url(self, more: str = "") -> str:
        """The URL of the store."""
        plain = self.server.url.replace(self.server.address, self.proxy.address)
        return f"{plain.rpartition('/')[0]}/{self.database}{more}"

    def behind(self, address: str) -> tuple[str, str]:
        """As :meth:`words`, through a server at this address."""
        return "stock", self.url().replace(self.proxy.address, address)

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return resource, self.url()

    def damage(self, resource: str = "stock") -> None:
        self.command(
            f"set check_constraint_checks = off; update lockctl_mark set token = -7 where resource = '{resource}'"
        )

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.mode = "blackhole"
        try:
            yield
        finally:
            self.proxy.mode = "pass"

    def close(self) -> None:
        self.proxy.close()
        self.server.command(f"drop database {self.database}", database="")
