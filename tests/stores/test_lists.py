"""A list asks the servers for many locks at once: what it takes is counted by them, not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lockctl import registry
from lockctl.documents import describe
from lockctl.stores.etcd import layout
from lockctl.url import parse_url
from tests.bench.scale import counters, lists
from tests.faults.backends import PLACES, on_backends
from tests.servers.etcd import Etcd

if TYPE_CHECKING:
    from tests.servers.zookeeper import ZooKeeper

LOCKS = {"etcd": 600, "zookeeper": 150}  # of etcd more than it is asked about one by one
AT_ONCE = 100  # keys of one transaction
MOST_REQUESTS = 30


def fill_etcd(server: Etcd, prefix: str, count: int) -> None:
    """Locks as their holders write them, all of them with one lease, and as many names that nobody uses any more."""
    lease = int(server.request("/v3/lease/grant", {"TTL": "600", "ID": "0"})[1]["ID"])
    claims = [lists.claim(number) for number in range(count)]
    place = layout.Layout(prefix)
    for start in range(0, count, AT_ONCE // 2):
        puts = []
        for claim in claims[start : start + AT_ONCE // 2]:
            puts.append(layout.put(place.claim_key(claim.name, lease), describe(claim, {"acquired_at": 1.0}), lease))
            puts.append(layout.put(place.success(f"old-{claim.name}"), b"{}", lease))
        assert server.request("/v3/kv/txn", {"success": puts})[0] == 200


def empty(server: Etcd | ZooKeeper, prefix: str) -> None:
    """Leave the server as it was."""
    if isinstance(server, Etcd):
        server.command("del", f"{prefix}/", "--prefix")
        return
    client = KazooClient(server.address)
    client.start()
    client.delete(prefix, recursive=True)
    client.stop()
    client.close()


@pytest.mark.parametrize("name", on_backends("etcd", "zookeeper"))
def test_a_list_of_many_locks_takes_few_requests(name: str, request: pytest.FixtureRequest) -> None:
    server, count = request.getfixturevalue(PLACES[name].servers), LOCKS[name]
    place = f"{name}://{server.address}/" + ("?prefix=many/" if name == "etcd" else "many")
    if isinstance(server, Etcd):
        fill_etcd(server, "many/", count)
    else:
        lists.fill(name, place, count)
    backend = registry.open_backend(parse_url(place))
    before = counters.COUNTERS[name](server)
    found = list(backend.list("*", timeout=30.0))
    asked = counters.COUNTERS[name](server) - before
    backend.close()
    empty(server, "many")
    assert [lock.name for lock in found] == [lists.claim(number).name for number in range(count)]
    assert {lock.state for lock in found} == {"held"}
    assert asked < MOST_REQUESTS
