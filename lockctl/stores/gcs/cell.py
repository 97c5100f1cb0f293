"""Cells in the objects of one bucket of Google Cloud Storage.

A cell is the object PREFIX + key. Each write gives an object a new generation, a number that never comes back, and
``ifGenerationMatch`` compares it in the same step, with 0 for an object that is not there. Reads are strongly
consistent.

The uploads are multipart: emulators look at conditions there alone. Google writes one object about once a second, and
refuses what comes sooner (429): such a write was not done, and is tried again after a moment as if another had been
faster.
"""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen, jittered, sleep
from lockctl.locks.objects import ObjectCells
from lockctl.model import Capabilities, Cost
from lockctl.stores.gcs.protocol import PARAMETERS, Bucket, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Response

TOO_OFTEN = 429
BETWEEN_WRITES = 1.0  # seconds between two writes of one object, in the long run
BOUNDARY = "lockctl-7d2f0c1be6a94c53"  # contents are JSON, digits, and random digits at their end
RIGHTS = "storage.objects.get, .create, .delete and .list"
LONGEST_PREFIX = 400  # bytes: a name has at most 1024, and each byte of it may take three


class GcsCells(ObjectCells):
    """The objects below one path of a bucket."""

    def __init__(self, url: Url, parameters: dict[str, str]) -> None:
        """Connects when it is first used."""
        super().__init__(url.path)
        self.bucket = Bucket(url, parameters, f"{RIGHTS}, for {self.prefix}*")
        self.where = self.bucket.where
        self._objects = f"/storage/v1/b/{self.bucket.name}/o"

    def get(self, name: str, deadline: Deadline) -> Seen:
        """See ``ObjectCells``."""
        answer = self._usable(self.bucket.ask("GET", f"{self._objects}/{quoted(name)}?alt=media", deadline))
        if answer.status == 404:
            return Seen(None, None, self.time_of(answer))
        return Seen(answer.body, self._generation(answer.headers.get("x-goog-generation")), self.time_of(answer))

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> str | None:
        """See ``ObjectCells``."""
        target = f"/upload{self._objects}?uploadType=multipart&ifGenerationMatch={version or 0}&fields=generation"
        start = json_text.render({"name": name, "cacheControl": "no-store"}).encode()
        parts = (b"application/json", start), (b"application/octet-stream", body)
        mark = b"--" + BOUNDARY.encode()
        whole = b"".join(b"%s\r\nContent-Type: %s\r\n\r\n%s\r\n" % (mark, kind, part) for kind, part in parts)
        headers = (("Content-Type", f"multipart/related; boundary={BOUNDARY}"),)
        while True:
            answer = self.bucket.ask("POST", target, deadline, body=whole + mark + b"--\r\n", headers=headers)
            if answer is None:
                return None
            pause = jittered(BETWEEN_WRITES)
            if answer.status != TOO_OFTEN or deadline.left() < pause:
                return self._generation(self._document(answer).get("generation"))
            sleep(pause, deadline.interrupt, self.where)

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        """See ``ObjectCells``."""
        target = f"{self._objects}/{quoted(name)}?ifGenerationMatch={version}"
        return self.bucket.ask("DELETE", target, deadline) is not None

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        """See ``ObjectCells``."""
        token = ""
        while True:
            more = f"&pageToken={quoted(token)}" if token else ""
            target = f"{self._objects}?prefix={quoted(beginning)}&fields=items(name),nextPageToken{more}"
            found = self._document(self.bucket.ask("GET", target, deadline))
            for item in found.get("items") or ():
                yield str(item.get("name"))
            token = str(found.get("nextPageToken") or "")
            if not token:
                return

    def close(self) -> None:
        """See ``Cells``."""
        self.bucket.close()

    def _usable(self, answer: Response | None) -> Response:
        if answer is None or answer.status == TOO_OFTEN:
            raise BackendUnavailable(f"{self.where}: too many requests ({TOO_OFTEN}): it is busy")
        return answer

    def _document(self, answer: Response | None) -> dict[str, Any]:
        usable = self._usable(answer)
        found = usable.json() if usable.status != 404 else None
        if not isinstance(found, dict):
            raise ConfigError(f"{self.where}: there is no such bucket, or this is not Google Cloud Storage")
        return found

    def _generation(self, text: object) -> str:
        if not isinstance(text, str) or not text.isdecimal():
            raise ConfigError(f"{self.where}: the answer has no generation: is this Google Cloud Storage?")
        return text


class GcsBackend(CellBackend):
    """Locks below one path of a bucket."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="gcs",
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
        clocks="those of the servers end the leases, and must not be more than a second apart; the host's ends none",
        period_clock="the servers', in whole seconds",
        slots=True,
        shared=True,
        hold_by="lease",
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
