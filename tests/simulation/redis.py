"""A server that keeps what Redis keeps and executes the real scripts in Lua 5.1."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from lupa import lua51

from tests.simulation.redis_commands import GROWS, WRITES, Data, Error, Status, text_of
from tests.simulation.streams import StreamServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.streams import Link

LUA = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False)
TABLE = LUA.eval(b"function(...) return {...} end")  # sooner than LUA.table_from, which looks at what it is given
COMPILED: dict[bytes, Any] = {}  # scripts by their text, for all histories
NESTING = 8
PRIMARY = "jobs"  # its name, where sentinels watch it
NO_RIGHT = b"NOPERM this user has no permissions to run the 'evalsha' command"
REFUSES_ALL = (
    b"LOADING Redis is loading the dataset in memory",
    b"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
)
NO_ROOM = b"OOM command not allowed when used memory > 'maxmemory'."
REPLICA = b"READONLY You can't write against a read only replica."
REFUSES_WRITES = (
    b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    b"NOREPLICAS Not enough good replicas to write.",
    REPLICA,
)
BEHIND = 0.3  # of those that are no primary any more: they copy all anew
LIFTED = b" script: f1d2d2f924e986ac86fdf7b36c94bcdf32beec15, on @user_script:1."  # what is added inside of a script


class RefusedError(Exception):
    """A command of a script that is not executed, and ends the script."""


class RedisServer(StreamServer):
    """One server."""

    running: ClassVar[RedisServer]  # whose script runs: Lua would keep what it is given, and with it each history

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.data = Data(self.clock)
        self.scripts: dict[bytes, Any] = {}  # by their sha
        self.listeners: dict[bytes, list[Link]] = {}
        self.is_watched = False  # by a sentinel, which is asked at the same place
        self._former: set[Link] = set()  # connections to the server that was the primary, and is a replica now
        self._former_until = 0.0  # true time: before, who connects is led there
        self._is_behind = False  # whether that has not heard of anything yet
        self._reason = b""  # what it says while it is busy
        self._excuse = b""  # what it says to the command that it refuses
        self._refuses = self._has_written = False  # of the script that runs, or of a command

    def be_busy(self, seconds: float, *, denies: bool) -> None:
        """See ``Server``: it refuses all, or each write, or each that needs memory."""
        super().be_busy(seconds, denies=denies)
        reasons = (*REFUSES_ALL, NO_ROOM, NO_ROOM, *REFUSES_WRITES)
        self._reason = NO_RIGHT if denies else reasons[int(Here.world.chance() * len(reasons))]

    def hand_over(self, seconds: float) -> None:
        """Another one, which has all that this one has, is the primary; who connects comes to it *seconds* later."""
        world = Here.world
        world.tell(self.name, f"is a replica, and others are led to the new primary in {seconds:.3f} s")
        self._former |= {*self.links}
        self._former_until = world.now + seconds
        self._is_behind = world.chance() < BEHIND
        self.scripts = {}

    def greet(self, link: Link) -> None:
        """See ``StreamServer``."""
        if Here.world.now < self._former_until:
            self._former.add(link)

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
        is_former = link in self._former
        self._excuse = REPLICA if is_former else self._reason
        self._refuses, self._has_written = is_former or self.refuses_now(), False
        if self._refuses and self._excuse in (*REFUSES_ALL, NO_RIGHT):
            return Error(self._excuse)
        if name in (b"EVALSHA", b"EVAL"):
            hides = self._is_behind if is_former else self._refuses and self._excuse == REPLICA
            return self._script(name, words[1], words[2:], hides=hides)
        if name == b"SENTINEL":
            return [[b"name", PRIMARY.encode(), b"ip", self.name.encode(), b"port", b"6379", b"flags", b"master"]]
        if name == b"ROLE":
            return [b"slave" if is_former else b"master", 0, []]
        if name == b"SUBSCRIBE":
            self.listeners.setdefault(words[1], []).append(link)
            return [b"subscribe", words[1], 1]
        return Error(self._excuse) if self._is_refused(name) else self.data.call(name, words[1:])

    def _is_refused(self, name: bytes) -> bool:
        """Whether it is one of those that are refused now; a script that has written gets the memory for the rest."""
        if not self._refuses or name not in WRITES:
            return False
        return self._excuse != NO_ROOM or (name in GROWS and not self._has_written)

    def _script(self, name: bytes, script: bytes, words: list[bytes], *, hides: bool) -> Any:
        """What a script answers; *hides*: it has not heard of anything yet."""
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
        RedisServer.running, known = self, self.data.keys
        if hides:
            self.data.keys = {}
        try:
            return _from_lua(body(TABLE(*keys), TABLE(*arguments), REDIS), NESTING)
        except RefusedError:
            return Error(self._excuse + LIFTED)
        finally:
            self.data.keys = known

    def _call(self, name: bytes, *words: Any) -> Any:
        if name == b"PUBLISH":
            listeners = self.listeners.get(text_of(words[0]), [])
            for link in listeners:
                link.say(encoded([b"message", text_of(words[0]), text_of(words[1])]))
            return len(listeners)
        if self._is_refused(name):
            raise RefusedError
        self._has_written |= name in WRITES
        reply = self.data.call(name, [word if type(word) is bytes else text_of(word) for word in words])
        if isinstance(reply, (bytes, int)):
            return reply
        if isinstance(reply, Status):
            return LUA.table_from({b"ok": reply.text})
        return False if reply is None else TABLE(*[TABLE(*each) if isinstance(each, list) else each for each in reply])


def _call(*words: Any) -> Any:
    return RedisServer.running._call(*words)


def _pcall(*words: Any) -> Any:
    try:
        return _call(*words)
    except RefusedError:
        return LUA.table_from({b"err": RedisServer.running._excuse})


REDIS = LUA.table_from({b"call": _call, b"pcall": _pcall})


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
    if given[b"err"]:
        return Error(given[b"err"])
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
