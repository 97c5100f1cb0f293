"""Cells in the objects of a bucket, each written on a condition: what all stores of objects have in common.

A version must not come back, and where it is a hash of the content, equal contents would have equal ones: a random
number ends each content. A cell is removed by a content that is nothing else, because not every server compares before
it deletes. One that does deletes the object then.

The clock is the ``Date`` of the answers: whole seconds, of the many servers behind one name.
"""

from __future__ import annotations

import os
from abc import abstractmethod

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.driver import Cells, Seen, escaped
from lockctl.model import Capabilities, Cost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline

NONCE = 32  # random hexadecimal digits, behind a line feed
REMOVED = b"-"  # stands instead of the content and the line feed
LARGEST_ETAG = 1024  # characters
LONGEST_PREFIX = 400  # bytes: a name has at most 1024, and each byte of it may take three
AT_ONCE = 32  # objects that are read beside each other for a list: 10,000, each of which takes 15 ms, need 5 s


class ObjectCells(Cells):
    """The objects below one path. Subclasses send the requests."""

    longest_look = 10.0  # a look costs money
    clock_error = 2.0  # whole seconds, and a second between servers that are set by the same source

    def __init__(self, path: str) -> None:
        """Nothing is sent yet."""
        root = path.strip("/")
        self.prefix = f"{root}/" if root else ""
        self.deletes: bool | None = None  # whether the server compares before it deletes; None: conditions not tried

    @abstractmethod
    def get(self, name: str, deadline: Deadline) -> Seen:
        """The whole content of an object; no data where there is none."""

    @abstractmethod
    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> object:
        """Write an object that has this version, or with ``None`` is not there; the new version.

        ``None``: that was not so.
        """

    @abstractmethod
    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        """Delete an object if it has this version; ``False``: it has another."""

    @abstractmethod
    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        """All objects whose name begins so."""

    def read(self, key: str, deadline: Deadline) -> Seen:
        seen = self.get(self.shown(key), deadline)
        body = seen.data
        if body is None:
            return seen
        if not is_a_cell(body):
            return seen  # of another program
        if body[-NONCE - 1 : -NONCE] == REMOVED:
            return seen if len(body) > NONCE + 1 else Seen(None, seen.version, seen.at)
        return Seen(body[: -NONCE - 1], seen.version, seen.at)

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        name = self.shown(key)
        if data is None and seen.data is None:
            return self.read(key, deadline).version == seen.version
        if self.deletes is None and (seen.version is None or data is None):
            self.prove(deadline)
        version = self.put(name, seen.version, _body(data), deadline)
        if version is not None and data is None and self.deletes:
            try:
                self.delete(name, version, deadline)
            except (BackendUnavailable, ConfigError):
                pass  # a few bytes are left that say that nothing is there
        return version is not None

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``. A list has no contents: each object is read, some beside each other."""
        import urllib.parse  # few make lists
        from concurrent.futures import ThreadPoolExecutor

        keys = []
        for name in self.names(self.shown(prefix), deadline):
            key = urllib.parse.unquote(name[len(self.prefix) :], errors="surrogateescape")
            if self.shown(key) == name:
                keys.append(key)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for key, seen in zip(keys, pool.map(lambda key: self.read(key, deadline), keys), strict=True):
                if seen.data is not None:
                    yield key, seen

    def shown(self, key: str) -> str:
        return self.prefix + escaped(key)

    def prove(self, deadline: Deadline) -> None:
        """See that the server heeds conditions, as some do not and say nothing. Raises ``ConfigError``."""
        name = self.shown(f"proof:{os.urandom(8).hex()}")
        version = self._put_surely(name, None, _body(b"1"), deadline)
        ignored = version is None or self.put(name, None, _body(b"2"), deadline) is not None
        # one that was true, and is no longer
        ignored = ignored or self._put_surely(name, version, _body(b"3"), deadline) is None
        ignored = ignored or self.put(name, version, _body(b"4"), deadline) is not None
        self.deletes = not self.delete(name, version, deadline)
        if self.deletes:
            self.delete(name, self.get(name, deadline).version, deadline)
        if ignored:
            self.deletes = None
            raise ConfigError(f"{self.where}: the server ignores the conditions of writes: it cannot keep a lock")

    def _put_surely(self, name: str, version: object, body: bytes, deadline: Deadline) -> object:
        """The same as :meth:`put`; a refusal may be that of a second try, when the answer to the first was lost."""
        done = self.put(name, version, body, deadline)
        if done is not None:
            return done
        seen = self.get(name, deadline)
        return seen.version if seen.data == body else None

    def time_of(self, answer: Response) -> float:
        """When the server answered. Raises ``ConfigError``."""
        if answer.date is None:
            raise ConfigError(f"{self.where}: the server does not tell its time (Date): it cannot end a lease")
        return answer.date


def capabilities(scheme: str, thing: str, survives: str, *, host: str = "the host's may be wrong") -> Capabilities:
    """What locks in the objects of a store promise, which it calls *thing*; *host*: what the host's clock does."""
    return Capabilities(
        scheme=scheme,
        rate_error=0.01,
        heartbeat=10.0,
        freed_when="its lease has run out on the servers' clocks, up to 3 s later: these tell whole seconds",
        token_from=f"a counter in the {thing} of the lock, never below their clocks in microseconds, also when it"
        f" was deleted; breaks if all {thing}s below the prefix are lost, or restored, while those clocks go back",
        survives=f"{survives}, for as long as a lease lasts",
        clocks=f"those of the servers end the leases, and must not be more than a second apart; {host}",
        period_clock="the servers', in whole seconds",
        # with a ttl of 30 s: a read and a write each 5 s; a waiter also looks, and keeps its position each 10 s
        holder_cost=Cost(1440, 0.0039),
        waiter_cost=Cost(1440, 0.0022),
    )


def check_prefix(scheme: str, path: str) -> None:
    """Refuse a path of a URL that leaves no room for names. Raises ``ConfigError``."""
    if len(path.encode()) > LONGEST_PREFIX or not path.isprintable():
        raise ConfigError(f"{scheme}: a prefix is printable, and has at most {LONGEST_PREFIX} bytes")


def unconditional(answer: Response | None, where: str) -> Response:
    """The answer to a request without a condition. Raises ``BackendUnavailable`` if it says that one is not met."""
    if answer is None:
        raise BackendUnavailable(f"{where}: refused for a condition that there was none of (412)")
    return answer


def etag_of(answer: Response, where: str) -> str:
    """The ETag of an object. Raises ``ConfigError``."""
    etag = answer.headers.get("etag", "")
    if not etag.isascii() or not etag.isprintable() or not 0 < len(etag) < LARGEST_ETAG:
        raise ConfigError(f"{where}: the server gives no ETag: it cannot compare")
    return etag


def between(text: str, name: str) -> str:
    """What the first element of this name has, in a document that needs no more understanding than this."""
    return text.partition(f"<{name}>")[2].partition(f"</{name}>")[0]


def is_a_cell(body: bytes) -> bool:
    """Whether an object has the form of those that are written here."""
    mark, nonce = body[-NONCE - 1 : -NONCE], body[-NONCE:]
    return len(nonce) == NONCE and nonce.isalnum() and mark in (b"\n", REMOVED)


def _body(data: bytes | None) -> bytes:
    return (REMOVED if data is None else data + b"\n") + os.urandom(NONCE // 2).hex().encode()
