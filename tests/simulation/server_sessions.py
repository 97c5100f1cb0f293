"""Servers with a session for each connection, which ends with it, a moment later."""

from __future__ import annotations

from typing import Any

from tests.simulation.sockets import Socket, SocketServer
from tests.simulation.world import Here


class SessionServer(SocketServer):
    """A server whose sessions have a ``client`` and a ``number``, that of what they do at present."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.sessions: dict[int, Any] = {}
        self.last_pid = 1000

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``: half of the time a program ends, which its clients are told, else a machine."""
        self.tells = Here.world.chance() < 0.5
        for session in list(self.sessions.values()):
            if self.hears(session):
                session.client.hang_up()
            session.number += 1
        self.sessions = {}
        super().fail(seconds, kept, old)

    def hears(self, session: Any) -> bool:
        """Whether its client is told that the server goes down."""
        return self.tells

    def of(self, socket: Socket) -> Any:
        """The session of a connection, if it has not ended."""
        return next((each for each in self.sessions.values() if each.client is socket), None)

    def lose(self, socket: Socket) -> None:
        """See ``SocketServer``."""
        session, world = self.of(socket), Here.world
        if session is not None:
            world.at(world.now + world.chance() * self.seen_after(session), self.end, session)

    def seen_after(self, session: Any) -> float:
        """Seconds, at most, until the end of its client is seen."""
        raise NotImplementedError

    def end(self, session: Any) -> None:
        """The session is gone, and what ends with it."""
        raise NotImplementedError
