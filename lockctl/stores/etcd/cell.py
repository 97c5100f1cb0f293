"""Cells in keys of etcd, written by transactions that compare the revision of the last change.

What a quorum of the members has on disk is what counts, for reads as for writes. The clock is that of the member that
answered, in whole seconds.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.locks.driver import Cells, Seen
from lockctl.stores.etcd import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.etcd.protocol import Cluster
    from lockctl.wire.deadline import Deadline

PAGE = 20  # keys of one answer: a history may have 200 kB
ABSENT = 0  # the revision of a key that there is not


class EtcdCells(Cells):
    """The keys of one cluster. Threads have connections of their own."""

    longest_look = 0.2

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is opened before it is needed."""
        self._cluster = cluster

    @property
    def where(self) -> str:  # type: ignore[override] # the member that is asked first changes
        """The member that is asked first, for messages."""
        return self._cluster.where

    def read(self, key: str, deadline: Deadline) -> Seen:
        wanted = layout.as_bytes(key)
        answer = self._cluster.call("/v3/kv/range", layout.only(wanted), deadline)
        for name, seen in self._found(answer):
            if name != wanted:
                raise self._strange()
            return seen
        return Seen(None, ABSENT, layout.moment(answer))

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        name = layout.as_bytes(key)
        request: dict[str, Any] = {
            "compare": [
                {**layout.only(name), "target": "MOD", "result": "EQUAL", "mod_revision": str(seen.version)},
            ],
            "success": [layout.delete(name) if data is None else layout.put(name, data, 0)],
        }
        return self._cluster.call("/v3/kv/txn", request, deadline).get("succeeded") is True

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        beginning = layout.as_bytes(prefix)
        start, end = beginning or b"\0", layout.coded(layout.after(beginning))
        more = True
        while more:
            request = {"key": layout.coded(start), "range_end": end, "limit": str(PAGE)}
            answer = self._cluster.call("/v3/kv/range", request, deadline)
            for name, seen in self._found(answer):
                yield name.decode("utf-8", "surrogateescape"), seen
                start = name + b"\0"
            more = answer.get("more") is True

    def close(self) -> None:
        self._cluster.close()

    def _found(self, answer: dict[str, Any]) -> Iterator[tuple[bytes, Seen]]:
        """The keys of an answer, with what is in them."""
        listed = answer.get("kvs", [])
        for item in listed if isinstance(listed, list) else (None,):
            entry = item if isinstance(item, dict) else {}
            version = layout.whole(entry.get("mod_revision"))
            if version <= ABSENT:
                raise self._strange()
            data = layout.decoded(entry.get("value"))
            yield layout.decoded(entry.get("key")), Seen(data, version, layout.moment(answer))

    def _strange(self) -> BackendUnavailable:
        return BackendUnavailable(f"{self.where}: an answer about something else")
