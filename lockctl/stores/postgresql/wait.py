"""Waiting for a lock in the order of arrival, without a statement that stays open.

A statement that waits keeps its snapshot, and with it back what VACUUM could remove and CREATE INDEX CONCURRENTLY waits
for. So who waits has a ticket: an advisory lock of its own session, whose number is greater than those before it, and
which goes with the session. Between short statements it sleeps. Only the one with the smallest number tries to take the
lock; it is told by who gives it back, and looks four times a second in case nobody does. Of the slots of a
lock, as many may try as are free.

Who is told takes the lock and draws its token in one request. The wait ends for that, since a lease counts from before
its request is sent. What the server needs to execute it has been read before.

Programs that wait in the server's own queue would always be given the lock before one that tries. So while there is
one, the first who waits takes its place in that queue, behind those who are there.
"""

# ruff: noqa: S608 - numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl.clock import boottime, wall
from lockctl.errors import BackendUnavailable
from lockctl.model import SHARED, Claim
from lockctl.stores.postgresql import queue
from lockctl.stores.postgresql.connection import bounded
from lockctl.stores.postgresql.scope import FREED, LOCKS, SESSION, Scope, Ways, is_key, wake
from lockctl.stores.postgresql.session import SqlError
from lockctl.wire.deadline import READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.postgresql.layout import Key
    from lockctl.stores.postgresql.session import Request, Row, Session

SHORTEST_PAUSE = 0.01  # seconds between two looks of one who has just come; they grow with the time that it waits
GROWTH = 0.03  # seconds for each second of waiting
FIRST_PAUSE = 0.25  # seconds at most between two attempts of the first
OTHERS_PAUSE = 1.0  # seconds at most between two looks of the others
CONTEST_PAUSE = 1.0  # seconds between two looks of the first whether others stand in the server's queue
LINE_LIMIT = 60.0  # seconds in the server's queue at a time: so long a snapshot does no harm
ANSWER_LIMIT = 15.0  # seconds for an answer, after which the connection is taken for dead
LARGEST = 2_000_000_000  # tickets above are not ours
AT_ONCE = 1000  # tickets that are tried: as many may come at the same moment
LOCK_TIMEOUT = "55P03"
JOIN, PLACE, TURN, CONTEST, LINE, PLAN, DRAW = "join", "place", "turn", "contest", "line", "plan", "draw"


class Position:
    """A position in the queue for a lock.

    Methods raise as ``Session.finish``; an answer that did not come in time is waited for at the next call.
    """

    def __init__(self, session: Session, kind: Scope, ways: Ways, keys: tuple[Key, Key], claim: Claim) -> None:
        """Nothing is asked yet. *keys* are the lock's, and that of its queue."""
        self.who = queue.comment(claim, wall())  # before every statement: who looks at the lock sees it
        self.drawing: Callable[[str], Request] | None = None  # a request that draws a token, after other statements
        self._session = session
        self._is_session = kind is SESSION
        self._ways = ways
        self._key, self._queue = keys
        self._is_reader = claim.mode == SHARED
        self._ticket: int | None = None
        self._before = 0  # of those with smaller numbers, how many must have been inside first
        self._rank = 1  # among those with smaller numbers
        self._asked = ""  # what the statement under way is for
        self._next_step: tuple[str, Request] | None = None  # instead of what would be next
        self._is_planned = False
        self._contest_at = 0.0
        self._since = boottime()
        self._longest = min(OTHERS_PAUSE, claim.ttl / 3)  # the server ends a session that is silent for a lease

    @property
    def in_line(self) -> bool:
        """Whether the server may grant the lock at any moment."""
        return self._asked == LINE

    @property
    def is_asking(self) -> bool:
        """Whether the answer that the session waits for, if any, is one to this queue."""
        return bool(self._asked)

    def join(self, deadline: Deadline) -> None:
        """Have a ticket."""
        while self._ticket is None:
            self._step(deadline)

    def look(self, deadline: Deadline) -> list[Row] | None:
        """Try once to take the lock; the row of the answer if it is ours now, with its token if that was drawn."""
        try:
            while True:
                asked, rows = self._step(deadline if not self.in_line else deadline.sooner(0))
                if _is_ours(asked, rows):
                    return rows
                if self._is_over(asked):
                    return None
        except BackendUnavailable:
            if self.in_line and self._session.pending:
                return None
            raise

    def stand(self, has_lined_up: Callable[[], None], deadline: Deadline) -> list[Row] | None:
        """Wait until the lock is ours; the row of the answer.

        ``None`` if it is not by the *deadline*, or if it was given back: :meth:`look` then takes it with its token.
        """
        while True:
            is_asked_now = not self._asked
            asked, rows = self._step(deadline)
            if is_asked_now:
                has_lined_up()
            if _is_ours(asked, rows):
                return rows
            if asked == TURN and self.drawing is not None and not self._is_planned:
                # has the server read what it needs for this, and for what is said then, unless tables are locked
                plan = f"{bounded(deadline)}EXPLAIN {wake(self._queue)}; EXPLAIN "
                self._next_step, self._is_planned = (PLAN, self.drawing(plan)), True
            elif asked == PLAN or self._is_over(asked):
                if deadline.left() <= 0:
                    return None
                if self._sleep(deadline) and self.drawing is not None and not self._before:
                    self._next_step = DRAW, self.drawing(self._ways.try_and_draw)
                    return None

    def settle(self, deadline: Deadline) -> list[Row] | None:
        """Wait for the answer to what was asked, if anything was; the row of the answer if the lock is ours by it."""
        if not self._asked:
            return None
        asked, rows = self._step(deadline)
        return rows if _is_ours(asked, rows) else None

    def leaving(self) -> str:
        """The statements that give the ticket back and tell the next one; they answer with nothing that matters."""
        if self._ticket is None:
            return "SELECT 1"
        left = f"SELECT pg_catalog.pg_advisory_unlock{self._kind}({self._queue.text}, {self._ticket})"
        return f"{left}; {wake(self._queue)}; UNLISTEN *" if self._is_session else left

    @property
    def _kind(self) -> str:
        """The end of the name of the functions that lock and unlock a ticket."""
        return "_shared" if self._is_reader else ""

    def _step(self, deadline: Deadline) -> tuple[str, list[Row]]:
        """Ask what is to be asked next, or go on waiting for the answer to what was; and that answer."""
        if not self._asked:
            asked, (sql, values) = self._next()
            who = self.who if values is None else self.who.replace("%", "%%")
            self._session.send(who + sql, values)
            self._asked = asked
        try:
            rows = self._session.finish(deadline.sooner(ANSWER_LIMIT + (LINE_LIMIT if self.in_line else 0)))
        except SqlError as error:
            asked, self._asked = self._asked, ""
            if asked == PLAN:
                return PLAN, []  # what is wrong is told when the token is drawn
            if asked != DRAW and (asked != LINE or error.code != LOCK_TIMEOUT):
                raise
            # it may have been granted before, or at the last moment: a session's lock outlives the statement
            held = f"SELECT pg_catalog.pg_backend_pid(), {self._ways.holds}"
            self._next_step = TURN, (held if self._is_session else f"{self._ways.undo}; {self._ways.turn}", None)
            return self._step(deadline) if asked == DRAW else (LINE, [])
        asked, self._asked = self._asked, ""
        if asked == JOIN and rows:
            self._ticket = int(rows[0][4])
        if asked in (JOIN, PLACE) and rows:
            ahead, first, room = map(int, rows[0][1:4])
            # where there is room for several, so many are the first
            self._before = max(0, first - max(0, room - 1))
            self._rank = (ahead if self._is_reader else self._before) + 1
        elif asked == CONTEST and rows[0][1]:
            limit = f"SELECT pg_catalog.set_config('lock_timeout', '{LINE_LIMIT * 1000:.0f}', true)"
            self._next_step = LINE, (f"{limit}; {self._ways.line}", None)
        return asked, rows

    def _next(self) -> tuple[str, Request]:
        step, self._next_step = self._next_step, None
        if step is not None:
            return step
        pid = "SELECT pg_catalog.pg_backend_pid()"
        count = "count(*) AS ahead, count(*)" + (" FILTER (WHERE l.mode = 'ExclusiveLock')" if self._is_reader else "")
        tickets = f"{LOCKS} l WHERE l.granted AND {is_key(self._queue)} AND l.objid::bigint < {LARGEST}"
        if self._ticket is None:
            listen = f'LISTEN "lockctl_{self._session.pid}"; ' if self._is_session else ""
            sql = (
                f"{listen}{pid}, q.ahead, q.before, {self._ways.room}, t.n FROM"
                f" (SELECT COALESCE(max(l.objid::bigint), 0) AS last, {count} AS before FROM {tickets}) q,"
                f" LATERAL generate_series(q.last + 1, q.last + {AT_ONCE}) AS t(n)"
                f" WHERE pg_catalog.pg_try_advisory_lock{self._kind}({self._queue.text}, t.n::int) LIMIT 1"
            )
            return JOIN, (sql, None)
        if self._before:
            ahead = f"(SELECT {count} AS before FROM {tickets} AND l.objid::bigint < {self._ticket}) q"
            return PLACE, (f"{pid}, q.ahead, q.before, {self._ways.room} FROM {ahead}", None)
        now = boottime()
        if self._ways.line and now >= self._contest_at:
            self._contest_at = now + CONTEST_PAUSE
            contest = f"EXISTS (SELECT FROM {LOCKS} l WHERE NOT l.granted AND {is_key(self._key)})"
            return CONTEST, (f"{pid}, {contest}", None)
        return TURN, (self._ways.turn, None)

    def _is_over(self, asked: str) -> bool:
        """Whether there is nothing more to ask at once, after an answer by which the lock is not ours."""
        return asked in (TURN, DRAW) or (asked in (JOIN, PLACE) and bool(self._before))

    def _sleep(self, deadline: Deadline) -> bool:
        """Return when it may be our turn; whether that is because the lock was given back."""
        told = self._session.notifications()
        if told:
            return FREED in told
        # a session is told when it is the first; a transaction that is open hears nothing
        most = OTHERS_PAUSE if self._before and self._is_session else FIRST_PAUSE * self._rank
        pause = max(SHORTEST_PAUSE * self._rank, GROWTH * (boottime() - self._since))
        try:
            deadline.sooner(min(pause, most, self._longest)).wait(self._session.fileno(), READABLE, self._session.where)
        except BackendUnavailable:
            return False  # the time is over
        return FREED in self._session.notifications()


def _is_ours(asked: str, rows: list[Row]) -> bool:
    return asked in (TURN, LINE, DRAW) and bool(rows) and bool(rows[0][1])
