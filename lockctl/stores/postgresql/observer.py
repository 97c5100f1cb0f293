"""A connection that holds no lock: it looks at those of all, and ends or tells the sessions that have them."""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

import _thread

from lockctl.documents import describe_revocation
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.model import EXCLUSIVE, LockInfo
from lockctl.names import is_name
from lockctl.stores.postgresql import inspect
from lockctl.stores.postgresql.claim import open_side
from lockctl.stores.postgresql.layout import FORBIDDEN
from lockctl.stores.postgresql.scope import is_key
from lockctl.stores.postgresql.session import SessionGone, SqlError
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.model import Holder
    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.inspect import Seat
    from lockctl.stores.postgresql.layout import Key
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.session import Row
    from lockctl.stores.postgresql.tokens import Entry, Fence
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
        key, queue = self._address.key_of(name), self._address.queue_of(name)

        def ask(session: Opened) -> LockInfo:
            from lockctl.stores.postgresql import records

            for _ in range(LOOKS):
                entry = self._fence.read(session, key, deadline)
                seats = inspect.seats(session, (key, queue), deadline)
                sharers = self._sharers(session, seats, deadline)
                at_key = [seat for seat in seats if seat.key == key.text]
                owners = {seat.owner for seat in at_key if seat.granted and seat.mode == inspect.ALONE}
                if owners <= {None} or (entry is not None and (entry.owner in owners or entry.rests_for is not None)):
                    break
            info = self._info(name, key, inspect.divided(seats, key, queue, _resting(entry)), entry, sharers)
            return replace(info, last_run=records.last_run(self._fence, session, key, deadline))

        return self.with_session(ask, deadline)

    def matching(self, pattern: str, deadline: Deadline) -> list[LockInfo]:
        """All locks that lockctl ever took and whose name matches, in the order of their names."""
        from fnmatch import fnmatchcase

        def ask(session: Opened) -> list[LockInfo]:
            entries = self._entries(session, deadline)
            seats = inspect.seats(session, None, deadline)
            sharers = self._sharers(session, seats, deadline)
            by_key: dict[str, list[Seat]] = {}
            by_queue: dict[str, list[Seat]] = {}
            for seat in seats:
                by_key.setdefault(seat.key, []).append(seat)
                if seat.queue is not None:
                    by_queue.setdefault(seat.queue, []).append(seat)
            found = []
            for name, key, entry in entries:
                if fnmatchcase(name, pattern):
                    queue = self._address.queue_of(name)
                    here = by_key.get(key.text, []) + by_queue.get(queue.text, [])
                    if not here and entry.owner is None and entry.taken_at is None:
                        continue  # only the past of a lock that nobody ever took
                    divided = inspect.divided(here, key, queue, _resting(entry))
                    found.append(self._info(name, key, divided, entry, sharers))
            return found

        return self.with_session(ask, deadline)

    def bury(self, owner: str, name: str, deadline: Deadline) -> None:
        """End every session of *owner* that holds the lock or waits for it; they are gone when this returns.

        The server process that the owner had may be another's by now, behind a pooler: only the owner counts.
        """
        mark = inspect.mark(owner)
        keys = (self._address.key_of(name), self._address.queue_of(name))
        sql = (
            "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a WHERE"
            " left(a.application_name, %s) = %s AND EXISTS"
            f" (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND ({inspect.is_one_of(keys)}))"
        )

        def ask(session: Opened) -> None:
            while session.ask(sql, deadline, (len(mark), mark)):
                session.ask(PAUSE, deadline)

        self.with_session(ask, deadline)

    def ask(self, name: str, seen: Holder, by: str, reason: str, deadline: Deadline) -> int | None:
        """Leave a request for *seen* to give the lock back; ``None`` if it is not the holder any more."""
        key = self._address.key_of(name)
        mark = inspect.mark(seen.owner or "")
        fence = self._fence
        sql = (
            "UPDATE {} AS h SET revocation = %s WHERE h.key = %s AND h.owner = %s AND h.token = %s AND EXISTS"
            " (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
            f" WHERE {is_key(key)} AND l.granted AND left(a.application_name, %s) = %s)"
            " RETURNING GREATEST(h.token, (SELECT max(f.token) FROM {} f WHERE f.key = h.key))"
        )
        document = describe_revocation(seen.owner or "", by, reason).decode()

        def ask(session: Opened) -> int | None:
            values = (document, key.text, seen.owner, seen.token, len(mark), mark)
            for table in self._tables(seen):
                rows = fence.select(session, sql.format(table, fence.quoted), values, deadline)
                if rows:
                    return int(rows[0][0]) + 1
            return None

        return self.with_session(ask, deadline)

    def end_rest(self, name: str, seen: Holder, *, now: bool, deadline: Deadline) -> int | None:
        """End the rest of a lock after *seen*; ``None`` if it does not rest after that holder.

        Raises ``LockctlError`` unless it is to end *now*: there is nobody who could be asked.
        """
        from lockctl.stores.postgresql import hold

        key = self._address.key_of(name)

        def ask(session: Opened) -> int | None:
            if now:
                token = hold.end(self._fence, session, key, seen, deadline)
                return None if token is None else token + 1
            entry = self._fence.read(session, key, deadline)
            if entry is None or entry.rests_for is None or (entry.owner, entry.token) != (seen.owner, seen.token):
                return None
            raise LockctlError(f"{name} is kept by --min-hold, and its job has ended: use --now to free it")

        return self.with_session(ask, deadline)

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

            def stays(seat: Seat) -> bool:
                if not seat.granted or seat.pid != pid:
                    return False
                # of a session of ours its owner is known; what says whose it is may go a moment before its locks
                same = seat.owner == seen.owner and seen.session in (None, seat.session)
                return same or (seat.owner, seat.session) == (None, None)

            while any(stays(seat) for seat in inspect.seats(session, (key,), deadline)):
                session.ask(PAUSE, deadline)
            return token + 1

        return self.with_session(ask, deadline)

    def _terminate(
        self, session: Opened, name: str, key: Key, seen: Holder, deadline: Deadline
    ) -> tuple[int, int] | None:
        if seen.owner is None:
            # the same process number can be another process by now, and the same process another client's
            who = (
                f"l.pid = %s AND {inspect.SESSION} IS NOT DISTINCT FROM %s AND a.usename = %s AND"
                f" pg_catalog.host(a.client_addr) IS NOT DISTINCT FROM %s AND"
                f" left(a.application_name, {len(inspect.OURS)}) <> %s"
            )
            values = [seen.pid, seen.session, seen.user, seen.host, inspect.OURS]
        else:
            mark = inspect.mark(seen.owner)
            who, values = "left(a.application_name, %s) = %s", [len(mark), mark]
        holder = (
            "SELECT l.pid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
            f" WHERE {is_key(key)} AND l.granted AND {who}{{}} LIMIT 1"
        )
        written = " AND EXISTS (SELECT FROM {} h WHERE h.key = %s AND h.owner = %s AND h.token = %s)"
        conditions = [""]
        if seen.token is not None:
            conditions = [written.format(table) for table in self._tables(seen)]
            values += [key.text, seen.owner, seen.token]
        full_name = self._address.full_name(name)
        try:
            rows: list[Row] = []
            for condition in conditions:
                query = holder.format(condition)
                rows = rows or self._fence.bump(session, key, full_name, query, tuple(values), seen.owner, deadline)
        except SqlError as error:
            if error.code == FORBIDDEN:
                raise ConfigError(
                    f"{error}: to end the sessions of other users, a superuser must GRANT pg_signal_backend"
                    f" TO {session.user}"
                ) from None
            raise
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def _tables(self, seen: Holder) -> list[str]:
        """Where a holder like *seen* may have written what it is: alone, or among several."""
        if seen.mode == EXCLUSIVE:
            return [self._fence.quoted]
        from lockctl.stores.postgresql import share

        return [self._fence.quoted, share.table(self._fence)]

    def _sharers(self, session: Opened, seats: list[Seat], deadline: Deadline) -> dict[tuple[str, str], Entry]:
        """What is known of those in *seats* who share a lock."""
        keys = {seat.key for seat in seats if seat.granted and seat.mode == inspect.TOGETHER and seat.owner is not None}
        if not keys:
            return {}
        from lockctl.stores.postgresql import share

        return share.entries(self._fence, session, sorted(keys), deadline)

    def _entries(self, session: Opened, deadline: Deadline) -> list[tuple[str, Key, Entry]]:
        address = self._address
        if address.key is not None:
            entry = self._fence.read(session, address.key, deadline)
            name = inspect.name_in(entry)
            return [(name, address.key, entry)] if entry is not None and name is not None else []
        found: list[tuple[str, Key, Entry]] = []
        after = ""
        while page := self._fence.page(session, address.prefix, after, deadline):
            for entry in page:
                after = entry.name or ""
                name = after.removeprefix(address.prefix)
                # who can write the table could give a name the key of another
                if is_name(name) and address.key_of(name).text == entry.key:
                    found.append((name, address.key_of(name), entry))
        return found

    def _info(
        self,
        name: str,
        key: Key,
        divided: tuple[list[Seat], list[Seat]],
        entry: Entry | None,
        sharers: dict[tuple[str, str], Entry],
    ) -> LockInfo:
        inside, outside = divided
        known = [(seat, sharers.get((seat.key, seat.owner or "")) or entry) for seat in inside]
        holders = [inspect.holder(seat, written) for seat, written in known]
        if entry is not None and _resting(entry) is not None:
            holders.insert(0, inspect.rest(entry))
        return LockInfo(
            name=name,
            backend="postgresql",
            key=key.text,
            state="free" if not holders else "held" if any(holder.owner for holder in holders) else "foreign",
            fencing=FENCING,
            slots=max([1, *(inspect.slots(seat, written) for seat, written in known)]),
            holders=tuple(holders),
            waiters=tuple(inspect.waiter(seat) for seat in outside),
            last_run=None,
        )

    def adopt(self, session: Opened) -> None:
        """Use *session*, which holds nothing, instead of another that would have to be opened; or close it."""
        if self._session is None and self._mutex.acquire(blocking=False):
            self._session = session
            self._mutex.release()
        else:
            session.close()

    def with_session(self, ask: Callable[[Opened], T], deadline: Deadline) -> T:
        """What *ask* finds out with a connection; a second time with another if the first one had ended meanwhile."""
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


def _resting(entry: Entry | None) -> str | None:
    """The last holder of a lock that rests."""
    return None if entry is None or entry.rests_for is None else entry.owner
