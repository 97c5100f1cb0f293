"""A connection that holds no lock: it looks at those of all, and ends or tells the sessions that have them."""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

import _thread

from lockctl.backends.postgresql import look
from lockctl.backends.postgresql.fence import FORBIDDEN, NO_TABLE
from lockctl.backends.postgresql.scope import is_key
from lockctl.backends.postgresql.session import SessionGone, SqlError
from lockctl.backends.postgresql.tenure import open_side
from lockctl.documents import describe_revocation
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.model import LockInfo
from lockctl.names import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.backends.postgresql.address import Address
    from lockctl.backends.postgresql.connect import Opened
    from lockctl.backends.postgresql.fence import Entry, Fence
    from lockctl.backends.postgresql.key import Key
    from lockctl.backends.postgresql.look import Seat
    from lockctl.model import Holder
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

LOOKS = 3  # between two statements of one look the holder may change; hardly ever three times in a row
PAUSE = "SELECT pg_catalog.pg_sleep(0.01)"  # the server's, while it ends a session
FENCING = "strict"


class Observer:
    """One connection for everything but holding and waiting; it is opened when first needed."""

    def __init__(self, address: Address, fence: Fence) -> None:
        """Look at the locks of *address*."""
        self._address = address
        self._fence = fence
        self._session: Opened | None = None
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def inspect(self, name: str, deadline: Deadline) -> LockInfo:
        """One lock as it is now."""
        key = self._address.key_of(name)

        def ask(session: Opened) -> LockInfo:
            for _ in range(LOOKS):
                entry = self._fence.read(session, key, deadline)
                seats = look.seats(session, key, deadline)
                owners = {seat.owner for seat in seats if seat.granted}
                if owners <= {None} or (entry is not None and entry.owner in owners):
                    break
            return self._info(name, key, seats, entry)

        return self._with_session(ask, deadline)

    def matching(self, pattern: str, deadline: Deadline) -> list[LockInfo]:
        """All locks that lockctl ever took and whose name matches, in the order of their names."""
        from fnmatch import fnmatchcase

        def ask(session: Opened) -> list[LockInfo]:
            entries = self._entries(session, deadline)
            by_key: dict[str, list[Seat]] = {}
            for seat in look.seats(session, self._address.key, deadline):
                by_key.setdefault(seat.key, []).append(seat)
            return [
                self._info(name, key, by_key.get(key.text, []), entry)
                for name, key, entry in entries
                if fnmatchcase(name, pattern)
            ]

        return self._with_session(ask, deadline)

    def place(self, key: Key, pid: int, deadline: Deadline) -> bool | None:
        """Whether the session with this server process holds *key*; ``None``: it does not even wait for it."""

        def ask(session: Opened) -> bool | None:
            found = [seat.granted for seat in look.seats(session, key, deadline) if seat.pid == pid]
            return any(found) if found else None

        return self._with_session(ask, deadline)

    def bury(self, owner: str, key: Key, pid: int | None, deadline: Deadline) -> None:
        """End every session of *owner* that holds *key* or waits for it, and the server process *pid* if it has it.

        They are gone when this returns.
        """
        mark = look.mark(owner)
        sql = (
            "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a WHERE"
            " (left(a.application_name, %s) = %s OR a.pid = %s) AND EXISTS"
            f" (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND {is_key(key)})"
        )

        def ask(session: Opened) -> None:
            while session.ask(sql, deadline, (len(mark), mark, pid)):
                session.ask(PAUSE, deadline)

        self._with_session(ask, deadline)

    def ask(self, name: str, seen: Holder, by: str, reason: str, deadline: Deadline) -> int | None:
        """Leave a request for *seen* to give the lock back; ``None`` if it is not the holder any more."""
        key = self._address.key_of(name)
        mark = look.mark(seen.owner or "")
        sql = (
            f"UPDATE {self._fence.quoted} SET revocation = %s WHERE key = %s AND owner = %s AND token = %s AND EXISTS"
            f" (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
            f" WHERE {is_key(key)} AND l.granted AND left(a.application_name, %s) = %s) RETURNING token"
        )
        document = describe_revocation(seen.owner or "", by, reason).decode()

        def ask(session: Opened) -> int | None:
            values = (document, key.text, seen.owner, seen.token, len(mark), mark)
            try:
                rows = session.ask(sql, deadline, values)
            except SqlError as error:
                if error.code == NO_TABLE:
                    return None
                raise self._fence.explained(error, session) from None
            return int(rows[0][0]) + 1 if rows else None

        return self._with_session(ask, deadline)

    def end(self, name: str, seen: Holder, deadline: Deadline) -> int | None:
        """End the session of *seen* if it is still the holder, and raise the token in the same step."""
        key = self._address.key_of(name)
        if seen.owner is None and seen.pid is None:
            raise LockctlError(f"{name} is held by a prepared transaction: end it with ROLLBACK PREPARED")

        def ask(session: Opened) -> int | None:
            found = self._terminate(session, name, key, seen, deadline)
            if found is None:
                return None
            pid, token = found
            while any(seat.granted and seat.pid == pid for seat in look.seats(session, key, deadline)):
                session.ask(PAUSE, deadline)
            return token + 1

        return self._with_session(ask, deadline)

    def _terminate(
        self, session: Opened, name: str, key: Key, seen: Holder, deadline: Deadline
    ) -> tuple[int, int] | None:
        if seen.owner is None:
            who, values = f"l.pid = %s AND left(a.application_name, {len(look.OURS)}) <> %s", [seen.pid, look.OURS]
        else:
            mark = look.mark(seen.owner)
            who, values = "left(a.application_name, %s) = %s", [len(mark), mark]
        if seen.token is not None:
            who += (
                f" AND EXISTS (SELECT FROM {self._fence.quoted} f WHERE f.key = %s AND f.owner = %s AND f.token = %s)"
            )
            values += [key.text, seen.owner, seen.token]
        holder = (
            "SELECT l.pid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
            f" WHERE {is_key(key)} AND l.granted AND {who} LIMIT 1"
        )
        full_name = None if self._address.key is not None else self._address.prefix + name
        try:
            rows = self._fence.bump(session, key, full_name, holder, tuple(values), deadline)
        except SqlError as error:
            if error.code == FORBIDDEN:
                raise ConfigError(
                    f"{error}: to end the sessions of other users, a superuser must GRANT pg_signal_backend"
                    f" TO {session.user}"
                ) from None
            raise
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def _entries(self, session: Opened, deadline: Deadline) -> list[tuple[str, Key, Entry]]:
        address = self._address
        if address.key is not None:
            entry = self._fence.read(session, address.key, deadline)
            name = look.name_in(entry)
            return [(name, address.key, entry)] if entry is not None and name is not None else []
        found: list[tuple[str, Key, Entry]] = []
        after = ""
        while page := self._fence.page(session, address.prefix, after, deadline):
            for entry in page:
                after = entry.name or ""
                name = _valid(after.removeprefix(address.prefix))
                # who can write the table could give a name the key of another
                if name is not None and address.key_of(name).text == entry.key:
                    found.append((name, address.key_of(name), entry))
        return found

    def _info(self, name: str, key: Key, seats: list[Seat], entry: Entry | None) -> LockInfo:
        holders = tuple(look.holder(seat, entry) for seat in seats if seat.granted)
        return LockInfo(
            name=name,
            backend="postgresql",
            key=key.text,
            state="free" if not holders else "held" if holders[0].owner else "foreign",
            fencing=FENCING,
            slots=1,
            holders=holders,
            waiters=tuple(look.waiter(seat) for seat in seats if not seat.granted),
            last_run=None,
        )

    def _with_session(self, ask: Callable[[Opened], T], deadline: Deadline) -> T:
        if not self._mutex.acquire(timeout=min(deadline.left(), 60.0)):
            raise BackendUnavailable("postgresql: another request has not ended yet")
        try:
            while True:
                fresh = self._session is None
                if self._session is None:
                    self._session = open_side(self._address, deadline)
                try:
                    return ask(self._session)
                except (SqlError, ConfigError):
                    raise
                except SessionGone:
                    self.close()
                    if fresh:
                        raise
                except BaseException:
                    self.close()  # its late answer would be taken for that to the next request
                    raise
        finally:
            self._mutex.release()


def _valid(name: str) -> str | None:
    try:
        return check_name(name)
    except ValueError:
        return None
