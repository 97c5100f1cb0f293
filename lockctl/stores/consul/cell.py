"""Cells in keys of Consul, written by transactions that check the index of the last change.

What a quorum of the servers has on disk is what counts; reads ask the leader, which asks a quorum whether it is one.
The clock is that of the agent, in whole seconds.
"""

from __future__ import annotations

import _thread

from lockctl.locks.driver import Cells, Seen, TimedMutex
from lockctl.stores.consul.layout import encoded
from lockctl.stores.consul.protocol import Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.consul.address import Settings
    from lockctl.wire.deadline import Deadline

ABSENT = 0  # the index of a key that there is not


class _KeysAlone(Agent):
    """An agent that is asked for keys, and never for a session."""

    rights = 'key_prefix "{prefix}" {{ policy = "write" }}'


class ConsulCells(Cells):
    """The keys behind one agent."""

    longest_look = 0.2

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before it is needed. Of *settings* the prefix is for messages only: keys are whole."""
        self._agent = _KeysAlone(settings)
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time
        self.where = self._agent.where

    def read(self, key: str, deadline: Deadline) -> Seen:
        with TimedMutex(self._mutex, deadline, self.where):
            entry = self._agent.get(key, deadline)
            at = self._agent.now()
        return Seen(None, ABSENT, at) if entry is None else Seen(entry.value, entry.index, at)

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        operations: list[dict[str, Any]] = [{"Verb": "check-not-exists", "Key": key}]
        if seen.data is not None:
            operations = [{"Verb": "check-index", "Key": key, "Index": seen.version}]
        if data is None or data == seen.data:  # what is written as it was would keep its index
            operations.append({"Verb": "delete", "Key": key})
        if data is not None:
            operations.append({"Verb": "set", "Key": key, "Value": encoded(data)})
        with TimedMutex(self._mutex, deadline, self.where):
            return self._agent.transact(operations, deadline).results is not None

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``: a request for each cell."""
        with TimedMutex(self._mutex, deadline, self.where):
            keys = self._agent.keys(prefix, deadline)
        for key in keys:
            seen = self.read(key, deadline)
            if seen.data is not None:
                yield key, seen

    def close(self) -> None:
        with self._mutex:
            self._agent.close()
