"""A server of PostgreSQL, as far as lockctl talks to it: sessions with their settings, transactions and locks.

Messages are executed one after the other, each as a whole. Who does not ask for it does not wait until the disk has
what is committed, and a server that goes down forgets it. A session ends when its client closes the connection, when it
is silent for longer than it said, or by another's hand, and is gone a moment later.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from typing import TYPE_CHECKING, Any

from tests.simulation.plan import KEPT
from tests.simulation.postgresql_functions import DEFAULTS, functions
from tests.simulation.postgresql_program import Program
from tests.simulation.postgresql_session import Client, Session, TableIsLockedError, WaitsError
from tests.simulation.postgresql_sql import SqlError, Statement, Tables, refusal, statements
from tests.simulation.server_locks import Locks, Wanted
from tests.simulation.server_sessions import SessionServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.network import Host
    from tests.simulation.sockets import Socket

VERSION = 150004
LONGEST_END = 0.02  # seconds until the process of a session is gone
FLUSHED = 0.6  # seconds until a commit is on the disk that nobody waited for: three times wal_writer_delay
DEAD_CLIENT = 0.5  # seconds in which a session that waits for a lock sees that its client has gone
WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) ")
COMMENT = re.compile(r"/\*.*?\*/ ")
TABLES = "lockctl_"  # what their names begin with
SYNTAX = "42601"
NO_LOCK_IN_TIME, FAILED_BLOCK, ENDED_BY_ADMINISTRATOR, TOO_SILENT = "55P03", "25P02", "57P01", "57P05"
STARTING, FULL = ("the database system is starting up", "57P03"), ("sorry, too many clients already", "53300")
REFUSALS = (
    ("could not extend file: No space left on device", "53100"),
    ("cannot execute UPDATE in a read-only transaction", "25006"),
    ("deadlock detected", "40P01"),
)
NO_RIGHT = "permission denied for table lockctl_fence", "42501"


class PostgresServer(SessionServer):
    """One server."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.locks = Locks()
        self.session: Session
        self.problem: Exception | None = None
        self._starts_until = 0.0  # true time: before, it recovers what it has written, and lets nobody in
        self._on_disk: Any = None  # what the tables have there, if that is not what they have
        self._locks_of_tables = 0  # of other programs
        self._for_tables: list[tuple[Session, int]] = []  # who waits for their end, and the number of the pause
        self.tables = Tables(functions(weakref.proxy(self)))  # SQLite keeps them where no rubbish is looked for

    def memory(self) -> Any:
        """See ``Server``."""
        return self.tables.memory()

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.tables.remember(memory)
        self._on_disk = None

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        starting = seconds * Here.world.chance() if kept == KEPT else 0.0
        if kept == KEPT and self._on_disk is not None:
            self.remember(self._on_disk)
        super().fail(seconds - starting, kept, old)
        self._starts_until = Here.world.now + seconds
        self.locks = Locks()

    def hears(self, session: Session) -> bool:
        """See ``SessionServer``."""
        return self.tells or isinstance(session.client, Program)

    def take(self, message: Any, socket: Socket) -> None:
        """See ``SocketServer``."""
        kind, *content = message
        if kind == "start":
            if self.let_in(socket):
                socket.say(("ready", self.new_session(socket, content[0]).pid, VERSION))
            return
        known = self.of(socket)
        if known is None:
            return
        if kind == "end":
            self.end(known)
        else:
            self.begin(known, *content)

    def let_in(self, socket: Socket) -> bool:
        """Whether a client gets a connection; else it is told why not."""
        is_starting = Here.world.now < self._starts_until
        if is_starting or self.refuses_now():
            text, code = STARTING if is_starting else FULL
            socket.say(("error", f"FATAL:  {text}", code, True))
            socket.hang_up()
            return False
        return True

    def new_session(self, client: Client, application: str) -> Session:
        """A server process for a client."""
        self.last_pid += 1
        session = Session(self.last_pid, client, application, self.clock.wall())
        self.sessions[session.pid] = session
        return session

    def seen_after(self, session: Session) -> float:
        """See ``SessionServer``."""
        return DEAD_CLIENT if session.is_busy else LONGEST_END

    def terminate(self, pid: int) -> bool:
        """End a session by an administrator's hand, a moment later; whether there is one."""
        session, world = self.sessions.get(pid), Here.world
        if session is None:
            return False
        text = "terminating connection due to administrator command"
        world.at(world.now + world.chance() * LONGEST_END, self.end, session, text, ENDED_BY_ADMINISTRATOR)
        return True

    def kill(self, host: Host) -> None:
        """End all sessions of a host by an administrator's hand."""
        self.cut_off.append(Here.world.now)
        for session in [each for each in self.sessions.values() if getattr(each.client, "host", None) is host]:
            self.terminate(session.pid)

    def alive(self) -> list[Session]:
        """The sessions that have not ended, nor been silent for too long."""
        now = self.clock.boottime()
        return [each for each in self.sessions.values() if each.ends_at > now]

    def end(self, session: Session, text: str = "", code: str = "") -> None:
        """The session is gone, and with it its locks."""
        if self.sessions.pop(session.pid, None) is None:
            return
        Here.world.tell(self.name, f"session {session.pid} ends {code} {session.settings['application_name']}")
        self.locks.end(session.pid)
        session.number += 1
        if code:
            session.client.say(("error", f"FATAL:  {text}", code, True))
        session.client.hang_up()
        self._grant()

    # Silence

    def _rest(self, session: Session) -> None:
        """The session waits for its client."""
        session.is_busy = False
        session.number += 1
        session.changed = self.clock.wall()
        name = "idle_in_transaction_session_timeout" if session.in_block else "idle_session_timeout"
        seconds = float(session.setting(name) or 0) / 1000
        session.ends_at = float("inf")
        if seconds:
            session.ends_at = self.clock.boottime() + seconds
            Here.world.at(
                self.clock.true(session.ends_at), self._silent, session, session.number, session.changed + seconds
            )

    def _silent(self, session: Session, number: int, until: float) -> None:
        """The alarm rings. A server whose wall clock went back sets it once more."""
        if session.number != number or session.pid not in self.sessions:
            return
        left = until - self.clock.wall()
        if left > 0.001:
            session.ends_at = self.clock.boottime() + left
            Here.world.at(self.clock.true(session.ends_at), self._silent, session, number, until)
        else:
            self.end(session, "terminating connection due to idle-session timeout", TOO_SILENT)

    # Statements

    def begin(self, session: Session, sql: str, values: tuple[Any, ...] | None) -> None:
        """Execute a message of its client."""
        session.query = sql
        session.values = list(values or ())
        session.found = (None, [])
        session.is_busy = True
        session.ends_at = float("inf")
        session.number += 1
        try:
            session.rest = list(statements(COMMENT.sub("", sql, count=1), has_values=values is not None))
        except Exception as bug:
            self._refuse(session, self._unknown(bug, sql))
        else:
            self._go_on(session)

    def _unknown(self, bug: Exception, sql: str) -> SqlError:
        """What it says to a statement that it cannot execute: one of lockctl is wrong, or is not known here."""
        Here.world.note_bug(bug, f"{self.name}, {' '.join(sql.split())}")
        return SqlError("syntax error", SYNTAX)

    def _go_on(self, session: Session) -> None:
        """Execute what is left of the message, and answer."""
        self.session = session
        writes = any(each.values for each in session.rest)
        before = None
        if writes:
            before = self.memory() if self._on_disk is None else self._on_disk
            self.tables.sqlite.execute("BEGIN")
        try:
            while session.rest:
                session.found = self._execute(session, session.rest[0])
                del session.rest[0]
        except WaitsError as waits:
            self._pause(session, waits)
            return
        except SqlError as error:
            if writes:
                self.tables.sqlite.execute("ROLLBACK")
            self._refuse(session, error)
            return
        except Exception as bug:
            if self.tables.sqlite.in_transaction:
                self.tables.sqlite.execute("ROLLBACK")
            self._refuse(session, self._unknown(bug, session.query))
            return
        if writes:
            self.tables.sqlite.execute("COMMIT")
            self._flush(session, before)
        self._over(session)
        session.client.say(("rows", *session.found))

    def _flush(self, session: Session, before: Any) -> None:
        """A commit is on the disk at once, with all others, or in a while."""
        self._on_disk = None
        if (session.setting("synchronous_commit") or DEFAULTS["synchronous_commit"]) == "off":
            self._on_disk = before
            Here.world.at(Here.world.now + FLUSHED, self._is_flushed, before)

    def _is_flushed(self, before: Any) -> None:
        if self._on_disk is before:
            self._on_disk = None

    def _over(self, session: Session) -> None:
        """The message was executed, or refused."""
        if not session.in_block:
            session.local, session.saved = {}, []
            self.locks.back_to(session.pid, {})
        self._rest(session)
        self._grant()

    def _refuse(self, session: Session, error: SqlError) -> None:
        self.locks.leave(session.pid)
        session.has_failed = session.in_block
        self._over(session)
        session.client.say(("error", f"ERROR:  {error}", error.code, False))

    def _execute(self, session: Session, statement: Statement) -> tuple[tuple[str, ...] | None, list[tuple[Any, ...]]]:
        word = statement.last.partition(" ")[0]
        if session.has_failed and word != "ROLLBACK":
            raise SqlError(
                "current transaction is aborted, commands ignored until end of transaction block", FAILED_BLOCK
            )
        if word not in ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"):
            session.command(statement.last, self.locks)
            return None, []
        # what it writes nobody would see before its end, and rows would be locked until then: not in this model
        assert not session.in_block or (word == "SELECT" and not statement.parts), statement
        if self._locks_of_tables and any(TABLES in text for text in (statement.last, *map(str, statement.parts))):
            raise TableIsLockedError
        if WRITES.search(" ".join((statement.last, *(text for _, text, _ in statement.parts)))) and self.refuses_now():
            raise SqlError(*(NO_RIGHT if self.denies else REFUSALS[int(Here.world.chance() * len(REFUSALS))]))
        if self.locks.changed and "pg_locks" in statement.looks_at:
            self.tables.show("pg_locks", self.locks.rows())
        if "pg_stat_activity" in statement.looks_at:
            self.tables.show("pg_stat_activity", [each.activity() for each in self.sessions.values()])
        values = list(session.values)
        self.problem = None
        try:
            found = self.tables.execute(statement, values)
        except sqlite3.Error as error:
            if self.problem is not None:
                raise self.problem from None
            raise refusal(error, statement) from error
        session.values = values
        return found

    # Waiting

    def _pause(self, session: Session, waits: WaitsError) -> None:
        """A statement that waits is begun anew when it can go on."""
        world = Here.world
        if self.tables.sqlite.in_transaction:
            self.tables.sqlite.execute("ROLLBACK")
        number = session.number
        most = float(session.setting("lock_timeout") or 0) / 1000
        if isinstance(waits, TableIsLockedError):
            self._for_tables.append((session, number))
            if most:
                world.at(world.now + most, self._time_out, session, number)
            return
        if waits.key is None:
            del session.rest[0]
            world.at(world.now + waits.seconds, self._resume, session, number)
            return
        self.locks.waiting.append(Wanted(session.pid, *waits.key, self.clock.wall()))
        self.locks.changed = True
        if most:
            world.at(world.now + most, self._time_out, session, number)

    def lock_tables(self, seconds: float) -> None:
        """Another program locks the tables of lockctl."""
        if self.up:
            Here.world.tell(self.name, f"the tables are locked for {seconds:.3f} s")
            self._locks_of_tables += 1
            Here.world.at(Here.world.now + seconds, self._unlock_tables)

    def _unlock_tables(self) -> None:
        self._locks_of_tables -= 1
        while self._for_tables and not self._locks_of_tables:
            self._resume(*self._for_tables.pop(0))

    def _resume(self, session: Session, number: int) -> None:
        if session.number == number and session.pid in self.sessions:
            self._go_on(session)

    def _time_out(self, session: Session, number: int) -> None:
        if session.number == number and session.pid in self.sessions:
            self._refuse(session, SqlError("canceling statement due to lock timeout", NO_LOCK_IN_TIME))

    def _grant(self) -> None:
        """Those in the server's queue who can have a lock now get it."""
        while wanted := self.locks.next():
            self.locks.waiting.remove(wanted)
            self.locks.turn, before = wanted.pid, self.locks.turn
            self._go_on(self.sessions[wanted.pid])
            self.locks.turn = before
