"""The commands of Redis that lockctl uses, on keys that end with the server's wall clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Clock

INFINITE = float("inf")


class Status(NamedTuple):
    """A simple string."""

    text: bytes


class Error(NamedTuple):
    """An error."""

    text: bytes


OK = Status(b"OK")
GROWS = (b"SET", b"HSET", b"ZADD", b"LPUSH")  # what needs memory
WRITES = (*GROWS, b"DEL", b"HDEL", b"ZREM", b"LREM", b"LTRIM", b"EXPIRE", b"PEXPIRE", b"PEXPIREAT")
TYPES: dict[type, bytes] = {bytes: b"string", dict: b"hash", list: b"list"}


class Sorted(dict[bytes, float]):
    """A sorted set."""

    def in_order(self) -> list[bytes]:
        """Its members by their scores."""
        return sorted(self, key=lambda member: (self[member], member))


def text_of(word: Any) -> bytes:
    """What Redis makes of an argument in a script."""
    if isinstance(word, bytes):
        return word
    return b"%d" % word if word == int(word) else b"%.17g" % word


def number_of(score: float) -> bytes:
    """A score as text."""
    return text_of(score)


def _limit(text: bytes) -> tuple[float, bool]:
    """A bound of a range of scores, and whether it is outside."""
    outside = text.startswith(b"(")
    return float(text[outside:].decode()), outside


class Data:
    """All keys of a server: their contents, and when they end in milliseconds since the epoch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.keys: dict[bytes, tuple[Any, float]] = {}

    def call(self, name: bytes, words: list[bytes]) -> Any:
        """The reply to a command; raises ``KeyError`` for one that is not here."""
        return COMMANDS[name](self, *words)

    def get(self, key: bytes, default: Any = None) -> Any:
        """What is in a key."""
        found = self.keys.get(key)
        if found is None:
            return default
        if found[1] <= self._now():
            del self.keys[key]
            return default
        return found[0]

    def _put(self, key: bytes, content: Any) -> None:
        """Change a key, which ends as before."""
        if content:
            ends = self.keys[key][1] if self.get(key) is not None else INFINITE
            self.keys[key] = (content, ends)
        else:
            self.keys.pop(key, None)

    def _now(self) -> float:
        return self._clock.wall() * 1000

    def _ends(self, key: bytes, at: float) -> int:
        if self.get(key) is None:
            return 0
        self.keys[key] = (self.keys[key][0], at)
        return 1

    def _time(self) -> list[bytes]:
        micros = int(self._clock.wall() * 1_000_000)
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]

    def _type(self, key: bytes) -> Status:
        found = self.get(key)
        return Status(b"none" if found is None else b"zset" if isinstance(found, Sorted) else TYPES[type(found)])

    def _exists(self, *keys: bytes) -> int:
        return sum(self.get(key) is not None for key in keys)

    def _del(self, *keys: bytes) -> int:
        gone = [key for key in keys if self.get(key) is not None]
        for key in gone:
            del self.keys[key]
        return len(gone)

    def _get(self, key: bytes) -> bytes | None:
        found: bytes | None = self.get(key)
        return found

    def _set(self, key: bytes, content: bytes, *more: bytes) -> Status:
        ends = INFINITE
        if more:
            ends = self._now() + int(more[1]) * (1000 if more[0].upper() == b"EX" else 1)
        self.keys[key] = (content, ends)
        return OK

    def _getrange(self, key: bytes, first: bytes, last: bytes) -> bytes:
        content: bytes = self.get(key, b"")
        return content[int(first) : int(last) + 1]

    def _pttl(self, key: bytes) -> int:
        if self.get(key) is None:
            return -2
        ends = self.keys[key][1]
        return -1 if ends == INFINITE else int(ends - self._now())

    def _pexpire(self, key: bytes, milliseconds: bytes) -> int:
        return self._ends(key, self._now() + float(milliseconds))

    def _expire(self, key: bytes, seconds: bytes) -> int:
        return self._ends(key, self._now() + 1000 * float(seconds))

    def _pexpireat(self, key: bytes, at: bytes) -> int:
        return self._ends(key, float(at))

    def _hset(self, key: bytes, field: bytes, content: bytes) -> int:
        fields = self.get(key) or {}
        new = field not in fields
        self._put(key, {**fields, field: content})
        return int(new)

    def _hget(self, key: bytes, field: bytes) -> bytes | None:
        return self.get(key, {}).get(field)  # type: ignore[no-any-return]

    def _hscan(self, key: bytes, _cursor: bytes) -> list[bytes | list[bytes]]:
        return [b"0", [each for pair in self.get(key, {}).items() for each in pair]]

    def _hdel(self, key: bytes, *names: bytes) -> int:
        fields = dict(self.get(key, {}))
        gone = sum(fields.pop(name, None) is not None for name in names)
        self._put(key, fields)
        return gone

    def _zadd(self, key: bytes, *words: bytes) -> int:
        members = Sorted(self.get(key, {}))
        *options, score, member = words
        new = member not in members
        if options not in ([], [b"XX"]):
            raise ValueError(f"ZADD with {options}")
        if not (new and options):
            members[member] = float(score)
            self._put(key, members)
        return int(new and not options)

    def _zrem(self, key: bytes, *names: bytes) -> int:
        members = Sorted(self.get(key, {}))
        gone = sum(members.pop(name, None) is not None for name in names)
        self._put(key, members)
        return gone

    def _zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = self.get(key, {}).get(member)
        return None if score is None else number_of(score)

    def _zcard(self, key: bytes) -> int:
        return len(self.get(key, {}))

    def _zrank(self, key: bytes, member: bytes) -> int | None:
        order = Sorted(self.get(key, {})).in_order()
        return order.index(member) if member in order else None

    def _zrange(self, key: bytes, first: bytes, last: bytes, *more: bytes) -> list[bytes]:
        return self._range(key, first, last, more, backwards=False)

    def _zrevrange(self, key: bytes, first: bytes, last: bytes, *more: bytes) -> list[bytes]:
        return self._range(key, first, last, more, backwards=True)

    def _range(self, key: bytes, first: bytes, last: bytes, more: tuple[bytes, ...], *, backwards: bool) -> list[bytes]:
        members = Sorted(self.get(key, {}))
        order = members.in_order()[:: -1 if backwards else 1]
        end = int(last) + 1
        return self._shown(members, order[int(first) : end or None], more)

    @staticmethod
    def _shown(members: Sorted, order: list[bytes], more: tuple[bytes, ...]) -> list[bytes]:
        if more and more[0].upper() == b"WITHSCORES":
            return [word for member in order for word in (member, number_of(members[member]))]
        return order

    def _zrangebyscore(self, key: bytes, least: bytes, most: bytes, *more: bytes) -> list[bytes]:
        members = Sorted(self.get(key, {}))
        order = [member for member in members.in_order() if self._within(members[member], least, most)]
        if b"LIMIT" in more:
            at = more.index(b"LIMIT")
            order = order[int(more[at + 1]) :][: int(more[at + 2])]
        return self._shown(members, order, more)

    def _zcount(self, key: bytes, least: bytes, most: bytes) -> int:
        return sum(self._within(score, least, most) for score in self.get(key, {}).values())

    @staticmethod
    def _within(score: float, least: bytes, most: bytes) -> bool:
        (low, above), (high, below) = _limit(least), _limit(most)
        return (score > low if above else score >= low) and (score < high if below else score <= high)

    def _scan(self, cursor: bytes, *_: bytes) -> list[Any]:
        """Without a pattern: clients must look at the keys in any case."""
        return [b"0", [key for key in list(self.keys) if self.get(key) is not None]]

    def _lpush(self, key: bytes, content: bytes) -> int:
        listed = [content, *self.get(key, [])]
        self._put(key, listed)
        return len(listed)

    def _lrem(self, key: bytes, count: bytes, content: bytes) -> int:
        listed = self.get(key, [])
        left = [each for each in listed if each != content]
        self._put(key, left)
        return len(listed) - len(left)

    def _ltrim(self, key: bytes, first: bytes, last: bytes) -> Status:
        self._put(key, self.get(key, [])[int(first) : int(last) + 1])
        return OK

    def _lrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        found: list[bytes] = self.get(key, [])[int(first) : (int(last) + 1) or None]
        return found

    def _lindex(self, key: bytes, at: bytes) -> bytes | None:
        listed = self.get(key, [])
        return listed[int(at)] if int(at) < len(listed) else None


COMMANDS: dict[bytes, Callable[..., Any]] = {
    name[1:].upper().encode(): method for name, method in vars(Data).items() if name[:2].strip("_") == name[1:2]
}
