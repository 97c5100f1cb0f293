"""A schema of its own in a PostgreSQL database for one test, and clients whose tables are there."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

import psycopg2

from lockctl.stores.postgresql import layout
from lockctl.stores.postgresql.lock import PostgresqlBackend
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres

NUMBERS = itertools.count()
OLD_TABLE = (
    'create table {} (key text PRIMARY KEY, name text COLLATE "C", token bigint NOT NULL, owner text, document text,'
    " revocation text, taken_at timestamptz)"
)  # of the first lockctl


class Place:
    """A schema that exists as long as the test runs, owned by the user of lockctl."""

    def __init__(self, server: Postgres) -> None:
        """Make it."""
        self.server = server
        self.schema = f"s{os.getpid()}_{next(NUMBERS)}x"
        self.fence, self.holder, self.history = (
            f"{self.schema}.lockctl_{word}" for word in ("fence", "holder", "history")
        )
        self.key = layout.of_name(f"{self.schema}:nightly").text
        self.queue = layout.queue(f"{self.schema}:nightly").text
        self.slots = layout.slots(f"{self.schema}:nightly").text
        self._clients: list[PostgresqlBackend] = []
        self.command(f"create schema {self.schema} authorization {server.user}")

    def command(self, statement: str) -> str:
        """What psql prints for a statement of the superuser."""
        return self.server.command(statement).strip()

    def client(self, address: str = "", user: str = "", **params: str) -> PostgresqlBackend:
        """A fresh client: through which address, as whom, and with which parameters of its URL."""
        params = {"prefix": f"{self.schema}:", "schema": self.schema, **params}
        where = self.server.url.replace(self.server.address, address or self.server.address)
        where = where.replace(f"{self.server.user}@", f"{user or self.server.user}@")
        query = "&".join(f"{name}={content}" for name, content in params.items())
        self._clients.append(PostgresqlBackend.from_url(parse_url(f"{where}?{query}")))
        return self._clients[-1]

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """The cursor of another program's session."""
        with contextlib.closing(psycopg2.connect(self.server.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            yield cursor

    @contextlib.contextmanager
    def user(self) -> Iterator[str]:
        """Another user, who may read and write what exists in the schema when the tables are made."""
        name = f"user_{self.schema}"
        self.command(f"create role {name} login; grant usage on schema {self.schema} to {name}")
        try:
            yield name
        finally:
            self.command(f"drop owned by {name} cascade; drop role {name}")

    def close(self) -> None:
        """End the clients and drop the schema."""
        for client in self._clients:
            client.close()
        self.command(f"drop schema {self.schema} cascade")
