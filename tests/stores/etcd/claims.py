"""Claims for locks in etcd, and how they are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.errors import BackendUnavailable
from tests.contract.harness import claim, take

if TYPE_CHECKING:
    from lockctl.model import Grant
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd

TTL = 2.0  # seconds: the shortest lease of an etcd with its usual timing


def keys_of_locks(server: Etcd, prefix: str) -> list[str]:
    """All keys below a prefix but the counters of tokens, which stay, and what has late requests refused for a while."""
    return [
        key
        for key in sorted(server.read(prefix))
        if not key.startswith((f"{prefix}.token/", f"{prefix}.revoke/.ended/"))
    ]


def attempt(client: EtcdBackend) -> Grant | None:
    """Take the lock, if the cluster has a leader."""
    try:
        return take(client, claim())
    except BackendUnavailable:
        return None
