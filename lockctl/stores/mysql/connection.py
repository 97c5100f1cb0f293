"""A connection to MySQL or MariaDB that is kept from step to step; each step has a time limit."""

from __future__ import annotations

import _thread

from lockctl import clock
from lockctl.errors import BackendUnavailable
from lockctl.locks.driver import jittered
from lockctl.stores.mysql.session import DEADLOCK, FORBIDDEN, Session, SessionGone, SqlError
from lockctl.wire.deadline import Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.stores.mysql.address import Address

    T = TypeVar("T")


FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5  # seconds before a step is repeated after a deadlock, doubled each time


class KeptSession:
    """A session that is kept from step to step, and replaced when it has ended meanwhile. For one thread at a time.

    A step runs in a thread with a time limit, and again after a deadlock. After any error its session is closed; one
    whose step was too late is broken off, and closed by the thread that was left behind with it.
    """

    def __init__(self, address: Address, *settings: str) -> None:
        """Each new session begins with the statements *settings*. Connects when it is first used."""
        self.where = f"mysql at {address}"
        self._address = address
        self._settings = settings
        self._session: Session | None = None

    def run(self, step: Callable[[Session], T], deadline: Deadline) -> T:
        """What *step* gives. Raises as ``Session`` does, and what *step* raises."""
        given, session = self.lend(step, deadline)
        self.keep(session)
        return given

    def lend(self, step: Callable[[Session], T], deadline: Deadline) -> tuple[T, Session]:
        """As :meth:`run`, and the session, which belongs to the caller then."""
        kept, self._session = self._session, None
        try:
            return self._tried(step, kept, deadline)
        except SessionGone:
            if kept is None:
                raise
            return self._tried(step, None, deadline)

    def keep(self, session: Session) -> None:
        """Take back a session that was lent, for the next step."""
        if self._session is None:
            self._session = session
        else:
            session.close()

    def close(self) -> None:
        """Close what is kept; the next step connects again."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _tried(self, step: Callable[[Session], T], kept: Session | None, deadline: Deadline) -> tuple[T, Session]:
        mutex = _thread.allocate_lock()
        given_up: list[bool] = []
        used: list[Session] = []
        done: list[Session] = []

        def run() -> tuple[T, Session]:
            session = kept or Session(self._address, deadline)
            used.append(session)
            try:
                for statement in () if kept else self._settings:
                    session.ask(statement, deadline)
                given = _again_after_deadlocks(step, session, deadline)
                with mutex:
                    if given_up:
                        raise BackendUnavailable(f"{self.where}: too late")
                    done.append(session)
            except BaseException:
                session.close()
                raise
            return given, session

        try:
            return bounded(run, deadline, self.where, self_limited=True)
        except BaseException:
            with mutex:
                given_up.append(True)
                for session in done:  # it ended in the very moment in which it was given up
                    session.close()
            for session in used:
                session.break_off()
            raise


def _again_after_deadlocks(step: Callable[[Session], T], session: Session, deadline: Deadline) -> T:
    """What *step* gives. Each deadlock has it wait longer: a cluster whose members are at odds says so often."""
    pause = FIRST_PAUSE
    while True:
        try:
            return step(session)
        except SqlError as error:
            if error.code in FORBIDDEN:
                from lockctl.stores.mysql.rights import account_of

                error.account = account_of(session, deadline)
            if error.code != DEADLOCK:
                raise
        session.ask("ROLLBACK", deadline)
        clock.pause(max(0.0, min(jittered(pause), deadline.left())))
        pause = min(2 * pause, LONGEST_PAUSE)
