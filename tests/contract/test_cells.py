"""What the driver of every store promises: see ``Cells``."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import RequestInterrupted
from lockctl.locks.driver import looks
from lockctl.wire.deadline import Deadline
from tests.contract.cell_stores import CASES, STORES
from tests.contract.harness import LIMIT
from tests.servers.fixtures import MAKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.locks.driver import Cells, Seen
    from tests.servers.process import Server

NUMBERS = itertools.count()
CLOCKS = 2.0  # seconds by which the time that a store tells may differ from ours: some tell whole seconds
SOON = 2.0  # seconds in which a watch surely sees a change, also on a busy machine
TRIES = 3  # of one writer alone
# models that lose the bucket or the table, too, and a server that needs half a minute to start
GONE = {"s3", "gcs", "dynamodb-dynalite", "s3-seaweedfs"}
# a key may have what a path, a pattern or a query could take for its own syntax
KEYS = ["a", "a/b", "a/", ".", "..", "a%2Fb", "a%", "a_b", "A", "a b", "a?b=c#d", "x" * 200, "\N{SNOWMAN}"]
CONTENTS = [b"", b"\0\xff\n", b"x" * 200_000]


class Client:
    """One driver, with keys that no other test has, and the usual deadline."""

    def __init__(self, cells: Cells, prefix: str) -> None:
        self.cells = cells
        self.prefix = prefix

    def read(self, key: str = "a") -> Seen:
        return self.cells.read(self.prefix + key, Deadline(LIMIT))

    def write(self, seen: Seen, data: bytes | None, key: str = "a") -> bool:
        return self.cells.write(self.prefix + key, seen, data, Deadline(LIMIT))

    def put(self, data: bytes | None, key: str = "a") -> Seen:
        """Write whatever was there, and what is there then; the first write to a store may have to make a place."""
        assert any(self.write(self.read(key), data, key) for _ in range(TRIES))
        return self.read(key)

    def scan(self, prefix: str = "") -> dict[str, bytes | None]:
        found = list(self.cells.scan(self.prefix + prefix, Deadline(LIMIT)))
        assert all(key.startswith(self.prefix) for key, _ in found)
        assert len(dict(found)) == len(found)
        return {key[len(self.prefix) :]: seen.data for key, seen in found}

    def confirm(self, seen: Seen) -> bool:
        return self.cells.confirm(self.prefix + "a", seen, Deadline(LIMIT))

    def watch(self, seen: Seen, deadline: Deadline) -> None:
        self.cells.watch(self.prefix + "a", seen, deadline)


@pytest.fixture(params=CASES)
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], Client]]:
    """Make another client of the same cells."""
    opening, server = STORES[request.param]
    prefix = f"cells-{os.getpid()}-{next(NUMBERS)}:"
    with contextlib.ExitStack() as ends:
        make = ends.enter_context(opening(server and request.getfixturevalue(server)))

        def connected() -> Client:
            cells = make()
            ends.callback(cells.close)
            return Client(cells, prefix)

        yield connected
        last = connected()
        for key in last.scan():
            last.put(None, key)


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def other(connect: Callable[[], Client]) -> Client:
    return connect()


def test_what_was_written_is_read(client: Client, other: Client) -> None:
    for content in CONTENTS:
        client.put(content)
        assert other.read().data == client.read().data == content
        assert other.read().version == client.read().version
        client.put(content + b"x")
        assert other.read().data == content + b"x"


def test_where_nothing_is_there_is_no_data_and_the_time_of_an_answer_is_told(client: Client) -> None:
    assert client.read().data is None
    assert client.read().version == client.read().version
    client.put(b"1")
    for key in ("a", "absent"):
        assert abs(client.read(key).at - time.time()) < CLOCKS


def test_a_write_with_an_old_version_is_refused(client: Client, other: Client) -> None:
    absent = client.read()
    first = other.put(b"1")
    assert not client.write(absent, b"2")
    second = other.put(b"2")
    for data in (b"3", b"2", None):
        assert not client.write(first, data)
    assert client.read().data == b"2"
    assert client.write(second, b"3")
    assert not client.write(second, b"3"), "a write that arrives twice counts once"


@pytest.mark.parametrize("store", [name for name, (_, server) in STORES.items() if server and name not in GONE])
def test_a_version_does_not_come_back_after_the_server_was_restarted(
    store: str, start_server: Callable[..., Server]
) -> None:
    """Whatever the server kept: one that keeps all in memory counts anew."""
    opening, fixture = STORES[store]
    assert fixture is not None
    server = start_server(MAKERS[fixture])
    with opening(server) as make, contextlib.closing(make()) as cells, contextlib.closing(make()) as others:
        client, other = Client(cells, "kept:"), Client(others, "kept:")
        seen = client.put(b"1")
        server.restart()
        assert other.put(b"2").version != seen.version
        assert not any(each.write(seen, b"3") for each in (client, other))
        assert other.read().data == b"2"


def test_a_removed_cell_is_not_there(client: Client, other: Client) -> None:
    seen = client.put(b"1")
    assert client.write(seen, None)
    assert other.read().data is None
    assert other.scan() == {}
    assert not client.write(seen, None)
    assert not client.write(seen, b"2")
    assert other.read().data is None


def test_what_is_not_there_can_be_removed_as_long_as_it_is_not_there(client: Client, other: Client) -> None:
    absent = client.put(None)
    assert client.write(absent, None)
    other.put(b"1")
    assert not client.write(absent, None)
    assert other.read().data == b"1"


def test_a_version_never_comes_back(client: Client, other: Client) -> None:
    """Also after a removal, and when the data are the same again."""
    known: list[Seen] = []
    for data in (b"1", b"1", b"2", None, b"1", None, b"1"):
        seen = client.put(data)
        assert data is None or seen.version not in [each.version for each in known if each.data is not None]
        known.append(seen)
    for seen in known[:-1]:
        assert not other.write(seen, b"3"), seen
    assert other.read().data == b"1"
    assert other.write(known[-1], b"3")


def test_what_was_seen_is_confirmed_while_it_is_there(client: Client, other: Client) -> None:
    seen = client.put(b"1")
    assert client.confirm(seen)
    assert other.confirm(seen)


def test_a_scan_finds_what_begins_so_and_nothing_else(client: Client, other: Client) -> None:
    for number, each in enumerate(KEYS):
        client.put(b"%d" % number, each)
    client.put(b"1", "removed")
    client.put(None, "removed")
    whole = {each: b"%d" % number for number, each in enumerate(KEYS)}
    assert other.scan() == whole
    for key in KEYS:
        assert other.scan(key) == {each: data for each, data in whole.items() if each.startswith(key)}
        assert other.read(key).data == whole[key]


def test_a_scan_finds_more_than_one_answer_of_a_store_has(client: Client, other: Client) -> None:
    keys = [f"k{number:03}" for number in range(70)]
    for key in keys:
        client.put(key.encode(), key)
    assert other.scan("k") == {key: key.encode() for key in keys}
    found = dict(other.cells.scan(other.prefix + "k01", Deadline(LIMIT)))
    assert {key[len(other.prefix) :]: seen for key, seen in found.items()}.keys() == set(keys[10:20])
    assert other.write(found[other.prefix + "k010"], b"1", "k010"), "the versions of a scan are those of reads"


def test_a_watch_returns_on_a_change(client: Client, other: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        for change in (b"2", None):
            watching = pool.submit(client.watch, client.put(b"1"), Deadline(LIMIT))
            time.sleep(0.1)  # it has begun; if not, it must return all the same
            other.put(change)
            watching.result(SOON)


def test_a_watch_for_what_is_not_there_returns_when_it_is(client: Client, other: Client) -> None:
    seen = client.read()
    other.put(b"1")
    before = time.monotonic()
    client.watch(seen, Deadline(LIMIT))
    assert time.monotonic() - before < SOON


def test_a_watch_returns_at_the_deadline(client: Client) -> None:
    seen = client.put(b"1")
    before = time.monotonic()
    client.watch(seen, Deadline(0.3))
    assert 0.29 < time.monotonic() - before < SOON
    assert client.read().version == seen.version


def test_a_watch_can_be_interrupted(client: Client) -> None:
    seen = client.put(b"1")
    reading, writing = os.pipe()
    os.write(writing, b".")
    try:
        with pytest.raises(RequestInterrupted):
            client.watch(seen, Deadline(LIMIT, reading))
    finally:
        os.close(reading)
        os.close(writing)


def test_of_concurrent_writers_exactly_one_wins(connect: Callable[[], Client]) -> None:
    clients = [connect() for _ in range(4)]
    together = threading.Barrier(len(clients))

    def write(seen: Seen, number: int) -> bool:
        clients[number].read()  # connected
        together.wait(LIMIT)
        return clients[number].write(seen, b"%d" % (number + 1))

    for first in (None, b"0"):
        with ThreadPoolExecutor(len(clients)) as pool:
            won = list(pool.map(functools.partial(write, clients[0].put(first)), range(len(clients))))
        assert sum(won) == 1
        assert clients[0].read().data == b"%d" % (won.index(True) + 1)


def test_no_change_of_concurrent_writers_is_lost(connect: Callable[[], Client]) -> None:
    clients = [connect() for _ in range(3)]
    clients[0].put(b"0")

    def count(client: Client) -> None:
        done = 0
        for seen in looks(client.cells, client.prefix + "a", Deadline(LIMIT)):
            done += client.write(seen, b"%d" % (int(seen.data or b"") + 1))
            if done == 5:
                return

    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(count, clients))
    assert clients[0].read().data == b"15"


def test_two_threads_may_use_it_at_once(client: Client) -> None:
    def use(key: str) -> None:
        for number in range(20):
            data = f"{key}{number}".encode()
            assert client.put(data, key).data == data

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(use, ["a", "b"]))


def test_it_can_be_used_again_after_it_was_closed(client: Client) -> None:
    client.put(b"1")
    for _ in range(2):
        client.cells.close()
    assert client.read().data == b"1"
