"""Cells in the objects of one bucket of S3, or of what speaks its protocol with conditional writes.

A cell is the object PREFIX + key. S3 compares and writes in one step (``If-Match``, ``If-None-Match: *``), reads what
was written last (strong consistency, since 2020), and keeps it in three zones before it answers. Its ETags are hashes
of the contents.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen
from lockctl.locks.objects import ObjectCells, between, capabilities, check_prefix, etag_of, is_a_cell, unconditional
from lockctl.stores.s3 import address as addresses
from lockctl.stores.s3.protocol import Bucket
from lockctl.wire.http import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.model import Capabilities
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline


class S3Cells(ObjectCells):
    """The objects below one path of a bucket."""

    def __init__(self, address: addresses.Address) -> None:
        """Connects when it is first used."""
        super().__init__(address.path)
        needed = f"s3:GetObject, s3:PutObject and s3:DeleteObject for {self.prefix}*, and s3:ListBucket"
        self.bucket = Bucket(address, needed)
        self.where = self.bucket.where

    def get(self, name: str, deadline: Deadline) -> Seen:
        answer = unconditional(self.bucket.ask("GET", name, deadline), self.where)
        at = self.time_of(answer)
        if answer.status == 404:
            return Seen(None, None, at)
        if "x-amz-request-id" not in answer.headers and not is_a_cell(answer.body):
            raise BackendUnavailable(f"{self.where}: that is not S3's answer: {answer.excerpt()}")
        return Seen(answer.body, etag_of(answer, self.where), at)

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> str | None:
        condition = {"if-none-match": "*"} if version is None else {"if-match": str(version)}
        answer = self.bucket.ask("PUT", name, deadline, body=body, headers=condition)
        if answer is None or answer.status == 404:
            return None
        if answer.body:
            raise BackendUnavailable(f"{self.where}: that is not S3's answer to a write: {answer.excerpt()}")
        return etag_of(answer, self.where)

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        return self.bucket.ask("DELETE", name, deadline, headers={"if-match": str(version)}) is not None

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        import html  # few make lists

        token = ""
        while True:
            query = f"continuation-token={quoted(token)}&" if token else ""
            query += f"list-type=2&prefix={quoted(beginning)}"
            answer = self.bucket.ask("GET", "", deadline, query=query)
            text = unconditional(answer, self.where).body.decode("utf-8", "replace")
            if "<ListBucketResult" not in text:
                raise BackendUnavailable(f"{self.where}: the answer is no list of objects: that is not S3's answer")
            for content in text.split("<Contents>")[1:]:
                yield html.unescape(between(content, "Key"))
            token = html.unescape(between(text, "NextContinuationToken"))
            if not token:
                return

    def close(self) -> None:
        self.bucket.close()


class S3Backend(CellBackend):
    """Locks below one path of a bucket."""

    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS
    capabilities: ClassVar[Capabilities] = capabilities("s3", "object", "the loss of a zone")

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        return url.user is not None

    @classmethod
    def from_url(cls, url: Url) -> S3Backend:
        """``s3://BUCKET/PREFIX?endpoint=URL&region=REGION``; raises ``ConfigError``."""
        address = addresses.from_url(url, cls.parameters)
        check_prefix("s3", address.path)
        cells = S3Cells(address)
        cells.bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(cells)
