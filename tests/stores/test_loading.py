"""What the plain path of a run loads: nothing heavy, and nothing that only waiting, sharing or remembering needs."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from hashlib import sha1
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import LIMIT

if TYPE_CHECKING:
    from tests.servers.consul import Consul
    from tests.servers.etcd import Etcd
    from tests.servers.kubernetes import Kubernetes
    from tests.servers.zookeeper import ZooKeeper

OPEN = """
import sys
before = set(sys.modules)
from lockctl.registry import open_backend
from lockctl.model import SHARED, Claim
from lockctl.url import parse_url
def claim(name, mode="exclusive"):
    return Claim(name, "ab" * 16, 30.0, "web3", 1, "ops", ("true",), mode)
client = open_backend(parse_url(sys.argv[1]))
"""
TAKE = 'grant = client.renew(client.try_acquire(claim("nightly"), timeout=10.0), timeout=10.0)\n'
LOOK = 'client.inspect("nightly", timeout=10.0)\n'
RELEASE = TAKE + "client.release(grant, timeout=10.0)\n"
HOLD = f"""
{TAKE}
client.note_success(grant, timeout=10.0)
client.last_success("nightly", timeout=10.0)
client.release(grant, timeout=10.0, hold=2.0)
client.try_acquire(claim("other", SHARED), timeout=10.0)
"""
ETCD = {"json", "re", "ssl", "socket", "typing", "threading"}


def loaded(url: str, program: str, *flags: str) -> set[str]:
    words = [sys.executable, *flags, "-c", f"{OPEN}{program}print(*(set(sys.modules) - before))", url]
    return set(subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True).stdout.split())


def lazy(store: str, found: set[str]) -> set[str]:
    """The modules of a store that were loaded, without the parts of its name that all have."""
    return {name.rpartition(".")[2] for name in found if name.startswith(f"lockctl.stores.{store}.")}


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        (RELEASE, {*ETCD, "base64", "logging", "subprocess", "enum", "random", "lockctl.history", "lockctl.secret"}),
        (HOLD, {*ETCD, "datetime", "email"}),
    ],
    ids=["plain", "hold"],
)
def test_etcd(etcd_server: Etcd, program: str, heavy: set[str]) -> None:
    found = loaded(f"etcd://{etcd_server.address}/?prefix=loading/", program, "-S")
    assert heavy.isdisjoint(found)
    if program == RELEASE:
        others = {"waiting", "looking", "diagnosis", "sharing", "holding", "remembering"}
        assert others.isdisjoint(lazy("etcd", found))


def test_consul(consul_server: Consul) -> None:
    found = loaded(f"consul://{consul_server.address}/?prefix=loading/", RELEASE)
    assert lazy("consul", found) == {"address", "claim", "connection", "layout", "lock", "protocol"}


# what kazoo imports at its start, for what is not asked of it here
KAZOO = {"base64", "hashlib", "re", "enum", "typing"}


def test_zookeeper(zookeeper_server: ZooKeeper) -> None:
    url = f"zookeeper://{zookeeper_server.address}/loading"
    loaded(url, RELEASE)  # makes the root, whose name is a digest
    found = loaded(url, RELEASE)
    assert "claim" in lazy("zookeeper", found)
    assert {"hold", "past", "sharing", "waiting", "looking"}.isdisjoint(lazy("zookeeper", found))
    assert {"lockctl.history", "lockctl.json_text", "kazoo.client", *KAZOO}.isdisjoint(found)
    assert KAZOO.isdisjoint(loaded(url, LOOK))


DIGEST = """
import kazoo.security
print(kazoo.security.make_digest_acl_credential("ops", "secret"))
"""


def test_kazoo_has_what_it_needs_when_it_is_asked_for(zookeeper_server: ZooKeeper) -> None:
    words = [sys.executable, "-c", f"{OPEN}{TAKE}{DIGEST}", f"zookeeper://{zookeeper_server.address}/digests"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == f"ops:{b64encode(sha1(b'ops:secret').digest()).decode()}\n"


def test_kubernetes(kubernetes_server: Kubernetes) -> None:
    assert {"yaml", "json", "hashlib", "subprocess", "re"}.isdisjoint(loaded(kubernetes_server.place, LOOK, "-I"))
