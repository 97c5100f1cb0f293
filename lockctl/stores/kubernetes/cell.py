"""Cells in the Lease objects of a namespace: a write names the ``resourceVersion`` that it follows.

The clock is that of the API servers, from the ``Date`` of their answers: in whole seconds, and of one of several
machines. A watch tells of changes.
"""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen, jittered, sleep
from lockctl.locks.lock_cells import LOCK
from lockctl.model import Capabilities
from lockctl.stores.kubernetes import layout
from lockctl.stores.kubernetes.layout import KIND, Version, prefix
from lockctl.stores.kubernetes.protocol import PARAMETERS, Leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines

AGAIN = 0.2  # seconds before a watch that the server has ended is asked for again
FEW, MANY = 20, 200  # objects in one answer: histories are large, locks are small


class KubernetesCells(Cells):
    """The Lease objects of one namespace."""

    clock_error = 2.0  # whole seconds, and what the clocks of several API servers may differ

    def __init__(self, leases: Leases) -> None:
        """Connects when it is first used."""
        self._leases = leases
        self.where = leases.where
        self._watching: tuple[str, Lines] | None = None  # a key, and the watch that goes on

    def read(self, key: str, deadline: Deadline) -> Seen:
        found, at = self._leases.get(layout.object_name(key), deadline)
        return Seen(None, None, at) if found is None else layout.read(found, at, self.clock_error)

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """See ``Cells``. What other programs keep in the object stays there."""
        version = seen.version
        if not isinstance(version, Version):
            if data is None:
                return self.read(key, deadline).version is None
            return self._leases.create(layout.written(key, None, data, seen.at, self.clock_error), deadline)
        if data is None:
            return self._leases.delete(version.object, deadline)
        return self._leases.update(layout.written(key, version.object, data, seen.at, self.clock_error), deadline)

    def observe(self, key: str, seen: Seen, deadline: Deadline) -> None:
        """See ``Cells``: the record, and since when it is there, beside it."""
        if isinstance(seen.version, Version) and not seen.version.noted:
            self._leases.update(layout.observed(seen), deadline)

    def known_by(self, seen: Seen) -> object:
        """See ``Cells``: who it is, of which :func:`layout.read` makes the data."""
        return seen.data

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``. All objects of the namespace that have this kind are read, whatever the prefix."""
        kind = prefix.partition(":")[0]
        page, selector = FEW, f"{KIND}={kind}"
        if kind == LOCK.rstrip(":"):
            page, selector = MANY, f"!{KIND}"
        elif kind not in layout.KINDS:
            selector = KIND
        for found, at in self._leases.list(selector, page, deadline):
            key = layout.cell_key(found)
            if key is not None and key.startswith(prefix):
                yield key, layout.read(found, at, self.clock_error)

    def watch(self, key: str, seen: Seen, deadline: Deadline, since: float | None = None) -> None:
        kept, self._watching = self._watching, None
        lines = None
        if kept is not None:
            if kept[0] == key:
                lines = kept[1]
            else:
                kept[1].close()
        number = seen.version.number if isinstance(seen.version, Version) else None
        try:
            if lines is None:
                found, at = self._leases.named(layout.object_name(key), deadline)
                if (found and found["metadata"]["resourceVersion"]) != number:
                    return
                lines = self._leases.watch(layout.object_name(key), at, deadline)
            while (line := lines.next(deadline)) is not None:
                if _is_news(line, number):
                    self._watching, lines = (key, lines), None
                    return
            sleep(min(jittered(AGAIN), deadline.left()), deadline.interrupt, self.where)
        except BackendUnavailable:
            if deadline.left() > 0:
                if lines is None:
                    raise
                sleep(min(jittered(AGAIN), deadline.left()), deadline.interrupt, self.where)  # it was cut off
            elif lines is not None:
                self._watching, lines = (key, lines), None
        finally:
            if lines is not None:
                lines.close()

    def close(self) -> None:
        self._leases.close()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching[1].close()

    def shown(self, key: str) -> str:
        return layout.object_name(key)


def _is_news(line: bytes, number: str | None) -> bool:
    """Whether an event says that an object is not any more what it was with this ``resourceVersion``."""
    try:
        event = json_text.parse(line)
        kind, version = event["type"], event["object"]["metadata"].get("resourceVersion")
    except (ValueError, KeyError, TypeError, AttributeError):
        return True
    return bool(kind != "BOOKMARK" and (None if kind == "DELETED" else version) != number)


class KubernetesBackend(CellBackend):
    """Locks in one namespace."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="kubernetes",
        rate_error=0.01,
        heartbeat=5.0,
        freed_when="its lease has run out, and two to three seconds more, by the clocks of the API servers",
        token_from="a counter in the Lease of the lock, never below the API servers' clock in microseconds; breaks if"  # noqa: S106
        " etcd is put back to an earlier state, or Leases are removed while that clock goes back",
        survives="what the cluster's etcd survives; while no API server answers, no lock is acquired or renewed",
        clocks="the API servers' clocks agree within a second: their Date ends the leases; those of hosts do not"
        " matter",
        period_clock="the API servers'",
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - none does
        return False

    @classmethod
    def from_url(cls, url: Url) -> KubernetesBackend:
        """``kubernetes://NAMESPACE/PREFIX?kubeconfig=FILE``; raises ``ConfigError``."""
        return cls(KubernetesCells(Leases(url)), prefix(url.path))
