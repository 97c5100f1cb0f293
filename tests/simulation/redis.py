"""A server that keeps what Redis keeps and executes the real scripts in Lua 5.1."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from lupa import lua51

from tests.simulation.redis_commands import Data, Error, Status, text_of
from tests.simulation.streams import StreamServer

if TYPE_CHECKING:
    from tests.simulation.streams import Link

LUA = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False)
TABLE = LUA.eval(b"function(...) return {...} end")  # sooner than LUA.table_from, which looks at what it is given
COMPILED: dict[bytes, Any] = {}  # scripts by their text, for all histories
NESTING = 8


class RedisServer(StreamServer):
    """One server."""

    running: ClassVar[RedisServer]  # whose script runs: Lua would keep what it is given, and with it each history

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.data = Data(self.clock)
        self.scripts: dict[bytes, Any] = {}  # by their sha
        self.listeners: dict[bytes, list[Link]] = {}

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy(self.data.keys)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.data.keys = memory or {}

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self.listeners = {}
        self.scripts = {}
        super().fail(seconds, kept, old)

    def serve(self, data: bytes, link: Link) -> bytes:
        """See ``StreamServer``."""
        return b"".join([encoded(self._execute(words, link)) for words in _commands(data)])

    def _execute(self, words: list[bytes], link: Link) -> Any:
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
        RedisServer.running = self
        return _from_lua(body(TABLE(*keys), TABLE(*arguments), REDIS), NESTING)

    def _call(self, name: bytes, *words: Any) -> Any:
        if name == b"PUBLISH":
            listeners = self.listeners.get(text_of(words[0]), [])
            for link in listeners:
                link.say(encoded([b"message", text_of(words[0]), text_of(words[1])]))
            return len(listeners)
        reply = self.data.call(name, [word if type(word) is bytes else text_of(word) for word in words])
        if isinstance(reply, (bytes, int)):
            return reply
        if isinstance(reply, Status):
            return LUA.table_from({b"ok": reply.text})
        return False if reply is None else TABLE(*reply)


def _call(*words: Any) -> Any:
    return RedisServer.running._call(*words)


REDIS = LUA.table_from({b"call": _call, b"pcall": _call})


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
