"""Cells in the blobs of one container of Azure Blob Storage.

A cell is the blob PREFIX + key. Azure compares and writes in one step (``If-Match``, ``If-None-Match: *``), reads are
strongly consistent, and each change of a blob gives it a new ETag.

Azure's own leases of blobs are not used: they last 15 to 60 seconds or for ever, keep every writer out of the blob that
says who has it, know no queue, slots or readers, and an answer does not tell how long a lease still lasts.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen, escaped
from lockctl.locks.objects import ObjectCells, between, capabilities, check_prefix, etag_of, unconditional
from lockctl.stores.azblob import address as addresses
from lockctl.stores.azblob.protocol import Container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.model import Capabilities
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PAGE = "1000"  # names in one answer, which has much else of each blob
RIGHTS = "the data actions blobs/read, blobs/write and blobs/delete, or a SAS token with rwdl"
SURVIVES = "the loss of a disk or rack, with zone redundancy (ZRS) of a zone"


class AzureBlobCells(ObjectCells):
    """The blobs below one path of a container."""

    def __init__(self, address: addresses.Address) -> None:
        """Connects when it is first used."""
        super().__init__(address.path)
        self.container = Container(address, RIGHTS)
        self.where = self.container.where
        self.keeps_old: bool | None = None  # whether what is written over is kept; None: nothing was written yet

    def get(self, name: str, deadline: Deadline) -> Seen:
        answer = unconditional(self.container.ask("GET", name, deadline), self.where)
        at = self.time_of(answer)
        if answer.status == 404:
            return Seen(None, None, at)
        return Seen(answer.body, etag_of(answer, self.where), at)

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> str | None:
        condition = {"if-none-match": "*"} if version is None else {"if-match": str(version)}
        headers = {**condition, "content-type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
        answer = self.container.ask("PUT", name, deadline, body=body, headers=headers)
        if answer is None or answer.status == 404:
            return None
        self.keeps_old = self.keeps_old or "x-ms-version-id" in answer.headers
        return etag_of(answer, self.where)

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        answer = self.container.ask("DELETE", name, deadline, headers={"if-match": str(version)})
        if answer is not None:
            self.keeps_old = self.keeps_old or answer.headers.get("x-ms-delete-type-permanent") == "false"
        return answer is not None

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        import html  # few make lists

        marker = ""
        while True:
            query = (("comp", "list"), ("maxresults", PAGE), ("prefix", beginning), ("restype", "container"))
            answer = self.container.ask("GET", "", deadline, query=(*query, *((("marker", marker),) if marker else ())))
            text = unconditional(answer, self.where).body.decode("utf-8", "replace")
            if "<EnumerationResults" not in text:
                raise BackendUnavailable(f"{self.where}: the answer is no list of blobs: that is not Azure's answer")
            for blob in text.split("<Blob>")[1:]:
                yield html.unescape(between(blob, "Name"))
            marker = html.unescape(between(text, "NextMarker"))
            if not marker:
                return

    def shown(self, key: str) -> str:
        """See ``Cells``. No name ends with a point: Azure may drop it."""
        return self.prefix + escaped(key).replace(".", "%2E")

    def close(self) -> None:
        self.container.close()


class AzureBlobBackend(CellBackend):
    """Locks below one path of a container."""

    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS
    capabilities: ClassVar[Capabilities] = capabilities("azblob", "blob", SURVIVES)

    @classmethod
    def from_url(cls, url: Url) -> AzureBlobBackend:
        """``azblob://CONTAINER/PREFIX?account=ACCOUNT``; raises ``ConfigError``."""
        address = addresses.from_url(url, cls.parameters)
        check_prefix("azblob", address.path)
        cells = AzureBlobCells(address)
        cells.container.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(cells)
