"""What holds for marks in every lock server, beside the contract of all stores."""

from __future__ import annotations

import contextlib
import os
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import fence
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import LARGEST, Stale, locate
from lockctl.model import Claim
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.fence.changed_answers import ChangedAnswers
from tests.fence.contract import DOMAIN, LIMIT, OTHER, Client, FenceHarness, StoreContract, mark
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.fence import Store

SECRET = "s3cret-of-somebody"
GARBAGE = [
    b"",
    b"33",
    f"{DOMAIN};".encode(),
    f"{DOMAIN};-5".encode(),
    f"{DOMAIN};0".encode(),
    f"{DOMAIN};034".encode(),
    f"{DOMAIN};34 ".encode(),
    f"{DOMAIN};34\n".encode(),
    f"{DOMAIN};3.4e1".encode(),
    f"{DOMAIN};{LARGEST + 1}".encode(),
    f"{DOMAIN};{10**30}".encode(),
    b";34",
    b"etcd:\xff\xfe;34",
    b"etcd:\0;34",
    f"{SECRET}\n{DOMAIN};34".encode(),
    SECRET.encode() * 500,
    b"x" * 4000 + f"{DOMAIN};34".encode(),
]
# resources whose names a server could take for a part of its own syntax, or for each other
STRANGE = [
    ".",
    "..",
    "%2E",
    "/srv/stock.json",
    "%2Fsrv%2Fstock.json",
    "srv//stock.json/",
    ".lockctl/domain",
    "a b",
    "a+b",
    "a%20b",
    "{stock}",
    "}:queue",
    "*?[x]",
    "a;b&c=d#e",
    "L\N{LATIN SMALL LETTER A WITH DIAERESIS}ger \N{SNOWMAN}",
    "\N{GRINNING FACE}\N{OBJECT REPLACEMENT CHARACTER}",
    "\N{SNOWMAN}" * 300,
    "x" * 300,
]


class ServedFenceHarness(FenceHarness):
    """Marks below a prefix of their own in a shared server, behind a network that can be cut."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.prefix = f"fence-{os.urandom(6).hex()}/"
        self.proxy = Proxy(server)
        self._opened: list[Store] = []

    def open(self, resource: str = "stock") -> tuple[Store, str]:
        store, name = super().open(resource)
        self._opened.append(store)
        return store, name

    @abstractmethod
    def url(self, address: str | None = None) -> str:
        """Of the store, and of locks with the same prefix; through the proxy, or another *address*."""

    @abstractmethod
    def key(self, resource: str) -> str:
        """What the manual says about where a mark is."""

    @abstractmethod
    def stored(self, key: str) -> bytes | None:
        """What another program sees under a key."""

    @abstractmethod
    def put(self, key: str, content: bytes) -> None:
        """What another program writes."""

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return resource, self.url()

    def behind(self, address: str) -> tuple[str, str]:
        """As :meth:`words`, through a server at this address."""
        return "stock", self.url(address)

    def damage(self, resource: str = "stock") -> None:
        self.put(self.key(resource), b"something else")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.mode = "blackhole"
        yield
        self.proxy.mode = "pass"

    def locks(self) -> Backend:
        return open_backend(parse_url(self.url()))

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self.proxy.close()


class LockServerContract(ChangedAnswers, StoreContract):
    """The contract, and what is the same for all servers."""

    def test_a_mark_is_text_that_a_person_can_read_and_write(self, harness: ServedFenceHarness, client: Client) -> None:
        client.advance(mark(33))
        assert harness.stored(harness.key("stock")) == f"{DOMAIN};33".encode()
        harness.put(harness.key("stock"), f"{OTHER};5".encode())
        assert client.current() == mark(5, OTHER)

    @pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
    def test_what_is_no_mark_is_left_alone_and_not_shown(
        self, harness: ServedFenceHarness, client: Client, content: bytes
    ) -> None:
        key = harness.key("stock")
        client.advance(mark(33))
        harness.put(key, content)
        for step in (lambda: client.advance(mark(LARGEST)), client.current):
            with pytest.raises(ConfigError, match="fence reset") as told:
                step()
            assert "\n" not in str(told.value)
            assert SECRET not in str(told.value)
        assert harness.stored(key) == content
        assert client.reset(mark(7)) is None
        assert client.current() == mark(7)

    def test_every_name_has_a_mark_of_its_own(self, harness: ServedFenceHarness) -> None:
        clients = [Client(harness, name) for name in STRANGE]
        for number, client in enumerate(clients, 1):
            assert client.current() is None
            client.advance(mark(number))
        assert [client.current() for client in clients] == [mark(number) for number in range(1, len(STRANGE) + 1)]
        for number, (name, client) in enumerate(zip(STRANGE, clients, strict=True), 1):
            assert harness.stored(harness.key(name)) == f"{DOMAIN};{number}".encode()
            assert client.reset(None) == mark(number)

    def test_locks_and_marks_of_one_prefix_do_not_see_each_other(self, harness: ServedFenceHarness) -> None:
        names = ["stock", "stock/.lock", "stock/1f", "stock}:fence", ".fence"]
        claim = Claim("stock", os.urandom(16).hex(), 5.0, "host", os.getpid(), "ops", ("./stock.sh",))
        locks = harness.locks()
        for name in names:
            Client(harness, name).advance(mark(7))
        assert list(locks.list("*", timeout=LIMIT)) == []
        assert locks.inspect("stock", timeout=LIMIT).state == "free"
        grant = locks.try_acquire(claim, timeout=LIMIT)
        assert grant is not None
        assert [lock.name for lock in locks.list("*", timeout=LIMIT)] == ["stock"]
        for name in names:
            assert Client(harness, name).current() == mark(7)
            Client(harness, name).advance(mark(8))
        assert Client(harness, "stock/other").current() is None
        locks.renew(grant, timeout=LIMIT)
        assert Client(harness).reset(None) == mark(8)
        locks.renew(grant, timeout=LIMIT)
        locks.release(grant, timeout=LIMIT)
        locks.close()

    def test_whose_answer_was_lost_may_ask_again(self, harness: ServedFenceHarness, client: Client) -> None:
        client.advance(mark(33))
        harness.proxy.mode = "drop_replies"
        before = time.monotonic()
        with pytest.raises(BackendUnavailable):
            client.advance(mark(34), timeout=0.5)
        assert time.monotonic() - before < 5.0
        harness.proxy.mode = "pass"
        assert client.advance(mark(34)) == mark(34)
        with pytest.raises(Stale):
            client.advance(mark(33))

    def test_the_limit_covers_everything_when_a_server_answers_byte_by_byte(self, harness: ServedFenceHarness) -> None:
        client = Client(harness)
        harness.proxy.mode = "trickle"
        before = time.monotonic()
        with pytest.raises(BackendUnavailable):
            client.advance(mark(34), timeout=1.0)
        assert time.monotonic() - before < 5.0
        harness.proxy.mode = "pass"

    def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(
        self, harness: ServedFenceHarness, client: Client
    ) -> None:
        client.advance(mark(33))
        harness.proxy.mode = "refuse"
        harness.proxy.mode = "pass"
        assert client.advance(mark(34)) == mark(34)

    def test_a_server_that_refuses_connections_is_named(self, harness: ServedFenceHarness) -> None:
        client = Client(harness)
        harness.proxy.mode = "refuse"
        with pytest.raises(BackendUnavailable, match=harness.proxy.address) as told:
            client.advance(mark(34), timeout=1.0)
        assert "\n" not in str(told.value)

    def test_holding_says_what_to_do_instead(self, client: Client) -> None:
        with pytest.raises(ConfigError, match="beside the resource"):
            client.store.holding(client.resource, mark(33), timeout=LIMIT)

    def test_the_python_interface(self, harness: ServedFenceHarness) -> None:
        url = harness.url()
        assert fence.advance("stock", mark(33), store=url) == mark(33)
        assert fence.current(f"{url}{'&' if '?' in url else '?'}resource=stock") == mark(33)
        with pytest.raises(Stale, match="stock refuses token 32"):
            fence.check("stock", mark(32), store=url)
        assert fence.reset("stock", None, store=url) == mark(33)
        assert fence.current("stock", store=url) is None


def in_a_path(resource: str) -> str:
    """How the manual says that a name is written where slashes mean something."""
    if resource in (".", ".."):
        return resource.replace(".", "%2E")
    return "".join(
        "".join(f"%{byte:02X}" for byte in char.encode()) if char in "/%" or ord(char) > 0xD7FF else char
        for char in resource
    )


@contextlib.contextmanager
def store_at(url: str) -> Iterator[Store]:
    """A store that is closed when the block ends."""
    store = locate("stock", url).store
    try:
        yield store
    finally:
        store.close()
