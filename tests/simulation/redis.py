"""A server that keeps what Redis keeps and executes the real scripts in Lua 5.1, and streams to it that may break."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

from lupa import lua51

from lockctl.wire.deadline import READABLE
from lockctl.wire.stream import Closed
from tests.simulation.network import Server, ask
from tests.simulation.plan import ANSWER, REQUEST
from tests.simulation.redis_commands import Data, Error, Status, text_of
from tests.simulation.system import Descriptor
from tests.simulation.world import Here

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline
    from tests.simulation.network import Host, Network

LUA = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False)
COMPILED: dict[bytes, Any] = {}  # scripts by their text, for all histories
NESTING = 8


class RedisServer(Server):
    """One server. Data is lost or old after a restart, connections always."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.data = Data(self.clock)
        self.scripts: dict[bytes, Any] = {}  # by their sha
        self.starts = 0
        self.listeners: dict[bytes, list[Link]] = {}

    def answer(self, request: Any) -> Any:
        """See ``Server``: only connections are made by single requests."""
        return self.starts

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy(self.data.keys)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.data.keys = memory or {}

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self.starts += 1
        self.listeners = {}
        self.scripts = {}
        super().fail(seconds, kept, old)

    def execute(self, words: list[bytes], link: Link) -> Any:
        """One command of a client."""
        name = words[0].upper()
        if name in (b"EVALSHA", b"EVAL"):
            return self._script(name, words[1], words[2:])
        if name == b"SUBSCRIBE":
            self.listeners.setdefault(words[1], []).append(link)
            return [b"subscribe", words[1], 1]
        return self.data.call(name, words[1:])

    def _script(self, name: bytes, script: bytes, words: list[bytes]) -> Any:
        if name == b"EVAL":
            from hashlib import sha1

            if script not in COMPILED:
                COMPILED[script] = LUA.execute(b"return function(KEYS, ARGV, redis)\n" + script + b"\nend")
            self.scripts[sha1(script).hexdigest().encode()] = COMPILED[script]
            body = COMPILED[script]
        elif script in self.scripts:
            body = self.scripts[script]
        else:
            return Error(b"NOSCRIPT No matching script. Please use EVAL.")
        count = int(words[0])
        keys, arguments = words[1 : count + 1], words[count + 1 :]
        table = LUA.table_from
        redis = table({b"call": self._call, b"pcall": self._call})
        return _from_lua(body(table(keys), table(arguments), redis), NESTING)

    def _call(self, name: bytes, *words: Any) -> Any:
        if name == b"PUBLISH":
            listeners = self.listeners.get(text_of(words[0]), [])
            for link in listeners:
                link.answer([b"message", text_of(words[0]), text_of(words[1])])
            return len(listeners)
        reply = self.data.call(name, [text_of(word) for word in words])
        if isinstance(reply, Status):
            return LUA.table_from({b"ok": reply.text})
        if reply is None:
            return False
        return LUA.table_from(reply) if isinstance(reply, list) else reply


def _from_lua(given: Any, nesting: int) -> Any:
    """As Redis turns what a script returns into a reply."""
    if given is False or given is None:
        return None
    if given is True:
        return 1
    if isinstance(given, float):
        return int(given)
    if isinstance(given, (bytes, int)):
        return given
    return [_from_lua(given[number], nesting - 1) for number in range(1, len(given) + 1 if nesting else 0)]


def encoded(reply: Any) -> bytes:
    """A reply in RESP2."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, Status):
        return b"+%b\r\n" % reply.text
    if isinstance(reply, Error):
        return b"-%b\r\n" % reply.text
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join([encoded(each) for each in reply])


def _commands(data: bytes) -> list[list[bytes]]:
    """The commands in a packet, as clients encode them."""
    found: list[list[bytes]] = []
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        count, at = int(data[at + 1 : end]), end + 2
        words = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            length = int(data[at + 1 : end])
            words.append(data[end + 2 : end + 2 + length])
            at = end + 4 + length
        found.append(words)
    return found


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

    def __init__(self, network: Network, host: Host, server: RedisServer, where: str) -> None:
        super().__init__()
        self.where = where
        self._network, self._host, self._server = network, host, server
        self._starts = server.starts
        self._requests, self._answers = InOrder(self._serve), InOrder(self._come)
        self._here: deque[bytes] = deque()
        self._broken = self._closed = False

    def ready(self) -> bool:
        """See ``Descriptor``."""
        return self._broken or bool(self._here)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """See ``Stream``."""
        Here.world.step()
        if self._broken:
            raise Closed(f"{self.where}: reset")
        what = ("send", data[:60]) if Here.world.telling else ("send",)
        self._network.carry(self._host, REQUEST, what, self._requests.arrive, self._requests.number(), data)

    def _serve(self, data: bytes) -> None:
        if not self._server.up:
            return
        if self._starts != self._server.starts:
            self._network.carry(self._host, ANSWER, ("reset",), self._break)
            return
        self._reply(b"".join([encoded(self._server.execute(words, self)) for words in _commands(data)]))

    def answer(self, message: Any) -> None:
        """Something that the server says by itself."""
        if not self._closed and self._starts == self._server.starts:
            self._reply(encoded(message))

    def _reply(self, data: bytes) -> None:
        what = ("reply", data[:60]) if Here.world.telling else ("reply",)
        self._network.carry(self._host, ANSWER, what, self._answers.arrive, self._answers.number(), data)

    def _come(self, data: bytes) -> None:
        self._here.append(data)
        self.changed()

    def _break(self) -> None:
        self._broken = True
        self.changed()

    def receive(self, deadline: Deadline) -> bytes:
        """See ``Stream``."""
        deadline.wait(self.number, READABLE, self.where)
        if self._here:
            return self._here.popleft()
        raise Closed(f"{self.where}: reset")

    def close(self) -> None:
        """See ``Stream``. What is on its way arrives all the same."""
        self._closed = True


def connected(network: Network, host: Host, server: RedisServer, deadline: Deadline, where: str) -> Link:
    """A connection that was just made."""
    ask(network, host, server, ("connect", where), deadline, where)
    return Link(network, host, server, where)
