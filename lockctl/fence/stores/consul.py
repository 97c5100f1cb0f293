"""Marks in Consul: one key for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.consul import address
from lockctl.stores.consul.cell import ConsulCells
from lockctl.url import Url, take_params
from lockctl.value import replace
from lockctl.wire import tls_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class ConsulStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = {
        "prefix": PREFIX,
        "dc": "",
        "ns": "",
        "partition": "",
        **tls_settings.PARAMETERS,
    }

    @classmethod
    def from_url(cls, url: Url) -> ConsulStore:
        """``consul://[:TOKEN@]HOST[:PORT]/?prefix=P&dc=D&...``; raises ``ConfigError``."""
        params = tuple(take_params(url, cls.parameters).items())
        found = address.from_url(replace(url, params=params), {**cls.parameters, "lock_delay": "0"})
        return cls(ConsulCells(found), found.prefix)
