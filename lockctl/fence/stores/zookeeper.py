"""Marks in a ZooKeeper ensemble: one node for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import CellMarks
from lockctl.stores.zookeeper.address import read_url
from lockctl.stores.zookeeper.cell import ZooKeeperCells
from lockctl.stores.zookeeper.session import library
from lockctl.url import Url, take_params
from lockctl.wire.tls_settings import PARAMETERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


FENCE = ".fence"  # below the root: no lock can have this name


class ZooKeeperStore(CellMarks):
    """See ``Store``. Marks are below ``ROOT/.fence``, so that locks and marks can have the same URL."""

    parameters: ClassVar[dict[str, str]] = dict(PARAMETERS)

    @classmethod
    def from_url(cls, url: Url) -> ZooKeeperStore:
        """``zookeeper://H1:2181,H2:2181/ROOT``; raises ``ConfigError``."""
        take_params(url, cls.parameters)
        place = read_url(url)
        library()  # says so when kazoo is missing
        return cls(ZooKeeperCells(place, f"{place.root}/{FENCE}"))

    def _key(self, resource: str) -> str:
        return resource  # the driver escapes it
