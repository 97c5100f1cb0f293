"""PgBouncer before a server: each transaction is given a server process, and keeps it until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.postgresql_server import LONGEST_END, VERSION, PostgresServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.network import Host
    from tests.simulation.postgresql_session import Session
    from tests.simulation.sockets import Socket

FIRST_OF_NOBODY = 900_000  # a pooler announces server processes that there are not


class Seat:
    """The connection of the pooler to one server process, and which client has it now."""

    def __init__(self, client: Socket) -> None:
        self.client: Socket | None = client
        self.session: Session

    @property
    def host(self) -> Host | None:
        """That of the client."""
        return None if self.client is None else self.client.host

    def say(self, message: Any) -> None:
        """The server process answers: with the end of its transaction the next client can have it."""
        client = self.client
        if client is not None:
            if message[0] != "note" and not self.session.in_block:
                self.client = None
            client.say(message)

    def hang_up(self) -> None:
        """The server process ends, and with it the connection of the client that has it."""
        if self.client is not None:
            self.client.hang_up()
            self.client = None


class PooledServer(PostgresServer):
    """A server behind a pooler, which stand and fall together."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self._clients: dict[Socket, str] = {}  # and the name that each came with
        self._seats: list[Seat] = []

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        super().fail(seconds, kept, old)
        self._clients, self._seats = {}, []

    def take(self, message: Any, socket: Socket) -> None:
        """See ``SocketServer``."""
        kind, *content = message
        if kind == "start":
            if not self.let_in(socket):
                return
            self._clients[socket] = content[0]
            socket.say(("ready", FIRST_OF_NOBODY + socket.number, VERSION))
        elif kind == "end":
            self._leave(socket)
        elif socket in self._clients:
            seat = self._seat(socket)
            if not seat.session.in_block:
                seat.session.settings["application_name"] = self._clients[socket]
            self.begin(seat.session, *content)

    def lose(self, socket: Socket) -> None:
        """See ``SocketServer``."""
        world = Here.world
        world.at(world.now + world.chance() * LONGEST_END, self._leave, socket)

    def _leave(self, socket: Socket) -> None:
        """A client has gone. The pooler ends a server process that is in the middle of its transaction."""
        if self._clients.pop(socket, None) is not None:
            socket.hang_up()
            for seat in self._seats:
                if seat.client is socket:
                    seat.client = None
                    self.end(seat.session)

    def _seat(self, socket: Socket) -> Seat:
        """That of a client, else a free one, which was used last, else a new one."""
        self._seats = [each for each in self._seats if each.session.pid in self.sessions]
        found = [each for each in self._seats if each.client is socket]
        found += [each for each in reversed(self._seats) if each.client is None]
        if found:
            seat = found[0]
            seat.client = socket
            self._seats.remove(seat)
        else:
            seat = Seat(socket)
            seat.session = self.new_session(seat, self._clients[socket])
        self._seats.append(seat)
        return seat
