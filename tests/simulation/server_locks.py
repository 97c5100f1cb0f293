"""Locks that a server keeps for its sessions, by a key: advisory ones of PostgreSQL, and those by GET_LOCK of MySQL.

They are of sessions and of transactions, alone and shared; who waits for one stands in a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = tuple[int | str, ...]  # a name; or classid, objid and objsubid, as pg_locks shows them
DATABASE = 5  # its oid


class Wanted(NamedTuple):
    """Somebody who waits in the server's own queue."""

    pid: int
    key: Key
    shared: bool
    since: float  # wall clock of the server


class Counts:
    """How often one process has one key in one mode."""

    __slots__ = ("of_session", "of_transaction")

    def __init__(self) -> None:
        self.of_session = 0
        self.of_transaction = 0


class Locks:
    """All locks of a server."""

    def __init__(self) -> None:
        self.held: dict[tuple[Key, bool, int], Counts] = {}
        self.waiting: list[Wanted] = []
        self.turn = 0  # the process whose turn in the queue it is
        self.changed = True  # since rows() was called last

    def take(self, pid: int, key: Key, *, shared: bool, of_transaction: bool) -> bool:
        """Take it if nobody has it, or stands in the queue for it, in a mode that excludes this one."""
        if (key, shared, pid) not in self.held and not self._is_free(pid, key, shared=shared):
            return False
        self._add(pid, key, shared=shared, of_transaction=of_transaction)
        return True

    def _add(self, pid: int, key: Key, *, shared: bool, of_transaction: bool) -> None:
        counts = self.held.setdefault((key, shared, pid), Counts())
        if of_transaction:
            counts.of_transaction += 1
        else:
            counts.of_session += 1
        self.changed = True

    def _is_free(self, pid: int, key: Key, *, shared: bool, before: Wanted | None = None) -> bool:
        for held, mode, other in self.held:
            if held == key and other != pid and not (mode and shared):
                return False
        for wanted in self.waiting if pid != self.turn else ():
            if wanted is before:
                break
            if wanted.key == key and wanted.pid != pid and not (wanted.shared and shared):
                return False
        return True

    def give_back(self, pid: int, key: Key, *, shared: bool) -> bool:
        """Give back one of those of the session; whether it had one."""
        counts = self.held.get((key, shared, pid))
        if counts is None or not counts.of_session:
            return False
        counts.of_session -= 1
        self._sweep(pid)
        return True

    def give_back_all(self, pid: int) -> None:
        """Give back all of the session, and none of its transaction."""
        for _, counts in self._of(pid):
            counts.of_session = 0
        self._sweep(pid)

    def of_transaction(self, pid: int) -> dict[tuple[Key, bool, int], int]:
        """What the transaction has by now."""
        return {which: counts.of_transaction for which, counts in self._of(pid)}

    def back_to(self, pid: int, earlier: dict[tuple[Key, bool, int], int]) -> None:
        """The transaction gives back what it did not have then; with nothing it is over."""
        for which, counts in self._of(pid):
            counts.of_transaction = earlier.get(which, 0)
        self._sweep(pid)

    def end(self, pid: int) -> None:
        """A process is gone."""
        self.leave(pid)
        for which, _ in self._of(pid):
            del self.held[which]

    def leave(self, pid: int) -> None:
        """It waits no more."""
        self.waiting = [each for each in self.waiting if each.pid != pid]
        self.changed = True

    def next(self) -> Wanted | None:
        """Somebody in the queue who can have what it waits for now."""
        for wanted in self.waiting:
            if self._is_free(wanted.pid, wanted.key, shared=wanted.shared, before=wanted):
                return wanted
        return None

    def rows(self) -> Iterator[tuple[object, ...]]:
        """As pg_locks shows them."""
        self.changed = False
        for key, shared, pid in self.held:
            yield ("advisory", DATABASE, *key, pid, "ShareLock" if shared else "ExclusiveLock", True, None)
        for pid, key, shared, since in self.waiting:
            yield ("advisory", DATABASE, *key, pid, "ShareLock" if shared else "ExclusiveLock", False, since)

    def _of(self, pid: int) -> list[tuple[tuple[Key, bool, int], Counts]]:
        return [each for each in self.held.items() if each[0][2] == pid]

    def _sweep(self, pid: int) -> None:
        for which, counts in self._of(pid):
            if not (counts.of_session or counts.of_transaction):
                del self.held[which]
        self.changed = True
