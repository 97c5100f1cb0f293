"""Cells in the objects of one bucket of S3, or of what speaks its protocol with conditional writes.

A cell is the object PREFIX + key. S3 compares and writes in one step (``If-Match``, ``If-None-Match: *``), reads what
was written last (strong consistency, since 2020), and keeps it in three zones before it answers.

The ETag of S3 is a hash of the content, so equal contents would have equal versions: a random number ends each content.
A cell is removed by such a content that says so: not every server compares before it deletes. One that does deletes the
object then.

The clock is the ``Date`` of the answers: whole seconds, of the many servers behind one name.
"""

from __future__ import annotations

import os

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen
from lockctl.model import Capabilities, Cost
from lockctl.names import escaped
from lockctl.stores.s3 import address as addresses
from lockctl.stores.s3.protocol import Bucket, between, etag_of, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.stores.s3.address import Address
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Response

NONCE = 16  # random bytes, in hexadecimal digits behind a line feed
REMOVED = b"removed"
AT_ONCE = 8  # objects that are read beside each other for a list
LONGEST_PREFIX = 400  # bytes: a key of S3 has at most 1024, and each byte of a name may take three


class S3Cells(Cells):
    """The objects below one path of a bucket."""

    longest_look = 10.0  # a look costs money
    clock_error = 2.0  # whole seconds, and a second between servers that are set by the same source

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        root = address.path.strip("/")
        self._prefix = f"{root}/" if root else ""
        needed = f"s3:GetObject, s3:PutObject and s3:DeleteObject for {self._prefix}*, and s3:ListBucket"
        self.bucket = Bucket(address, needed)
        self.where = self.bucket.where
        self.deletes: bool | None = None  # whether the server compares before it deletes; None: conditions not tried

    def read(self, key: str, deadline: Deadline) -> Seen:
        """See ``Cells``."""
        answer = self.bucket.ask("GET", self.shown(key), deadline)
        if answer is None or answer.status == 404:
            return Seen(None, None, self._time(answer))
        data, _, nonce = answer.body.rpartition(b"\n")
        if len(nonce) != 2 * NONCE or not nonce.isalnum():
            data = answer.body  # of another program
        removed = data == REMOVED and answer.headers.get("x-amz-meta-lockctl") == "removed"
        return Seen(None if removed else data, etag_of(answer, self.where), self._time(answer))

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """See ``Cells``."""
        if data is None and seen.data is None:
            return self.read(key, deadline).version == seen.version
        if self.deletes is None and (seen.version is None or data is None):
            self.prove(deadline)
        etag = self._put(key, seen.version, data, deadline)
        if etag and data is None and self.deletes:
            try:
                self.bucket.ask("DELETE", self.shown(key), deadline, headers={"if-match": etag})
            except (BackendUnavailable, ConfigError):
                pass  # a few bytes are left that say that nothing is there
        return bool(etag)

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``. A list has no contents: each object is read, some beside each other."""
        from concurrent.futures import ThreadPoolExecutor  # few make lists

        names = list(self._names(self.shown(prefix), deadline))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, seen in zip(names, pool.map(lambda name: self.read(name, deadline), names), strict=True):
                if seen.data is not None:
                    yield name, seen

    def close(self) -> None:
        """See ``Cells``."""
        self.bucket.close()

    def shown(self, key: str) -> str:
        """See ``Cells``."""
        return self._prefix + escaped(key)

    def prove(self, deadline: Deadline) -> None:
        """See that the server heeds conditions, as some do not and say nothing. Raises ``ConfigError``."""
        key = f"proof:{os.urandom(NONCE).hex()}"
        etag = self._put(key, None, b"", deadline)
        wrong = f'"{os.urandom(NONCE).hex()}"'
        ignored = not etag or self._put(key, None, b"", deadline) or self._put(key, wrong, b"", deadline)
        kept = self.bucket.ask("DELETE", self.shown(key), deadline, headers={"if-match": wrong}) is None
        if kept:
            self.bucket.ask("DELETE", self.shown(key), deadline, headers={"if-match": etag} if etag else {})
        if ignored:
            raise ConfigError(f"{self.where}: the server ignores If-Match or If-None-Match: it cannot keep a lock")
        self.deletes = kept

    def _put(self, key: str, version: object, data: bytes | None, deadline: Deadline) -> str:
        """The new ETag; empty if the object is not any more what it was."""
        headers = {"if-none-match": "*"} if version is None else {"if-match": str(version)}
        if data is None:
            data, headers["x-amz-meta-lockctl"] = REMOVED, "removed"
        body = data + b"\n" + os.urandom(NONCE).hex().encode()
        answer = self.bucket.ask("PUT", self.shown(key), deadline, body=body, headers=headers)
        return "" if answer is None or answer.status == 404 else etag_of(answer, self.where)

    def _names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        """The keys of all cells whose object begins so."""
        import html  # few make lists
        import urllib.parse

        token = ""
        while True:
            query = f"continuation-token={quoted(token)}&" if token else ""
            query += f"list-type=2&prefix={quoted(beginning)}"
            answer = self.bucket.ask("GET", "", deadline, query=query)
            text = answer.body.decode("utf-8", "replace") if answer else ""
            for content in text.split("<Contents>")[1:]:
                name = html.unescape(between(content, "Key"))
                key = urllib.parse.unquote(name[len(self._prefix) :], errors="surrogateescape")
                if self.shown(key) == name:
                    yield key
            token = html.unescape(between(text, "NextContinuationToken"))
            if not token:
                return

    def _time(self, answer: Response | None) -> float:
        if answer is None or answer.date is None:
            raise ConfigError(f"{self.where}: the server does not tell its time (Date): it cannot end a lease")
        return answer.date


class S3Backend(CellBackend):
    """Locks below one path of a bucket."""

    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="s3",
        fencing="strict",
        many_hosts=True,
        kernel_held=False,
        leased=True,
        fair=True,
        lists_waiters=True,
        revocable=True,
        rate_error=0.01,
        heartbeat=10.0,
        freed_when="its lease has run out on the servers' clocks, up to 3 s later: these tell whole seconds",
        token_from="a counter in the object of the lock, never below their clocks in microseconds, also when it"  # noqa: S106
        " was deleted; breaks if all objects below the prefix are lost, or restored, while those clocks go back",
        survives="the loss of a zone, for as long as a lease lasts",
        clocks="those of the servers end the leases, and must not be more than a second apart; the host's may be wrong",
        period_clock="the servers', in whole seconds",
        slots=True,
        shared=True,
        hold_by="lease",
        # with a ttl of 30 s: a read and a write each 5 s; a waiter also looks, and keeps its position each 10 s
        holder_cost=Cost(1440, 0.0039),
        waiter_cost=Cost(1440, 0.0022),
    )

    @classmethod
    def from_url(cls, url: Url) -> S3Backend:
        """``s3://BUCKET/PREFIX?endpoint=URL&region=REGION``; raises ``ConfigError``."""
        address = addresses.from_url(url, cls.parameters)
        if len(address.path.encode()) > LONGEST_PREFIX or not address.path.isprintable():
            raise ConfigError(f"s3: a prefix is printable, and has at most {LONGEST_PREFIX} bytes")
        cells = S3Cells(address)
        cells.bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(cells)
