"""Cells in the objects of one bucket of Google Cloud Storage.

A cell is the object PREFIX + key. Each write gives an object a new generation, a number that never comes back, and
``ifGenerationMatch`` compares it in the same step, with 0 for an object that is not there. Reads are strongly
consistent.
"""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen
from lockctl.locks.objects import ObjectCells, quoted
from lockctl.model import Capabilities, Cost
from lockctl.stores.gcs.protocol import PARAMETERS, Bucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

RIGHTS = "storage.objects.get, .create, .delete and .list"
PAGE = 1000  # names in one answer, as is usual: an emulator would give all of them
LONGEST_PREFIX = 400  # bytes: a name has at most 1024, and each byte of it may take three


class GcsCells(ObjectCells):
    """The objects below one path of a bucket."""

    def __init__(self, url: Url, parameters: dict[str, str]) -> None:
        """Connects when it is first used."""
        super().__init__(url.path)
        self.bucket = Bucket(url, parameters, f"{RIGHTS}, for {self.prefix}*")
        self.where = self.bucket.where

    def get(self, name: str, deadline: Deadline) -> Seen:
        """See ``ObjectCells``."""
        answer = self.bucket.read(name, deadline)
        if answer.status == 404:
            return Seen(None, None, self.time_of(answer))
        generation = self.bucket.generation(answer.headers.get("x-goog-generation"))
        return Seen(answer.body, generation, self.time_of(answer))

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> str | None:
        """See ``ObjectCells``."""
        return self.bucket.write(name, version, body, deadline, {"cacheControl": "no-store"})

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        """See ``ObjectCells``."""
        target = f"{self.bucket.objects}/{quoted(name)}?ifGenerationMatch={version}"
        return self.bucket.ask("DELETE", target, deadline) is not None

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        """See ``ObjectCells``."""
        token = ""
        while True:
            more = f"&pageToken={quoted(token)}" if token else ""
            page = f"maxResults={PAGE}&fields=items(name),nextPageToken{more}"
            target = f"{self.bucket.objects}?prefix={quoted(beginning)}&{page}"
            found = self.bucket.document(self.bucket.ask("GET", target, deadline))
            for item in found.get("items") or ():
                yield str(item.get("name"))
            token = str(found.get("nextPageToken") or "")
            if not token:
                return

    def close(self) -> None:
        """See ``Cells``."""
        self.bucket.close()


class GcsBackend(CellBackend):
    """Locks below one path of a bucket."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="gcs",
        rate_error=0.01,
        heartbeat=10.0,
        freed_when="its lease has run out on the servers' clocks, up to 3 s later: these tell whole seconds",
        token_from="a counter in the object of the lock, never below their clocks in microseconds, also when it"  # noqa: S106
        " was deleted; breaks if all objects below the prefix are lost, or restored, while those clocks go back",
        survives="the loss of a zone, for as long as a lease lasts",
        clocks="those of the servers end the leases, and must not be more than a second apart; the host's ends none",
        period_clock="the servers', in whole seconds",
        # with a ttl of 30 s: a read and a write each 5 s; a waiter also looks, and keeps its position each 10 s
        holder_cost=Cost(1440, 0.0039),
        waiter_cost=Cost(1440, 0.0022),
    )

    @classmethod
    def from_url(cls, url: Url) -> GcsBackend:
        """``gcs://BUCKET/PREFIX?credentials=FILE``; raises ``ConfigError``."""
        if len(url.path.encode()) > LONGEST_PREFIX or not url.path.isprintable():
            raise ConfigError(f"gcs: a prefix is printable, and has at most {LONGEST_PREFIX} bytes")
        cells = GcsCells(url, cls.parameters)
        cells.bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(cells)
