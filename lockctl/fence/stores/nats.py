"""Marks in a NATS bucket: one key for each resource.

A bucket that removes keys by itself is refused: it would forget marks without a word.
"""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.nats.address import PARAMETERS, read_url
from lockctl.stores.nats.cell import NatsCells, storage
from lockctl.stores.nats.protocol import Bucket
from lockctl.stores.nats.session import load
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url


class NatsStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        """Marks with this *prefix* before their names; nothing is opened yet."""
        super().__init__(NatsCells(bucket), prefix)
        self._bucket = bucket

    @classmethod
    def from_url(cls, url: Url) -> NatsStore:
        """``nats://HOST,HOST/BUCKET/PREFIX``; raises ``ConfigError``."""
        address = read_url(url)
        load(address)
        return cls(Bucket(address), "mark:" + (address.prefix or PREFIX))

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: whether the bucket is on disks; when these are written (``sync_interval``) is not told."""
        found, on_disk = storage(self._bucket.settings(Deadline(timeout))[0])
        if not on_disk:
            raise ConfigError(
                f"{self._bucket.where}: its storage is {found}, so a restart can lose marks, and old tokens would pass:"
                " make the bucket with --storage=file, or keep the mark in another store"
            )
