"""What the contract suite must be able to do to a backend over cells: the same for every store of them."""

from __future__ import annotations

import contextlib
import os
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from lockctl.locks.lock_cells import LOCK
from lockctl.registry import open_backend
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, Harness, ProxiedHarness
from tests.jobs import eventually
from tests.servers.http_proxy import HttpProxy
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.locks.driver import Cells
    from lockctl.model import Grant
    from lockctl.url import Url


class CellHarness(Harness):
    """A store that is harmed through its own driver, with clients of its own.

    Its lock is that of all stores of cells, which is put to the test most in memory.
    """

    crowd = 4
    histories = 2

    @abstractmethod
    def cells(self) -> Cells:
        """A driver beside those of the clients."""

    def key(self, name: str) -> str:
        """The cell of a lock."""
        return LOCK + name

    def put(self, name: str, data: bytes | None) -> None:
        """Write the cell of a lock, or remove it, whatever is there."""
        with contextlib.closing(self.cells()) as cells:
            while not cells.write(self.key(name), cells.read(self.key(name), Deadline(LIMIT)), data, Deadline(LIMIT)):
                pass

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + 0.01)

    def usurp(self, name: str) -> None:
        self.put(name, None)

    def forget(self, name: str) -> None:
        self.put(name, None)

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        written = b"web3:" + os.urandom(4).hex().encode()  # it says which program it is
        self.put(name, written)
        yield
        with contextlib.closing(self.cells()) as cells:
            is_there = cells.read(self.key(name), Deadline(LIMIT)).data == written
        if is_there:
            self.put(name, None)


class ProxiedCells(ProxiedHarness, CellHarness):
    """A store whose clients each stand behind a proxy of their own, with a driver that no proxy harms."""

    server: Any
    own: Cells
    prefix = "locks"
    own_cost = 0.015  # of a proxy

    @abstractmethod
    def place(self, address: str, prefix: str) -> str:
        """The URL of the locks of *prefix*, with a proxy at *address*."""

    def target(self) -> Any:
        """What the proxies stand before."""
        return self.server

    def client(self, prefix: str = "") -> Backend:
        proxy = Proxy(self.target())
        return self.keep(open_backend(parse_url(self.place(proxy.address, prefix or self.prefix))), proxy)

    def neighbour(self) -> Backend:
        return self.client(f"another-{self.prefix}")

    def cells(self) -> Cells:
        return self.own

    def close(self) -> None:
        self.own.close()
        super().close()


class DatedHarness(ProxiedCells):
    """A path with a clock of its own, which is that of a proxy; each client has another proxy before that."""

    freed_after = 4.0  # whole seconds, and what clocks may differ
    hold_slack = 3.0
    own_cost = 0.03  # of two proxies, one of which reads each request

    def __init__(self, server: Any) -> None:
        super().__init__()
        self.server = server
        self.path = f"t{os.urandom(6).hex()}"
        self.clock = HttpProxy(server.address)
        self.clock.__enter__()
        self.own = self.driver(parse_url(self.place(self.clock.address, self.prefix)))

    @abstractmethod
    def driver(self, url: Url) -> Cells:
        """A driver of a place."""

    def target(self) -> str:
        return self.clock.address

    def pass_time(self, seconds: float) -> None:
        self.clock.ahead += seconds

    def expire(self, grant: object) -> None:
        self.pass_time(self.freed_after)

    def close(self) -> None:
        super().close()
        self.clock.__exit__()


class ServedHarness(ProxiedCells):
    """The locks of one prefix on a server."""

    def __init__(self, server: Any, own: Cells) -> None:
        super().__init__()
        self.server = server
        self.own = own
        self.prefix = f"contract-{os.urandom(6).hex()}/"

    def key(self, name: str) -> str:
        return f"{LOCK}{self.prefix}{name}"


def assert_told_and_not_polling(cells: Cells, other: Cells, reads: tuple[Any, str]) -> None:
    """A watch reads once, *reads* being what it reads with, and then returns soon after a change by *other*."""
    key = f"{LOCK}told-{os.urandom(6).hex()}"
    assert cells.write(key, cells.read(key, Deadline(LIMIT)), b"1", Deadline(LIMIT))
    seen, looks = cells.read(key, Deadline(LIMIT)), list[float]()
    owner, name = reads
    read = getattr(owner, name)

    def counted(*words: Any) -> Any:
        looks.append(time.monotonic())
        return read(*words)

    setattr(owner, name, counted)
    watching = Background(lambda: cells.watch(key, seen, Deadline(LIMIT)))
    eventually(lambda: looks)
    time.sleep(1.0)  # the span in which it is not to look
    assert len(looks) == 1
    changed = time.monotonic()
    assert other.write(key, seen, b"2", Deadline(LIMIT))
    watching.result()
    assert time.monotonic() - changed < 5.0
    cells.close()
    other.close()
