"""Marks in a NATS bucket: one key for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.nats.address import PARAMETERS, read_url
from lockctl.stores.nats.cell import NatsCells
from lockctl.stores.nats.protocol import Bucket
from lockctl.stores.nats.session import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url


class NatsStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> NatsStore:
        """``nats://HOST,HOST/BUCKET/PREFIX``; raises ``ConfigError``."""
        address = read_url(url)
        load(address)
        return cls(NatsCells(Bucket(address)), "mark:" + (address.prefix or PREFIX))
