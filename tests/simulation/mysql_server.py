"""A server of MySQL, as far as lockctl talks to it: sessions, statements that commit by themselves, locks by GET_LOCK.

Statements are executed one after the other, each as a whole. One that waits, for such a lock or for rows that another
program has locked, is begun anew when it can go on, with what its functions have given before.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.simulation.mysql_session import TABLE, Session, SqlError, WaitsError, refusal, rewritten
from tests.simulation.server_locks import Locks, Wanted
from tests.simulation.server_sessions import SessionServer
from tests.simulation.server_tables import SqliteTables
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.network import Host
    from tests.simulation.processes import Process
    from tests.simulation.sockets import Socket

LONGEST_END = 0.02  # seconds until a session is gone
DEAD_CLIENT = 1.0  # seconds in which a session that waits by GET_LOCK sees that its client has gone
SHORT_SILENCE = 3.0  # seconds: a wait_timeout for a crowd of clients that forget to close
IMPATIENT = 0.1  # the part of the servers with that one; others have 8 hours
HOUR = 3600.0
BEHIND = 10.0  # seconds that a replica is behind, at most
LONGEST_NAME = 64  # characters of a lock by GET_LOCK
UNKNOWN, LOCK_WAIT, INTERRUPTED, WRONG_NAME = 1064, 1205, 1317, 3057
FULL = 1040, "Too many connections"
NO_RIGHT = 1142, f"UPDATE command denied to user 'ops'@'host' for table `jobs`.`{TABLE}`"
# what it answers to a write, which is not done
DEADLOCK = 1213, "Deadlock found when trying to get lock; try restarting transaction"
READ_ONLY = 1290, "The MySQL server is running with the --read-only option so it cannot execute this statement"
REFUSALS = (DEADLOCK, DEADLOCK, (LOCK_WAIT, "Lock wait timeout exceeded; try restarting transaction"), READ_ONLY)
SET = re.compile(r"(\w+) = ('[^']*'|\w+)")
IGNORED = ("SET SESSION TRANSACTION ISOLATION LEVEL ", "ROLLBACK")


class MysqlServer(SessionServer):
    """One server."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self._locks = Locks()
        self._writers: list[Session] = []  # who wait for rows
        self._programs = 0  # that have locked them
        self._session: Session
        self._problem: Exception | None = None
        self._excuse = DEADLOCK  # what it says while it refuses
        self._replicated: dict[Host, Any] = {}  # hosts that are sent to a replica, and what that has
        self.asked: Counter[tuple[int, int]] = Counter()  # statements, by host and second
        self.looked: list[tuple[Process, float, float]] = []  # who did so by itself, from when until when
        self.twice_until = INFINITE  # by the wall clock: the end of an hour that the zone of the server has twice
        self._silence = SHORT_SILENCE if Here.world.chance() < IMPATIENT else INFINITE
        self.tables = SqliteTables(
            {
                "NOW": lambda _: self._session.began,
                "CURRENT_USER": lambda: "ops@host",
                "UNIX_TIMESTAMP": self._unix_timestamp,
                "leftmost": lambda text, count: text[:count],
                "GET_LOCK": self._repeatable(self._get_lock),
                "IS_FREE_LOCK": self._repeatable(lambda name: int(not self._holders(name))),
                "RELEASE_LOCK": self._repeatable(self._release_lock),
            }
        )

    def _unix_timestamp(self, at: float | None = None) -> float:
        """Of a time, or without one of now, in whole seconds."""
        return int(self._session.began) if at is None else round(self._without_zone(at), 6)

    def _without_zone(self, at: float) -> float:
        """What becomes of a time that is written in the zone of the session, and read from that."""
        is_local = self._session.settings.get("time_zone") != "'+00:00'"
        return at + HOUR if is_local and at >= self.twice_until else at  # all before is told as that of the first time

    def be_busy(self, seconds: float, *, denies: bool) -> None:
        """See ``Server``."""
        super().be_busy(seconds, denies=denies)
        self._excuse = NO_RIGHT if denies else REFUSALS[int(Here.world.chance() * len(REFUSALS))]

    def refuses_now(self) -> bool:
        """See ``Server``: where nobody may write, nobody can."""
        return super().refuses_now() or (self._excuse == READ_ONLY and Here.world.now < self.busy_until)

    def memory(self) -> Any:
        """See ``Server``."""
        return self.tables.memory()

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.tables.remember(memory)

    def cell(self, key: bytes) -> bytes:
        """What is in a cell; empty: nothing."""
        if not self.tables.there():
            return b""
        rows = self.tables.sqlite.execute(f"SELECT data FROM {TABLE} WHERE id = ?", (key,)).fetchall()
        return rows[0][0] if rows else b""

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        super().fail(seconds, kept, old)
        self._locks, self._writers, self._programs = Locks(), [], 0

    def depose(self, host: Host, seconds: float) -> None:
        """Have a replica hear nothing from now on. Some time later a proxy sends *host* to it for so long."""
        later = Here.world.now + BEHIND * Here.world.chance()
        Here.world.at(later, self._send_to_replica, host, self.memory(), seconds)

    def _send_to_replica(self, host: Host, has: Any, seconds: float) -> None:
        Here.world.tell(self.name, f"{host.name} is sent to a replica for {seconds:.3f} s, which refuses all writes")
        self._replicated[host] = has
        Here.world.at(Here.world.now + seconds, self._replicated.pop, host, None)

    # Sessions

    def take(self, message: Any, socket: Socket) -> None:
        """See ``SocketServer``."""
        kind, *content = message
        known = self.of(socket)
        is_full = self._excuse not in (NO_RIGHT, READ_ONLY)
        if kind == "start" and is_full and self.refuses_now():
            socket.say(("error", *FULL))
            socket.hang_up()
        elif kind == "start":
            self.last_pid += 1
            self.sessions[self.last_pid] = Session(self.last_pid, socket)
            socket.say(("ready",))
            self._rest(self.sessions[self.last_pid])
        elif known is not None and kind == "end":
            self.end(known)
        elif known is not None:
            self._begin(known, *content)

    def alive(self) -> list[Session]:
        """The sessions that have not ended, nor been silent for too long."""
        now = self.clock.boottime()
        return [each for each in self.sessions.values() if each.ends_at > now]

    def lose(self, socket: Socket) -> None:
        """See ``SocketServer``. Who waits for rows does not look at its client."""
        session = self.of(socket)
        if session is not None:
            session.is_alone = True
            if session not in self._writers:
                super().lose(socket)

    def seen_after(self, session: Session) -> float:
        """See ``SessionServer``."""
        return DEAD_CLIENT if session.is_busy else LONGEST_END

    def end(self, session: Session) -> None:
        """The session is gone, and with it its locks."""
        if self.sessions.pop(session.pid, None) is None:
            return
        Here.world.tell(self.name, f"session {session.pid} ends")
        self._locks.end(session.pid)
        session.number += 1
        session.client.hang_up()
        self._grant()

    def names(self) -> set[str]:
        """Those of all locks by GET_LOCK."""
        return {str(key[0]) for key, _, _ in self._locks.held}

    def kill(self, host: Host) -> None:
        """End all sessions of a host by an administrator's hand. MySQL says so to who waits, and MariaDB does not."""
        for session in [each for each in self.sessions.values() if each.client.host is host]:
            if session.is_busy and Here.world.chance() < 0.5:
                session.client.say(("error", INTERRUPTED, "Query execution was interrupted"))
            self._stop_waiting(session)
            self.end(session)

    def _rest(self, session: Session) -> None:
        """The session waits for its client."""
        session.is_busy = False
        session.number += 1
        if self._silence < INFINITE:
            session.ends_at = self.clock.boottime() + self._silence
            Here.world.at(self.clock.true(session.ends_at), self._time_out, session, session.number)

    # Statements

    def _begin(self, session: Session, sql: str, values: tuple[Any, ...] | None) -> None:
        if session.is_busy:
            session.unread.append((sql, values))
            return
        self.asked[session.client.host.number, int(Here.world.now)] += 1
        session.sql, session.values = sql, values or ()
        session.began, session.given = self.clock.wall(), []
        session.is_busy, session.ends_at = True, INFINITE
        session.number += 1
        self._go_on(session)

    def _go_on(self, session: Session) -> None:
        self._session, session.next = session, 0
        answer: tuple[Any, ...]
        try:
            answer = ("rows", *self._execute(session))
        except WaitsError as waits:
            self._pause(session, waits)
            return
        except SqlError as error:
            answer = ("error", *error.args)
        except Exception as bug:
            Here.world.note_bug(bug, f"{self.name}, {' '.join(session.sql.split())}")
            answer = ("error", UNKNOWN, "You have an error in your SQL syntax")
        self._over(session, answer)

    def _over(self, session: Session, answer: tuple[Any, ...]) -> None:
        """The statement was executed, or refused."""
        session.client.say(answer)
        self._rest(session)
        if session.is_alone:
            super().lose(session.client)
        elif session.unread:
            self._begin(session, *session.unread.pop(0))
        self._grant()

    def _execute(self, session: Session) -> tuple[int, list[tuple[Any, ...]]]:
        sql = session.sql
        if sql.startswith(IGNORED):
            return 0, []
        if sql.startswith("SET SESSION "):
            session.settings.update(SET.findall(sql))
            return 0, []
        word = sql.partition(" ")[0]
        if session.client.host in self._replicated:
            if word not in ("SELECT", "DO"):
                raise SqlError(*READ_ONLY)
            with self._as_replicated(session.client.host):
                return self._done(session, word)
        if word in ("INSERT", "UPDATE", "DELETE") and session.settings["autocommit"] != "1":
            Here.world.bugs.append(f"nobody commits {sql}")
        if word in ("INSERT", "UPDATE", "DELETE") and self.refuses_now():
            raise SqlError(*self._excuse)
        if word in ("INSERT", "UPDATE", "DELETE") and self._programs:
            raise WaitsError(None, float(session.settings.get("innodb_lock_wait_timeout", 50)))
        return self._done(session, word)

    @contextmanager
    def _as_replicated(self, host: Host) -> Iterator[None]:
        """Show for a moment what the replica has that *host* is sent to."""
        now = self.memory()
        self.remember(self._replicated[host])
        try:
            yield
        finally:
            self.remember(now)

    def _done(self, session: Session, word: str) -> tuple[int, list[tuple[Any, ...]]]:
        """Execute a statement."""
        sql, self._problem = session.sql, None
        try:
            cursor = self.tables.sqlite.execute(rewritten(sql), session.values)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            if self._problem is not None:
                raise self._problem from None
            raise refusal(error, sql) from error
        if Here.world.telling and word in ("INSERT", "UPDATE", "DELETE"):
            done = "is done" if cursor.rowcount > 0 else "is refused: nothing meets its condition"
            Here.world.tell(self.name, f"a write of {session.client.host.name}, {sql[:60]}, {done}")
        return (len(rows) if word == "SELECT" else cursor.rowcount), rows

    # Waiting

    def lock_rows(self, seconds: float) -> None:
        """Another program locks all rows of the table."""
        if self.up:
            self._programs += 1
            Here.world.tell("mysql", f"locks the table for {seconds:.3f} s")
            Here.world.at(Here.world.now + seconds, self._unlock_rows, self.starts)

    def _unlock_rows(self, starts: int) -> None:
        if starts == self.starts:
            self._programs -= 1
        while self._writers and not self._programs:
            self._go_on(self._writers.pop(0))

    def _pause(self, session: Session, waits: WaitsError) -> None:
        if waits.name is None:
            self._writers.append(session)
        else:
            self._locks.waiting.append(Wanted(session.pid, (waits.name,), shared=False, since=session.began))
        until = self.clock.boottime() + waits.seconds
        Here.world.at(self.clock.true(until), self._time_out, session, session.number)

    def _stop_waiting(self, session: Session) -> None:
        self._locks.leave(session.pid)
        if session in self._writers:
            self._writers.remove(session)

    def _time_out(self, session: Session, number: int) -> None:
        if session.number != number or session.pid not in self.sessions:
            return
        waits_for_rows = session in self._writers
        self._stop_waiting(session)
        if not session.is_busy:
            self.end(session)
        elif waits_for_rows:
            self._over(session, ("error", LOCK_WAIT, "Lock wait timeout exceeded; try restarting transaction"))
        else:
            session.given.append(0)
            self._go_on(session)

    def _grant(self) -> None:
        """Those in the queue of a lock who can have it now get it."""
        while wanted := self._locks.next():
            self._locks.leave(wanted.pid)
            self._locks.turn, before = wanted.pid, self._locks.turn
            self._go_on(self.sessions[wanted.pid])
            self._locks.turn = before

    # Functions

    def _repeatable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """One that gives the same again when a statement that has waited is begun anew."""

        def call(*values: Any) -> Any:
            session = self._session
            session.next += 1
            if session.next > len(session.given):
                try:
                    session.given.append(function(*values))
                except (WaitsError, SqlError) as problem:
                    self._problem = problem
                    raise
            return session.given[session.next - 1]

        return call

    def _holders(self, name: str) -> list[int]:
        return [pid for key, _, pid in self._locks.held if key == (name,)]

    def _get_lock(self, name: str, seconds: float) -> int:
        if len(name) > LONGEST_NAME:
            raise SqlError(WRONG_NAME, f"Incorrect user-level lock name '{name}'.")
        if self._locks.take(self._session.pid, (name,), shared=False, of_transaction=False):
            return 1
        if not seconds:
            return 0
        raise WaitsError(name, seconds if seconds > 0 else INFINITE)

    def _release_lock(self, name: str) -> int | None:
        holders = self._holders(name)
        return int(self._locks.give_back(self._session.pid, (name,), shared=False)) if holders else None
