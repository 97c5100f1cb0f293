"""One claim's hold on a lock: the session that takes it, proves that it still has it, and gives it back."""

from __future__ import annotations

from lockctl.backends.postgresql import look, pooler, scope
from lockctl.backends.postgresql.connect import connect
from lockctl.backends.postgresql.session import SessionGone, SqlError
from lockctl.clock import wall
from lockctl.documents import read_revocation
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.backends.postgresql.address import Address
    from lockctl.backends.postgresql.connect import Opened
    from lockctl.backends.postgresql.fence import Fence
    from lockctl.backends.postgresql.scope import Scope
    from lockctl.backends.postgresql.session import Row
    from lockctl.model import Claim

APPLICATION = "lockctl"  # what the server shows for a connection that holds no lock
PATIENCE = 10.0  # seconds without an acknowledgement until the kernel gives such a connection up


def open_side(address: Address, deadline: Deadline) -> Opened:
    """A connection for everything but holding and waiting."""
    return connect(address, deadline, APPLICATION, PATIENCE)


class Tenure:
    """The sessions of one claim, and what is known of its lock.

    Every method raises ``SessionGone`` when the session has ended, and with it the lock if it had it;
    ``SqlError`` when the server refused a statement; ``BackendUnavailable`` when there is no answer in time.
    """

    def __init__(self, address: Address, fence: Fence, claim: Claim) -> None:
        """Nothing is opened yet."""
        self.key = address.key_of(claim.name)
        self.locked = False
        self.waiting = False  # the statement that waits for the lock was sent
        self.token: int | None = None
        self.domain = ""
        self.session: Opened  # holds the lock, and does nothing that could end it
        self._side: Opened | None = None  # for the table, where the session has a transaction open
        self._address = address
        self._scope: Scope = scope.SCOPES[address.scope]
        self._fence = fence
        self._claim = claim

    def open(self, deadline: Deadline) -> None:
        """Connect, refuse what cannot hold a lock, and have the server end the session when it falls silent."""
        address, claim = self._address, self._claim
        self.session = session = connect(address, deadline, look.application(claim), claim.ttl)
        try:
            if self._scope is scope.SESSION and pooler.is_pooled(session):
                # a pooler with one connection left would have none for it to say what it is
                other = connect(address, deadline, APPLICATION, PATIENCE, identify=False)
                pooler.check_owns_process(session, other, deadline)
            self.domain = _domain(session, address.schema, deadline)
            scope.prepare(self._scope, session, claim.ttl, look.application(claim), deadline)
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        """End the sessions; the server frees what they held when it sees this."""
        self.session.close()
        self._close_side()

    @property
    def pid(self) -> int | None:
        """The server process that has the lock, if others may use it after us; else the session's end frees it."""
        return self.session.pid if self.locked and pooler.is_pooled(self.session) else None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the server may hold something for the session that its end has not freed yet."""
        return self.locked or self.waiting or self.session.pending

    def take(self, deadline: Deadline) -> bool:
        """Take the lock if it is free, or see whether the wait for it was answered; whether it is ours now.

        Raises ``ConfigError`` too, as :meth:`queue` and :meth:`draw` do.
        """
        if self.waiting:
            try:
                self._granted(self.session.finish(Deadline(0)))
            except BackendUnavailable:
                if self.session.pending:
                    return False
                raise
        if not self.locked:
            taking = f"SELECT pg_catalog.pg_backend_pid(), {self._scope.take}({self.key.text})"
            rows = self.session.ask(taking, deadline)
            if rows[0][1]:
                self._granted(rows)
        return self.locked

    def queue(self, deadline: Deadline) -> None:
        """Take a place in the server's queue, and wait there until the lock is ours. The place is kept."""
        if not self.waiting:
            who = look.comment(self._claim, wall())
            self.session.send(f"{who}SELECT pg_catalog.pg_backend_pid(), {self._scope.wait}({self.key.text})")
            self.waiting = True
        self._granted(self.session.finish(deadline))

    def draw(self, deadline: Deadline) -> int:
        """The token of the lock, which is ours; the lease counts anew."""
        if self.token is not None:
            self._check(deadline)
            return self.token
        claim = self._claim
        name = None if self._address.key is not None else self._address.prefix + claim.name
        if self._scope is scope.SESSION:
            token, pid = self._fence.take(self.session, self.key, name, claim, wall(), deadline)
            self._expect(pid)
        else:
            # what the long transaction writes nobody would see before its end, and the row would be locked until then
            self._side = self._side or open_side(self._address, deadline)
            token, _ = self._fence.take(self._side, self.key, name, claim, wall(), deadline)
            self._check(deadline)
        self.token = token
        return token

    def renew(self, deadline: Deadline) -> tuple[str, str] | None:
        """Have the lease count anew, if the lock is still ours; who asked for it, and why, if somebody did."""
        self._collect(deadline)
        owner = self._claim.owner
        if self._scope is scope.TRANSACTION:
            try:
                self._check(deadline)
            except SqlError as error:
                raise _aborted(error) from None
            return self._asked_back(deadline)
        try:
            column = self._fence.revocation_column()
            return read_revocation(self._check(deadline, column, (self.key.text, owner)), owner)
        except SqlError:
            self._check(deadline)  # somebody dropped the table, or forbade it: the lock is held all the same
            return None

    def free(self, deadline: Deadline) -> None:
        """Give the lock back if it is ours. Raises ``BackendUnavailable`` if that is not known, or may change."""
        if self.waiting:
            raise BackendUnavailable(f"{self.session.where}: the lock may be granted at any moment")
        self._collect(deadline)
        if self.locked:
            self.session.ask(self._scope.free.format(self.key.text), deadline)

    def _granted(self, rows: list[Row]) -> None:
        self.waiting, self.locked = False, True
        expected, self.session.pid = self.session.pid, int(rows[0][0])  # where the lock is, wherever that is
        self._expect(expected)

    def _expect(self, pid: int) -> None:
        """Refuse a pooler that lends server processes, and hid it from us till now. Raises ``ConfigError``."""
        if pid != self.session.pid:
            raise pooler.lends(self.session)

    def _collect(self, deadline: Deadline) -> None:
        """Wait for the late answer to an earlier renewal; it counts for nothing now."""
        if self.session.pending:
            try:
                self.session.finish(deadline)
            except SqlError as error:
                if self._scope is scope.TRANSACTION:
                    raise _aborted(error) from None

    def _check(self, deadline: Deadline, more: str = "NULL", values: tuple[str, ...] = ()) -> Any:
        """Have the lease count anew, if the lock is still ours; the value of *more*, an expression."""
        sql = f"SELECT pg_catalog.pg_backend_pid(), {scope.holds(self.key)}, {more}"
        ((pid, held, found),) = self.session.ask(sql, deadline, values or None)
        if pid != self.session.pid or not held:
            raise SessionGone(f"{self.session.where}: the session does not hold the lock any more")
        return found

    def _asked_back(self, deadline: Deadline) -> tuple[str, str] | None:
        """Whether somebody asked for the lock. What cannot be read now is read at the next renewal."""
        try:
            self._side = self._side or open_side(self._address, deadline)
            return self._fence.revocation(self._side, self.key, self._claim.owner, deadline)
        except (BackendUnavailable, ConfigError):
            self._close_side()
            return None

    def _close_side(self) -> None:
        if self._side is not None:
            self._side.close()
            self._side = None


def _aborted(error: SqlError) -> SessionGone:
    """A refused statement leaves a session's lock alone, but ends a transaction and frees its lock."""
    return SessionGone(f"{error}: this ended the transaction that held the lock")


def _domain(session: Opened, schema: str | None, deadline: Deadline) -> str:
    """The counter that tokens come from: cluster, database, and schema if it was given."""
    try:
        ((cluster,),) = session.ask("SELECT system_identifier FROM pg_catalog.pg_control_system()", deadline)
    except SqlError:  # not everybody may ask everywhere
        cluster = "unknown"
    return f"postgresql:{cluster}/{session.database}" + (f"/{schema}" if schema else "")
