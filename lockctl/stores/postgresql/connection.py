"""The connections of one claim: one holds the lock and proves it, another one serves where the first must not.

And one of each backend, for everything else.
"""

from __future__ import annotations

import _thread

from lockctl.errors import STRANGE, BackendUnavailable, ConfigError
from lockctl.names import token_domain
from lockctl.stores.postgresql import pooler, queue, scope
from lockctl.stores.postgresql.protocol import Opened, connect
from lockctl.stores.postgresql.session import SessionGone, SqlError, misled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from lockctl.model import Claim
    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.session import Row
    from lockctl.stores.postgresql.tokens import Fence
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

APPLICATION = "lockctl"  # what the server shows for a connection that holds no lock
TABLE_PATIENCE = 0.1  # seconds that a renewal, or a plan, waits for a table that somebody locked
PATIENCE = 10.0  # seconds without an acknowledgement until the kernel gives such a connection up


def open_side(address: Address, deadline: Deadline) -> Opened:
    """A connection for everything but holding and waiting."""
    return connect(address, deadline, APPLICATION, PATIENCE)


def bounded(deadline: Deadline) -> str:
    """What comes before a statement that must not wait long for a table that somebody locked."""
    limit = min(TABLE_PATIENCE, deadline.left() / 4) * 1000 + 1
    return f"SELECT pg_catalog.set_config('lock_timeout', '{limit:.0f}', true); "


class Connections:
    """The session that holds the lock, and one beside it for tables, where the first has a transaction open.

    Every method that asks raises ``SessionGone`` when the session has ended, and with it the lock if it had it;
    ``SqlError`` when the server refused a statement; ``BackendUnavailable`` when there is no answer in time.
    """

    def __init__(self, address: Address, claim: Claim) -> None:
        """Nothing is opened yet."""
        self.scope: scope.Scope = scope.SCOPES[address.scope]
        self.domain = ""
        self.session: Opened  # holds the lock, and does nothing that could end it
        self._side: Opened | None = None
        self._address = address
        self._claim = claim
        self._is_marked = False  # the session can tell whether it still has the lock without a look at all locks

    def open(self, deadline: Deadline) -> None:
        """Connect, refuse what cannot hold a lock, and have the server end the session when it falls silent."""
        address, claim = self._address, self._claim
        scope.check_ttl(claim.ttl)
        # poolers may keep the name that a connection came with for who gets the server process next: ours is set below
        self.session = session = connect(address, deadline, APPLICATION, claim.ttl)
        try:
            if self.scope is scope.SESSION and pooler.is_pooled(session):
                # a pooler with one connection left would have none for it to say what it is
                other = connect(address, deadline, APPLICATION, PATIENCE, identify=False)
                pooler.check_owns_process(session, other, deadline)
            self.domain = token_domain(
                f"postgresql:{session.cluster}/{session.database}" + (f"/{address.schema}" if address.schema else "")
            )
            scope.prepare(self.scope, session, claim.ttl, queue.application(claim), deadline)
        except BaseException:
            session.close()
            raise

    def close(self, spare: Opened | None = None) -> None:
        """End the sessions but *spare*; the server frees what they held when it sees this."""
        if self.session is not spare:
            self.session.close()
        self.close_side()

    def close_side(self) -> None:
        """End the connection for tables, if there is one: the next statement opens another."""
        if self._side is not None:
            self._side.close()
            self._side = None

    def take_side(self) -> Opened | None:
        """The connection for tables, if there is one that is at rest, for somebody else."""
        if self._side is not None and self._side.pending:
            self.close_side()
        side, self._side = self._side, None
        return side

    def for_tables(self, deadline: Deadline) -> Opened:
        """The connection for statements on tables."""
        if self.scope is scope.SESSION:
            return self.session
        self._side = self._side or open_side(self._address, deadline)
        if self._side.pending:
            try:
                self._side.finish(deadline)
            except SqlError:
                pass  # nobody waits for that answer any more
        return self._side

    def look(self, sql: str, values: tuple[str, ...], deadline: Deadline) -> list[Row]:
        """The answer to one and the same statement on tables, of now, or of the last call if it came too late for that.

        Over a slow network a connection could never be opened, and asked, in the time that a renewal leaves.
        """
        side = self._side if self._side is not None and self._side.pending else self.for_tables(deadline)
        try:
            if not side.pending:
                side.send(sql, values)
            return side.finish(deadline)
        except SqlError:
            raise  # the connection is as before
        except BackendUnavailable:
            if not side.pending:
                self.close_side()
            raise

    def expect(self, pid: int) -> None:
        """Refuse a pooler that lends server processes, and hid it from us till now. Raises ``ConfigError``."""
        if pid != self.session.pid:
            raise pooler.lends(self.session)

    def check(
        self, ways: scope.Ways, slot: object, deadline: Deadline, more: str = "NULL", values: tuple[str, ...] = ()
    ) -> Any:
        """Have the lease count anew, if the session still has the lock; the value of *more*, an expression.

        The first time the server also plans what the release says: what it reads for that, it has at hand then.
        """
        is_marked, self._is_marked = self._is_marked, False
        proof = ways.marked if is_marked else f"CASE WHEN {ways.holds} THEN {ways.mark} ELSE false END"
        sql = f"SELECT pg_catalog.pg_backend_pid(), {proof.replace('{}', str(slot))}, {more}"
        if values:  # about a table, for which nobody's ALTER or VACUUM FULL may keep us waiting
            plan = f"EXPLAIN {ways.telling}; " if ways.telling and not is_marked else ""
            sql = f"{bounded(deadline)}{plan}{sql}"
        pid, held, found = self.session.row(sql, 3, deadline, values or None)
        if pid != self.session.pid or not held:
            raise SessionGone(f"{self.session.where}: the session does not hold the lock any more")
        self._is_marked = True
        return found


class Observer:
    """A connection that holds no lock, for everything but holding and waiting; opened when it is first needed."""

    def __init__(self, address: Address, fence: Fence) -> None:
        """For the locks of *address*, whose tokens are in the tables of *fence*."""
        self.address = address
        self.fence = fence
        self._session: Opened | None = None
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def rest(self) -> None:
        """Close the connection if nobody uses it: a pooler may have no other one for a lock."""
        if self._mutex.acquire(blocking=False):
            self.close()
            self._mutex.release()

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
                    self._session = open_side(self.address, deadline)
                try:
                    return ask(self._session)
                except (SqlError, ConfigError):
                    raise
                except SessionGone:
                    self.close()
                    if fresh:
                        raise
                except STRANGE:
                    where = self._session.where
                    self.close()
                    raise misled(where) from None
                except BaseException:
                    self.close()  # its late answer would be taken for that to the next request
                    raise
        finally:
            self._mutex.release()
