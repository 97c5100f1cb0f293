"""The network before the servers of a backend, which a test puts out of order."""

from __future__ import annotations

from typing import Any

from tests.faults.backends import addresses_of
from tests.servers.proxy import Proxy


class Network:
    """Proxies before the servers of a backend."""

    def __init__(self, servers: Any) -> None:
        self.proxies = [Proxy(address) for address in addresses_of(servers)]

    @property
    def addresses(self) -> list[str]:
        return [proxy.address for proxy in self.proxies]

    def fail(self, mode: str) -> None:
        for proxy in self.proxies:
            proxy.mode = mode

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
