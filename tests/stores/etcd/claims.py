"""Claims for locks in etcd, and how they are taken."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE, SHARED, SLOT, Claim
from tests.contract.harness import LIMIT, take

if TYPE_CHECKING:
    from lockctl.model import Grant, Holder
    from lockctl.stores.etcd.lock import EtcdBackend

TTL = 2.0  # seconds: the shortest lease of an etcd with its usual timing


def claim(name: str = "nightly", ttl: float = 30.0, mode: str = EXCLUSIVE, slots: int = 1) -> Claim:
    return Claim(name, os.urandom(16).hex(), ttl, "web3", 4121, "ops", ("./nightly.sh",), mode, slots)


def reader(ttl: float = 30.0) -> Claim:
    return claim(ttl=ttl, mode=SHARED)


def one_of(slots: int, ttl: float = 30.0) -> Claim:
    return claim(ttl=ttl, mode=SLOT, slots=slots)


def attempt(client: EtcdBackend) -> Grant | None:
    """Take the lock, if the cluster has a leader."""
    try:
        return take(client, claim())
    except BackendUnavailable:
        return None


def holder_of(client: EtcdBackend) -> Holder:
    (holder,) = client.inspect("nightly", timeout=LIMIT).holders
    return holder
