"""Connections as the kernel keeps them: what is lost is sent again, and they end with the last process that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.plan import ANSWER, REQUEST
from tests.simulation.streams import OPENING_PAUSE, Link, StreamServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.network import Host, Network

FIRST_PAUSE = 0.2  # seconds until what was lost is sent again, twice as long each time
OPENING, OPENED = ("open",), ("opened",)


class SocketServer(StreamServer):
    """A server of such connections. While it is down it is silent, or refuses them as a program does that was ended."""

    def take(self, message: Any, socket: Socket) -> None:
        """A message has come."""
        raise NotImplementedError

    def lose(self, socket: Socket) -> None:
        """The other end has closed the connection, or was given up."""
        raise NotImplementedError


class Socket(Link):
    """One connection. The kernel at either end gives it up when something could not be sent for *patience* seconds."""

    def __init__(self, network: Network, host: Host, server: SocketServer, where: str, patience: float) -> None:
        super().__init__(network, host, server, where)
        self.server = server
        self._patience = patience
        self._is_shut = False
        self._transmit(REQUEST, self._requests.number(), OPENING, OPENING_PAUSE, Here.world.now)

    def shut(self) -> None:
        """Neither send nor receive anything more. The kernel goes on sending what was not received yet."""
        self._put(None)
        self._is_shut = self._closed = True
        self._break()

    def gone(self) -> None:
        """See ``Descriptor``: the server is told."""
        self._closed = True
        self._put(None)

    def put(self, message: Any) -> None:
        """Send a message."""
        Here.world.step()
        self._put(message)

    def taken(self) -> list[Any]:
        """The messages that are there."""
        found: list[Any] = [each for each in self.content if each != OPENED]
        self.content.clear()
        return found

    def _put(self, message: Any) -> None:
        self._transmit(REQUEST, self._requests.number(), message, FIRST_PAUSE, Here.world.now)

    def _reply(self, data: Any) -> None:
        self._transmit(ANSWER, self._answers.number(), data, FIRST_PAUSE, Here.world.now)

    def _transmit(self, way: int, number: int, message: Any, pause: float, since: float) -> None:
        if way == REQUEST and self.over and not self._is_shut:
            return
        packet = (way, number, message, pause, since)
        if not self._network.carry(self.host, way, message or ("close",), self._arrive, *packet):
            self._repeat(*packet)

    def _repeat(self, way: int, number: int, message: Any, pause: float, since: float) -> None:
        world = Here.world
        if world.now + pause < since + self._patience:
            world.at(world.now + pause, self._transmit, way, number, message, 2 * pause, since)
        else:
            world.at(since + self._patience, self._give_up, way)

    def _give_up(self, way: int) -> None:
        if way == REQUEST:
            self._break()
        elif self._server.up and self._starts == self._server.starts:
            self.server.lose(self)

    def _arrive(self, way: int, number: int, message: Any, pause: float, since: float) -> None:
        server = self.server
        if way == ANSWER:
            self._answers.arrive(number, message)
        elif server.up and self._starts == server.starts and not self._hung_up:
            self._requests.arrive(number, message)
        elif not ((server.up or server.tells) and self.reset()):
            self._repeat(way, number, message, pause, since)

    def _serve(self, data: Any) -> None:
        if data == OPENING:
            self._reply(OPENED)
        elif data is None:
            self.server.lose(self)
        else:
            self.server.take(data, self)
