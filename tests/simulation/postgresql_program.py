"""A program that is not lockctl, and waits in the server's own queue for the advisory lock that lockctl takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockctl.stores.postgresql.address import PREFIX
from lockctl.stores.postgresql.layout import of_name
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from tests.simulation.postgresql_server import PostgresServer
    from tests.simulation.postgresql_session import Session


class Program:
    """It has the lock for some *seconds*, and then ends. Its connection is on the machine of the server."""

    def __init__(self, server: PostgresServer, name: str, seconds: float) -> None:
        self.span: tuple[float, float] | None = None  # when it had the lock
        self._server = server
        self._key = of_name(PREFIX + name).text
        self._seconds = seconds
        self._session: Session | None = None

    def start(self) -> None:
        """Ask for the lock."""
        if self._server.up:
            self._session = self._server.new_session(self, "psql")
            self._server.begin(self._session, f"SELECT pg_catalog.pg_advisory_lock({self._key})", None)

    def say(self, message: Any) -> None:
        """See ``Client``: it has the lock."""
        world = Here.world
        world.tell("psql", f"has the lock for {self._seconds:.3f} s: {message[0]}")
        self.span = world.now, INFINITE
        world.at(world.now + self._seconds, self._end)

    def hang_up(self) -> None:
        """See ``Client``."""
        if self.span is not None:
            self.span = self.span[0], min(self.span[1], Here.world.now)

    def _end(self) -> None:
        if self._session is not None:
            self._server.end(self._session)
