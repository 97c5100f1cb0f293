"""Cells in the objects of one bucket of Google Cloud Storage.

A cell is the object PREFIX + key. Each write gives an object a new generation, a number that never comes back, and
``ifGenerationMatch`` compares it in the same step, with 0 for an object that is not there. Reads are strongly
consistent.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen
from lockctl.locks.objects import ObjectCells, capabilities, check_prefix
from lockctl.stores.gcs.protocol import PARAMETERS, Bucket
from lockctl.wire.http import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.model import Capabilities
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

RIGHTS = "storage.objects.get, .create, .delete and .list"
PAGE = 1000  # names in one answer, as is usual: an emulator would give all of them


class GcsCells(ObjectCells):
    """The objects below one path of a bucket."""

    def __init__(self, url: Url, parameters: dict[str, str]) -> None:
        """Connects when it is first used."""
        super().__init__(url.path)
        self.bucket = Bucket(url, parameters, f"{RIGHTS}, for {self.prefix}*")
        self.where = self.bucket.where

    def get(self, name: str, deadline: Deadline) -> Seen:
        answer = self.bucket.read(name, deadline)
        if answer.status == 404:
            return Seen(None, None, self.time_of(answer))
        generation = self.bucket.generation(answer.headers.get("x-goog-generation"))
        return Seen(answer.body, generation, self.time_of(answer))

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> str | None:
        return self.bucket.write(name, version, body, deadline, {"cacheControl": "no-store"})

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        target = f"{self.bucket.objects}/{quoted(name)}?ifGenerationMatch={version}"
        return self.bucket.delete(target, deadline)

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        token = ""
        while True:
            more = f"&pageToken={quoted(token)}" if token else ""
            page = f"maxResults={PAGE}&fields=kind,items(name),nextPageToken{more}"
            target = f"{self.bucket.objects}?prefix={quoted(beginning)}&{page}"
            found = self.bucket.document(self.bucket.ask("GET", target, deadline))
            items = found.get("items") or []
            if found.get("kind") != "storage#objects" or not all(isinstance(item, dict) for item in items):
                raise BackendUnavailable(f"{self.where}: the answer is no list of objects: that is not Google's answer")
            for item in items:
                yield str(item.get("name"))
            token = str(found.get("nextPageToken") or "")
            if not token:
                return

    def close(self) -> None:
        self.bucket.close()


class GcsBackend(CellBackend):
    """Locks below one path of a bucket."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = capabilities(
        "gcs", "object", "the loss of a zone", host="the host's ends none"
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - none does
        return False

    @classmethod
    def from_url(cls, url: Url) -> GcsBackend:
        """``gcs://BUCKET/PREFIX?credentials=FILE``; raises ``ConfigError``."""
        check_prefix("gcs", url.path)
        cells = GcsCells(url, cls.parameters)
        cells.bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(cells)
