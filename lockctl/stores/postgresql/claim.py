"""One claim on a lock: it is taken or waited for, renewed, and given back."""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.documents import read_revocation
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import SHARED, Claim, Grant
from lockctl.stores.postgresql import pooler, scope
from lockctl.stores.postgresql.connection import Connections, bounded
from lockctl.stores.postgresql.session import SessionGone, SqlError
from lockctl.stores.postgresql.tokens import Drawn, Fence, OnHold
from lockctl.wire.deadline import READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.session import Request, Row
    from lockctl.stores.postgresql.wait import Position

LOCK_TIMEOUT = "55P03"
LOOK = 1.0  # seconds between two looks whether an operator ended the hold of a lock


class Attempt:
    """A claim with its connections, and what is known of its lock.

    Every method raises ``SessionGone`` when the session has ended, and with it the lock if it had it;
    ``SqlError`` when the server refused a statement; ``BackendUnavailable`` when there is no answer in time.
    """

    def __init__(self, address: Address, fence: Fence, claim: Claim) -> None:
        """Nothing is opened yet. Raises ``ConfigError`` for a number of slots that cannot be."""
        self.key = address.key_of(claim.name)
        self.ttl = claim.ttl
        self.locked = False
        self.token: int | None = None
        self.at = 0.0  # when the token was drawn: wall clock of the server, seconds since the epoch
        self.connections = Connections(address, claim)
        self._address = address
        self._scope = self.connections.scope
        self._fence = fence
        self._claim = claim
        self._shares = claim.mode == SHARED or claim.slots > 1
        self._hold: Deadline | None = None  # until when the lock is on hold that we were given
        self._position: Position | None = None  # in the queue of those who wait
        self._slot: object = None  # which one, if the lock has several
        self._drawn_at_once: Drawn | None = None  # when the lock was taken, in this very request
        self._table_is_locked = False  # as the last renewal found
        self._queue = address.queue_of(claim.name)
        self._ways: scope.Ways
        if self._shares:
            from lockctl.stores.postgresql import share

            self._ways = share.ways(self._scope, self.key, address.slots_of(claim.name), self._queue, claim)
        else:
            self._ways = scope.alone(self._scope, self.key, self._queue)

    @property
    def session(self) -> Opened:
        """The session that holds the lock, once the connections were opened."""
        return self.connections.session

    @property
    def is_in_doubt(self) -> bool:
        """Whether the server may hold something for the session that its end has not freed yet."""
        return self.locked or self._position is not None or self.session.pending

    def take(self, deadline: Deadline) -> bool:
        """Take the lock if it is free, or if it is our turn; whether it is ours now.

        Raises ``ConfigError`` too, as :meth:`wait` and :meth:`draw` do: also when those who have it say another
        number of slots.
        """
        if not self.locked and self._position is not None:
            self._collect_looks(deadline)
            is_late = self.session.pending  # asked before this request: the lease would count from too late
            rows = self._position.look(deadline)
            self._granted(rows)
            if rows and not is_late and rows[0][2:] and rows[0][2] is not None:
                self._drawn_at_once = Drawn(token=int(rows[0][2]), pid=int(rows[0][0]), at=float(rows[0][3]))
            self._leave_no_key(deadline)
        elif not self.locked:
            row = self.session.row(self._ways.take, 3, deadline)
            self._granted([row] if row[1] else None)
            self._leave_no_key(deadline)
            if not self.locked and row[2]:
                from lockctl.stores.postgresql import share

                share.check_agrees(self._fence, self.connections.for_tables(deadline), self.key, self._claim, deadline)
        return self.locked

    def wait(self, has_lined_up: Callable[[], None], deadline: Deadline) -> None:
        """Take a position in the queue, and wait there until the lock is ours. The position is kept."""
        from lockctl.stores.postgresql.wait import Position

        if self._position is None:
            self._position = Position(self.session, self._scope, self._ways, (self.key, self._queue), self._claim)
            if self._ways.try_and_draw:
                self._position.drawing = self._drawing
        if self.held_for() > 0:
            self._position.join(deadline)
            self._sit_out(has_lined_up, deadline)
            if self.held_for() > 0:
                return
        self._collect_looks(deadline)
        self._granted(self._position.stand(has_lined_up, deadline))
        self._leave_no_key(deadline)

    def _sit_out(self, has_lined_up: Callable[[], None], deadline: Deadline) -> None:
        """Sleep until the lock that we were given has rested. Raises as its methods, and ``RequestInterrupted``."""
        while deadline.left() > 0:
            try:
                self.read_hold(deadline)
                has_lined_up()
            except SessionGone:
                raise
            except BackendUnavailable:
                if deadline.left() > 0:
                    raise
            left = self.held_for()
            if left <= 0:
                return
            # the server ends a session that is silent for a lease
            pause = deadline.sooner(min(left, LOOK, self.ttl / 3))
            try:
                pause.wait(self.session.fileno(), READABLE, self.session.where)
            except BackendUnavailable:
                pass  # the time is over

    def draw(self, deadline: Deadline) -> bool:
        """Draw the token of the lock, which is ours; the lease counts anew.

        False if the lock is on hold; it is given back then.
        """
        self._collect(deadline)
        if self.token is not None:
            self._check(deadline)
            return True
        drawn, self._drawn_at_once = self._drawn_at_once, None
        try:
            drawn = drawn or self._drawn(deadline)
        except OnHold as found:
            self._hold = Deadline(found.seconds)
            self._give_back(deadline)
            return False
        except ConfigError:
            try:
                self._give_back(deadline)
            except BackendUnavailable:
                pass  # then the end of the session does
            raise
        if self._scope is scope.SESSION:
            self.connections.expect(drawn.pid)
        else:
            self._check(deadline)
        self.token, self.at, self._hold = drawn.token, drawn.at, None
        if self._position is not None:
            self.session.send(self._position.leaving())  # the next request collects the answer: nothing depends on it
            self._position = None
        return True

    def held_for(self) -> float:
        """Seconds for which the lock is on hold that we were given, as far as we know."""
        return 0.0 if self._hold is None else self._hold.left()

    def read_hold(self, deadline: Deadline) -> None:
        """See for how long the lock is still on hold, and keep the server from ending a session that is silent."""
        from lockctl.stores.postgresql import hold

        self._collect(deadline)
        who = "" if self._position is None else self._position.who
        if self._scope is scope.TRANSACTION:
            self.session.ask(who + pooler.WHICH, deadline)
        try:
            left = hold.still(self._fence, self.connections.for_tables(deadline), self.key, who, deadline)
        except BackendUnavailable:
            self.connections.close_side()
            raise
        self._hold = Deadline(left)

    def begin_hold(self, grant: Grant, hold: float, deadline: Deadline) -> None:
        """Keep the lock on hold for *hold* seconds after *grant*, if it is still ours. Raises ``ConfigError`` too."""
        if not self.locked:
            return
        from lockctl.stores.postgresql.hold import begin

        self._collect(deadline)
        if self._scope is scope.TRANSACTION:
            self._check_transaction(deadline)
        name = self._address.full_name(grant.claim.name)
        try:
            begin(self._fence, self.connections.for_tables(deadline), self.key, name, grant, hold, deadline)
        except SessionGone as gone:
            if self._scope is scope.SESSION:
                raise
            self.connections.close_side()
            raise BackendUnavailable(str(gone)) from None  # the lock's own session is still there
        except BackendUnavailable:
            self.connections.close_side()
            raise

    def renew(self, deadline: Deadline) -> tuple[str, str] | None:
        """Have the lease count anew, if the lock is still ours; who asked for it, and why, if somebody did."""
        self._collect(deadline)
        owner = self._claim.owner
        if self._scope is scope.TRANSACTION:
            self._check_transaction(deadline)
            return self._asked_back(deadline)
        if self._table_is_locked:
            self._table_is_locked = False  # it is tried again at the next renewal
            self._check(deadline)
            return None
        try:
            return read_revocation(self._check(deadline, self._revocation_column(), self._mine), owner)
        except SqlError as error:
            # somebody locked the table, dropped it, or forbade it: the lock is held all the same
            self._table_is_locked = error.code == LOCK_TIMEOUT
            self._check(deadline)
            return None

    def free(self, deadline: Deadline) -> None:
        """Give the lock back if it is ours. Raises ``BackendUnavailable`` if that is not known, or may change."""
        if self._position is not None and self._position.in_line:
            raise BackendUnavailable(f"{self.session.where}: the lock may be granted at any moment")
        self._collect(deadline)
        if self._position is not None:
            self.session.ask(self._position.leaving(), deadline)
            self._position = None
        free = "; ".join(filter(None, (self._ways.free, self._ways.telling)))
        if self.locked and self._shares and self.token is not None:
            from lockctl.stores.postgresql import share

            share.leave(self._fence, self.session, free, self._mine, deadline)
        elif self.locked:
            self.session.ask(free, deadline)
        self.locked, self.token = False, None

    def spare(self) -> Opened | None:
        """A connection that holds nothing any more and can be of use to others, once everything was given back."""
        if self._scope is scope.TRANSACTION:
            return self.connections.take_side()
        return None if self.is_in_doubt else self.session

    @property
    def _mine(self) -> tuple[str, str]:
        """By which the tables find the row of the claim."""
        return self.key.text, self._claim.owner

    def _drawn(self, deadline: Deadline) -> Drawn:
        # what a long transaction writes nobody would see before its end, and the row would be locked until then
        session, claim = self.connections.for_tables(deadline), self._claim
        name = self._address.full_name(claim.name)
        if not self._shares:
            return self._fence.take(session, self.key, name, claim, wall(), deadline)
        from lockctl.stores.postgresql import share

        return share.join(self._fence, session, self.key, name, claim, wall(), deadline)

    def _drawing(self, before: str) -> Request:
        claim = self._claim
        return self._fence.drawing(before, self.key, self._address.full_name(claim.name), claim, wall())

    def _give_back(self, deadline: Deadline) -> None:
        """Hold the lock no more; a position in the queue is kept."""
        self.session.ask(self._ways.undo.format(self._slot), deadline)
        self.locked = False

    def _leave_no_key(self, deadline: Deadline) -> None:
        """Where a transaction may have got the key, and no slot: give it back."""
        if not self.locked and self._claim.slots > 1 and self._scope is scope.TRANSACTION:
            self._give_back(deadline)

    def _granted(self, rows: list[Row] | None) -> None:
        if rows is None:
            return
        self.locked, self._slot = True, rows[0][1]
        expected, self.session.pid = self.session.pid, int(rows[0][0])  # where the lock is, wherever that is
        self.connections.expect(expected)

    def _collect(self, deadline: Deadline) -> None:
        """Wait for the late answer to an earlier renewal, which counts for nothing now, or for that to a waiter."""
        if self.session.pending and self._position is not None:
            self._granted(self._position.settle(deadline))
        if self.session.pending:
            try:
                self.session.finish(deadline)
            except SqlError as error:
                self._table_is_locked = error.code == LOCK_TIMEOUT
                if self._scope is scope.TRANSACTION:
                    raise _aborted(error) from None

    def _collect_looks(self, deadline: Deadline) -> None:
        """Wait for the late answer to a look at a hold, if there is one: until then the queue cannot be asked."""
        if self._position is not None and not self._position.is_asking:
            self._collect(deadline)

    def _revocation_column(self) -> str:
        if not self._shares:
            return self._fence.revocation_column()
        from lockctl.stores.postgresql import share

        return share.revocation_column(self._fence)

    def _check(self, deadline: Deadline, more: str = "NULL", values: tuple[str, ...] = ()) -> Any:
        return self.connections.check(self._ways, self._slot, deadline, more, values)

    def _check_transaction(self, deadline: Deadline) -> None:
        try:
            self._check(deadline)
        except SqlError as error:
            raise _aborted(error) from None

    def _asked_back(self, deadline: Deadline) -> tuple[str, str] | None:
        """Whether somebody asked for the lock. What cannot be read now is read at the next renewal."""
        try:
            rows = self.connections.look(f"{bounded(deadline)}SELECT {self._revocation_column()}", self._mine, deadline)
        except (BackendUnavailable, ConfigError):
            return None
        return read_revocation(rows[0][0], self._claim.owner) if rows else None


def _aborted(error: SqlError) -> SessionGone:
    """A refused statement leaves a session's lock alone, but ends a transaction and frees its lock."""
    return SessionGone(f"{error}: this ended the transaction that held the lock")
