"""Marks in etcd: one key for each resource, written by transactions that compare its revision.

What a quorum of the members has on disk is what counts, for reads as for writes.
"""

from __future__ import annotations

from lockctl.backends.etcd import EtcdBackend, wording
from lockctl.errors import BackendUnavailable
from lockctl.fence.stores.conditional import ConditionalStore, Seen
from lockctl.fence.stores.text import escaped
from lockctl.url import take_params
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from lockctl.backends.etcd.cluster import Cluster
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PREFIX = "lockctl-fence/"


class EtcdStore(ConditionalStore):
    """See ``Store``. The key is the prefix and the name, without a slash in it: below such a key no lock is."""

    parameters: ClassVar[dict[str, str]] = {**EtcdBackend.parameters, "prefix": PREFIX}

    def __init__(self, cluster: Cluster, prefix: str = PREFIX) -> None:
        """Nothing is opened before it is needed."""
        self._cluster = cluster
        self._prefix = prefix

    @classmethod
    def from_url(cls, url: Url) -> EtcdStore:
        """As ``EtcdBackend.from_url``, with another usual prefix; raises ``ConfigError``."""
        params = take_params(url, cls.parameters)
        backend = EtcdBackend.from_url(replace(url, params=tuple(params.items())))
        return cls(backend.cluster, params["prefix"])

    @property
    def where(self) -> str:  # type: ignore[override] # the member that is asked first changes
        """The member that is asked first, for messages."""
        return self._cluster.where

    def close(self) -> None:
        """See ``Store``."""
        self._cluster.close()

    def _key(self, resource: str) -> str:
        return self._prefix + escaped(resource)

    def _read(self, key: str, deadline: Deadline) -> Seen:
        wanted = wording.as_bytes(key)
        answer = self._cluster.call("/v3/kv/range", wording.only(wanted), deadline)
        found = answer.get("kvs", [])
        if found == []:
            return Seen(None, 0)
        entry = found[0] if isinstance(found, list) and isinstance(found[0], dict) else {}
        version = wording.whole(entry.get("mod_revision"))
        if wording.decoded(entry.get("key")) != wanted or version <= 0:
            raise BackendUnavailable(f"{self.where}: an answer about something else")
        return Seen(wording.decoded(entry.get("value")), version)

    def _write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        name = wording.as_bytes(key)
        request: dict[str, Any] = {
            "compare": [
                {**wording.only(name), "target": "MOD", "result": "EQUAL", "mod_revision": str(seen.version)},
            ],
            "success": [wording.delete(name) if data is None else wording.put(name, data, 0)],
        }
        return self._cluster.call("/v3/kv/txn", request, deadline).get("succeeded") is True
