"""Marks in NATS: the contract, and buckets that can forget them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import ConfigError
from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.protocol import Bucket
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at
from tests.servers.nats import bucket_like

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl
    from tests.servers.nats import Nats


class NatsHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: Nats) -> None:
        super().__init__(server)
        self.bucket = Bucket(read_url(parse_url(server.url)))

    def url(self, address: str | None = None) -> str:
        return f"nats://{address or self.proxy.address}/locks/{self.prefix}"

    def key(self, resource: str) -> str:
        return f"mark:{self.prefix}{in_a_path(resource)}"

    def stored(self, key: str) -> bytes | None:
        return self.bucket.get(key, Deadline(LIMIT)).data

    def put(self, key: str, content: bytes) -> None:
        assert self.bucket.put(key, None, content, Deadline(LIMIT))

    def close(self) -> None:
        super().close()
        self.bucket.close()


@pytest.fixture
def harness(nats_server: Nats) -> Iterator[NatsHarness]:
    made = NatsHarness(nats_server)
    yield made
    made.close()


class TestNats(ConditionalContract):
    """Every promise."""

    def test_the_key_is_what_the_manual_says(self, harness: NatsHarness) -> None:
        with store_at(f"nats://{harness.server.address}/locks") as store:
            store.advance("srv/stock", mark(33), timeout=LIMIT)
            assert harness.stored("mark:lockctl-fence/srv%2Fstock") == f"{DOMAIN};33".encode()
            assert store.reset("srv/stock", None, timeout=LIMIT) == mark(33)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_age": 10**12}, r"\(max_age is set\)"),
        ({"discard": "old", "max_msgs": 3}, r"\(discard is old, with max_msgs\)"),
        ({"discard": "old", "max_bytes": 10**6}, r"\(discard is old, with max_bytes\)"),
        ({"discard": "old"}, ""),
        ({"max_msgs": 300, "max_bytes": 10**6}, ""),
    ],
)
def test_a_bucket_that_removes_keys_by_itself_is_refused(nats_server: Nats, limits: dict[str, Any], said: str) -> None:
    with bucket_like(nats_server, limits) as name, store_at(f"nats://{nats_server.address}/{name}") as store:
        for step in (store.advance, store.reset):
            if not said:
                step("stock", mark(33), timeout=LIMIT)
                continue
            with pytest.raises(ConfigError, match=f"{said}.*nats stream edit KV_{name} --max-age=0 ") as told:
                step("stock", mark(33), timeout=LIMIT)
            assert "\n" not in str(told.value)
        assert store.current("stock", timeout=LIMIT) == (None if said else mark(33))
        assert store.reset("stock", None, timeout=LIMIT) == (None if said else mark(33))


def test_a_limit_that_is_set_later_is_seen(nats_server: Nats) -> None:
    with bucket_like(nats_server, {}) as name, store_at(f"nats://{nats_server.address}/{name}") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
        nats_server.ask(
            f"STREAM.UPDATE.KV_{name}", {**nats_server.config(name), "max_age": 10**12, "duplicate_window": 10**9}
        )
        with pytest.raises(ConfigError, match="max_age is set"):
            store.advance("stock", mark(34), timeout=LIMIT)


@pytest.mark.parametrize(("storage", "said"), [("memory", "its storage is memory"), ("file", "")])
def test_a_bucket_in_memory_is_refused_where_correctness_is_asked_for(
    nats_server: Nats, lockctl: Lockctl, storage: str, said: str
) -> None:
    with bucket_like(nats_server, {"storage": storage}) as name:
        url = f"nats://{nats_server.address}/{name}/{os.urandom(4).hex()}"
        words = ["run", "-l", "a", "--fence", f"{url}?resource=stock"]
        done = lockctl(*words, "--guarantee", "correctness", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == ((78, "") if said else (0, "ran\n")), done.stderr
        assert said in done.stderr
        assert lockctl(*words, "--", "true").returncode == 0
