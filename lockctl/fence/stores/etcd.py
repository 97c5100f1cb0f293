"""Marks in etcd: one key for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.etcd import address
from lockctl.stores.etcd.cell import EtcdCells
from lockctl.url import Url, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class EtcdStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = {**address.PARAMETERS, "prefix": PREFIX}

    @classmethod
    def from_url(cls, url: Url) -> EtcdStore:
        """As ``EtcdBackend.from_url``, with another usual prefix; raises ``ConfigError``."""
        params = take_params(url, cls.parameters)
        return cls(EtcdCells(address.cluster(url, params)), params["prefix"])
