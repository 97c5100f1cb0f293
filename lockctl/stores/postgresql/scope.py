"""The two ways to hold an advisory lock: for a session, or for one long transaction.

A session's lock is the usual one. Behind a pooler that lends server processes for single transactions
only a transaction keeps its process, so there the lock is one of a transaction that stays open as long as
the job runs. It reads no data and gets no transaction id, so it does not hold back vacuum.

In both the server ends a session that is silent for longer than the lease, and with it the lock. Nothing
else may end it earlier: keepalives that were set shorter at the server are set to the lease as well.
"""

# ruff: noqa: S608 - numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql.layout import ANY, Key
from lockctl.stores.postgresql.pooler import WHICH, explained
from lockctl.stores.postgresql.session import Session, SqlError, keepalives
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline

LONGEST_TTL = 2_000_000.0  # seconds: the server counts milliseconds in 32 bits
DEAD_CLIENT = 500  # milliseconds in which the server notices, within a statement, that the connection was closed
IDLE_SESSION = (
    140000  # the server version that can end an idle session, and looks after the connection within a statement
)
FREED = "freed"
LOCKS = "pg_catalog.pg_lock_status()"  # what the view pg_locks shows; a view is locked itself by who reads it
# takes the lock by an expression, and whether that got it, for the statements that follow in the same request
TRY = "SELECT pg_catalog.set_config('lockctl.turn', CASE WHEN {} THEN 'yes' ELSE 'no' END, true); "
HAS_GOT = "pg_catalog.current_setting('lockctl.turn', true) = 'yes'"
TRANSACTION_LIMIT = 170000  # the server version that can end a long transaction


class Scope(Value):
    """One way to hold a lock, as statements."""

    word: str  # as in the URL
    opening: str  # the settings follow it
    setting: str
    idle_limit: str  # the setting that is the lease
    take: str
    wait: str
    undo: str
    free: str
    mark: str  # what is true as long as the session, or the transaction, keeps the lock; for a variant and a number
    marked: str  # whether that is still so


class Ways(Value):
    """How one claim takes and keeps its lock, as statements.

    *take*, *turn* and *line* answer with one row: the server process, then what is true if the lock is ours now. In the
    row of *take* a third one is true if it may have been refused because others share it.
    """

    take: str  # of one who did not wait, and passes by nobody who does
    turn: str  # of the first who waits
    line: str  # the same, in the server's own queue; empty: not possible
    undo: str  # give back what was taken, and nothing else that the session has; a slot's number takes the place of {}
    free: str
    holds: str  # a condition, which reads all locks of the cluster
    mark: str  # to be done once the lock is held; true
    marked: (
        str  # the same condition as *holds* from then on, whatever others hold; a slot's number takes the place of {}
    )
    telling: str = ""  # tells the first who waits that the lock was given back; empty: not possible
    room: str = "1"  # how many more can have the lock now, a number
    try_and_draw: str = ""  # the turn, after which the same request draws the token; empty: not possible


SESSION = Scope(
    word="session",
    opening="",
    setting="SET",
    idle_limit="idle_session_timeout",
    take="pg_catalog.pg_try_advisory_lock",
    wait="pg_catalog.pg_advisory_lock",
    undo="SELECT pg_catalog.pg_advisory_unlock{}({})",
    free="SELECT pg_catalog.pg_advisory_unlock_all()",  # however often the session has it
    # the session has it twice: it gives it back once, which tells whether it had it, and takes it again
    mark="pg_catalog.pg_try_advisory_lock{0}({1})",
    marked="CASE WHEN pg_catalog.pg_advisory_unlock{0}({1})"
    " THEN pg_catalog.pg_try_advisory_lock{0}({1}) ELSE false END",
)
TRANSACTION = Scope(
    word="transaction",
    opening="BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    setting="SET LOCAL",
    idle_limit="idle_in_transaction_session_timeout",
    take="pg_catalog.pg_try_advisory_xact_lock",
    wait="pg_catalog.pg_advisory_xact_lock",
    undo="ROLLBACK TO SAVEPOINT lockctl",
    free="ROLLBACK",
    # a setting that ends with whatever ends the lock
    mark="pg_catalog.set_config('lockctl.holds', 'yes', true) = 'yes'",
    marked="pg_catalog.current_setting('lockctl.holds', true) = 'yes'",
)
SCOPES = {scope.word: scope for scope in (SESSION, TRANSACTION)}


def check_ttl(ttl: float) -> None:
    """Refuse a lease for which there are no settings. Raises ``ConfigError``."""
    if not 0 < ttl < LONGEST_TTL:
        raise ConfigError(f"postgresql: a ttl of {ttl:.0f} s is too long: at most {LONGEST_TTL:.0f} s")


def prepare(scope: Scope, session: Session, ttl: float, application: str, deadline: Deadline) -> None:
    """Make *session* one that the server ends after *ttl* seconds of silence. Raises as ``Session.ask``."""
    lease = round(ttl * 1000 + 0.5)  # milliseconds
    idle, interval = keepalives(ttl)
    settings = {"statement_timeout": "0", "lock_timeout": "0", "application_name": f"'{application}'"}
    if scope is SESSION:
        settings["default_transaction_isolation"] = "'read committed'"
        settings["default_transaction_read_only"] = "off"
    if scope is TRANSACTION or session.version >= IDLE_SESSION:
        settings[scope.idle_limit] = str(lease)
    if session.version >= TRANSACTION_LIMIT:  # every statement is a transaction, too
        settings["transaction_timeout"] = "0"
    wishes = {
        "tcp_keepalives_idle": idle,
        "tcp_keepalives_interval": interval,
        "tcp_keepalives_count": 4,
        "tcp_user_timeout": lease + 1000,
    }
    if session.version >= IDLE_SESSION:
        wishes["client_connection_check_interval"] = DEAD_CLIENT
    needed = [f"{scope.setting} {name} = {content}" for name, content in settings.items()]
    wished = [f"{scope.setting} {name} = {number}" for name, number in wishes.items()]
    try:
        if scope is SESSION:
            _prepare_session(session, needed, wished, deadline)
        else:
            _begin_transaction(session, [scope.opening, *needed], wished, deadline)
    except BackendUnavailable as failure:
        raise explained(failure) from None


def _prepare_session(session: Session, needed: list[str], wished: list[str], deadline: Deadline) -> None:
    try:
        session.pid = _pid_after([*needed, *wished], session, deadline)
    except SqlError:  # not every system under a server has what is wished; all of it was undone
        session.pid = _pid_after(needed, session, deadline)
        try:
            session.ask("; ".join(wished), deadline)
        except SqlError:
            pass


def _begin_transaction(session: Session, needed: list[str], wished: list[str], deadline: Deadline) -> None:
    # a refused wish does not end the transaction, and what is taken later can be given back without its end
    session.pid = _pid_after(needed, session, deadline)
    try:
        session.ask(
            "; ".join(["SAVEPOINT lockctl", *wished, "RELEASE SAVEPOINT lockctl", "SAVEPOINT lockctl"]), deadline
        )
    except SqlError:
        session.ask("ROLLBACK TO SAVEPOINT lockctl", deadline)


def _pid_after(statements: list[str], session: Session, deadline: Deadline) -> int:
    """The server process: a pooler may have given a transaction another one than the statements before it."""
    return int(session.row("; ".join([*statements, WHICH]), 1, deadline)[0])


def alone(scope: Scope, key: Key, queue: Key) -> Ways:
    """The ways of a claim that shares its lock with nobody."""
    number = key.text
    return Ways(
        take="SELECT pg_catalog.pg_backend_pid(), t.taken, NOT t.taken AND EXISTS"
        f" (SELECT FROM {LOCKS} l WHERE l.granted AND l.mode = 'ShareLock' AND {is_key(key)})"
        f" FROM (SELECT CASE WHEN {nobody_waits(queue)} THEN {scope.take}({number}) ELSE false END AS taken"
        " OFFSET 0) t",
        turn=f"SELECT pg_catalog.pg_backend_pid(), {scope.take}({number})",
        # what the transaction of a lock writes nobody would see before its end
        try_and_draw=TRY.format(f"{scope.take}({number})") if scope is SESSION else "",
        line=f"SELECT pg_catalog.pg_backend_pid(), {scope.wait}({number}) IS NOT NULL",
        undo=scope.undo.format("", number),
        free=scope.free,
        holds=holds(key),
        mark=scope.mark.format("", number),
        marked=scope.marked.format("", number),
        telling=telling(scope, queue),
    )


def nobody_waits(queue: Key) -> str:
    """The condition that nobody has a ticket for a lock."""
    return f"NOT EXISTS (SELECT FROM {LOCKS} l WHERE l.granted AND {is_key(queue)})"


def wake(queue: Key, word: str = "") -> str:
    """The statement that tells the first who waits to look; ``FREED``: that the lock was given back."""
    return (
        f"SELECT pg_catalog.pg_notify('lockctl_' || q.pid, '{word}') FROM"
        f" (SELECT l.pid FROM {LOCKS} l WHERE l.granted AND {is_key(queue)} ORDER BY l.objid::bigint LIMIT 1) q"
    )


def telling(scope: Scope, queue: Key) -> str:
    """For ``Ways``: what a transaction says nobody would hear before its end."""
    return wake(queue, FREED) if scope is SESSION else ""


def holds(key: Key) -> str:
    """The condition that the session that asks holds *key*; no table is needed for it, which could be locked."""
    return (
        f"EXISTS (SELECT FROM {LOCKS} l WHERE l.pid = pg_catalog.pg_backend_pid() AND l.granted"
        f" AND l.locktype = 'advisory' AND {_numbers(key)})"
    )


def is_key(key: Key | None) -> str:
    """The condition that a row *l* of pg_locks is about *key*, or about any advisory lock of this database."""
    condition = (
        "l.locktype = 'advisory' AND l.database ="
        " (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"
    )
    if key is None:
        return condition
    return f"{condition} AND {_numbers(key)}"


def _numbers(key: Key) -> str:
    second = "" if key.objid == ANY else f" AND l.objid = {key.objid}"
    return f"l.classid = {key.classid}{second} AND l.objsubid = {key.objsubid}"
