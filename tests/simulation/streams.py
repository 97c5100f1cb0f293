"""Streams of bytes between clients and servers: they may be late, lost in part, or break."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from lockctl.errors import BackendUnavailable
from lockctl.wire.deadline import READABLE
from lockctl.wire.stream import Closed
from tests.simulation.network import REFUSED, Server, ask
from tests.simulation.plan import ANSWER, REQUEST
from tests.simulation.system import Descriptor
from tests.simulation.world import Here

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline
    from tests.simulation.network import Host, Network


OPENING_PAUSE = 1.0  # seconds until the first packet of a connection is sent again, twice as long each time


class StreamServer(Server):
    """A server that is talked to in streams. Data is lost or old after a restart, connections always."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.starts = 0
        self.links: list[Link] = []  # of this start

    def answer(self, request: Any) -> Any:
        """See ``Server``: only connections are made by single requests."""
        return self.starts

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self.starts += 1
        if self.links:
            self.tells = self.refuses = Here.world.chance() < 0.5  # the program has ended, and its host goes on
        for link in self.links if self.tells else ():
            link.reset()
        self.links = []
        super().fail(seconds, kept, old)

    def greet(self, link: Link) -> None:
        """Somebody has connected; most servers say nothing then."""

    def serve(self, data: bytes, link: Link) -> bytes:
        """What is answered to bytes that came in a stream; empty: nothing yet."""
        raise NotImplementedError


class InOrder:
    """Packets of one direction of a stream: each once, and none before those that were sent earlier."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take
        self._next = 0
        self._sent = 0
        self._early: dict[int, Any] = {}

    def number(self) -> int:
        """That of the next packet that is sent."""
        self._sent += 1
        return self._sent - 1

    def arrive(self, number: int, packet: Any) -> None:
        """One packet is there."""
        if number >= self._next:
            self._early[number] = packet
        while self._next in self._early:
            self._next += 1
            self._take(self._early.pop(self._next - 1))


class Link(Descriptor):
    """Stands for a ``Stream``: a connection from a host to a server, seen from both ends."""

    secured = None

    def __init__(self, network: Network, host: Host, server: StreamServer, where: str) -> None:
        super().__init__()
        self.where = where
        self._network, self.host, self._server = network, host, server
        self._starts = server.starts
        self._requests, self._answers = InOrder(self._serve), InOrder(self._come)
        self.content: deque[Any] = deque()  # packets
        self._closed = self._hung_up = False

    def send(self, data: bytes, deadline: Deadline | None = None) -> None:
        """See ``Stream``."""
        Here.world.step()
        if self.over:
            raise Closed(f"{self.where}: reset")
        what = ("send", data[:60]) if Here.world.telling else ("send",)
        self._network.carry(self.host, REQUEST, what, self._requests.arrive, self._requests.number(), data)

    def _serve(self, data: Any) -> None:
        if not self._server.up or self._hung_up:
            return
        if self._starts != self._server.starts:
            self.reset()
            return
        reply = self._server.serve(data, self)
        if reply:
            self._reply(reply)

    def reset(self) -> bool:
        """The server's host says that the connection is no more; whether that is on its way."""
        return self._network.carry(self.host, ANSWER, ("reset",), self._break)

    def say(self, message: Any) -> None:
        """Something that the server says by itself."""
        if not (self._closed or self._hung_up) and self._starts == self._server.starts:
            self._reply(message)

    def hang_up(self) -> None:
        """The server closes the connection, after all that it has said."""
        self.say(b"")
        self._hung_up = True

    def _reply(self, data: Any) -> None:
        what = ("reply", data[:60]) if Here.world.telling else ("reply",)
        self._network.carry(self.host, ANSWER, what, self._answers.arrive, self._answers.number(), data)

    def _come(self, data: Any) -> None:
        if not data:
            self._break()
        elif not self._closed:
            self.content.append(data)
            self.changed()

    def _break(self) -> None:
        self.over = True
        self.changed()

    def fileno(self) -> int:
        """See ``Stream``."""
        return self.number

    def receive(self, deadline: Deadline) -> bytes:
        """See ``Stream``."""
        deadline.wait(self.number, READABLE, self.where)
        return self.take()

    def take(self) -> bytes:
        """See ``Stream``."""
        if self.content:
            data: bytes = self.content.popleft()
            return data
        raise Closed(f"{self.where}: reset")

    def close(self) -> None:
        """See ``Stream``. What is on its way arrives all the same."""
        self._closed = True


def connected(network: Network, host: Host, server: StreamServer, deadline: Deadline, where: str) -> Link:
    """A connection that was just made. Its first packet is sent again when nothing comes back, as by a kernel."""
    pause = OPENING_PAUSE
    while True:
        try:
            answer = ask(network, host, server, ("connect", where), deadline.sooner(pause), where)
            break
        except BackendUnavailable:
            if not deadline.left():
                raise
            pause *= 2
    if answer is REFUSED:
        raise BackendUnavailable(f"{where}: connection refused")
    link = Link(network, host, server, where)
    server.links.append(link)
    server.greet(link)
    return link
