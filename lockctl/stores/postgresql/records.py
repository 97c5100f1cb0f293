"""What is kept of a lock when nobody holds it: the last success in the fence's row, runs in a table of their own.

Loaded when a run has ended, or somebody asks.
"""

# ruff: noqa: S608 - names of tables cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents, history
from lockctl.stores.postgresql.layout import FRESH, NO_COLUMN, NO_TABLE, WRITES, Key, raw
from lockctl.stores.postgresql.session import Session, SqlError
from lockctl.stores.postgresql.tokens import SHORT, SINCE_EPOCH, Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant, Run
    from lockctl.stores.postgresql.connection import Observer
    from lockctl.wire.deadline import Deadline


def table(fence: Fence) -> str:
    """The table of runs, for statements with values."""
    return fence.named("lockctl_history").replace("%", "%%")


def last_success(observer: Observer, name: str, deadline: Deadline) -> float | None:
    """When the run began that was noted last, if any was. Raises as ``Session.ask``."""
    fence, key = observer.fence, observer.address.key_of(name)
    sql = f"SELECT success FROM {fence.quoted} WHERE key = %s"
    rows = observer.with_session(
        lambda session: fence.select(session, sql, (key.text,), deadline, (NO_COLUMN,)), deadline
    )
    return documents.seconds(rows[0][0]) if rows else None


def note_success(observer: Observer, grant: Grant, deadline: Deadline) -> None:
    """Note that a run under *grant* succeeded; durable when this returns. Raises ``ConfigError`` and as ``ask``.

    The session of the lock is left to its renewals.
    """
    address, fence, name = observer.address, observer.fence, grant.claim.name
    sql = (
        f"{WRITES}INSERT INTO {fence.quoted} AS fence (key, name, token, success) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (key) DO UPDATE SET success = EXCLUDED.success WHERE fence.success IS NULL"
        " OR fence.success < EXCLUDED.success OR fence.success >"  # what is no number is greater than all
        f" {SINCE_EPOCH.format('pg_catalog.clock_timestamp()')} + {documents.FAR_AHEAD}"
    )
    values = (address.key_of(name).text, address.full_name(name), grant.token, grant.at)
    observer.with_session(lambda session: fence.ask(session, sql, deadline, values), deadline)


def remember(observer: Observer, name: str, run: Run, deadline: Deadline) -> None:
    """Add a run, and remove what is too many; who removes at the same time passes by what another removes."""
    fence, key = observer.fence, observer.address.key_of(name)
    runs = table(fence)
    sql = (
        f"{FRESH}INSERT INTO {runs} (key, started, document) VALUES (%s, %s, %s);"
        f" DELETE FROM {runs} WHERE key = %s AND started = %s AND id IN (SELECT id FROM {runs}"
        " WHERE key = %s AND started = %s AND id <= (SELECT id FROM"
        f" {runs} WHERE key = %s AND started = %s ORDER BY id DESC OFFSET {history.KEPT} LIMIT 1)"
        f" FOR UPDATE SKIP LOCKED); SELECT 1 FROM {fence.quoted} WHERE key = %s"
    )
    which = (key.text, run.started)
    values = (*which, history.describe(run).decode(), *which, *which, *which, key.text)

    def write(session: Session) -> None:
        if not fence.ask(session, sql, deadline, values):
            fence.know(session, key, observer.address.full_name(name), deadline)

    observer.with_session(write, deadline)


def read_history(observer: Observer, name: str, deadline: Deadline) -> tuple[Run, ...]:
    """See ``Backend.history``. Raises as ``Session.ask``."""
    fence, key = observer.fence, observer.address.key_of(name)
    return observer.with_session(lambda session: _runs(fence, session, key, deadline), deadline)


def _runs(fence: Fence, session: Session, key: Key, deadline: Deadline) -> tuple[Run, ...]:
    found = []
    for started in (True, False):
        try:
            found += _newest(fence, session, key, started=started, most=history.KEPT, deadline=deadline)
        except SqlError as error:
            if error.code == NO_TABLE:
                return ()
            raise fence.explained(error, session, table(fence)) from None
    return history.in_order(found)


def last_run(fence: Fence, session: Session, key: Key, deadline: Deadline) -> Run | None:
    """The newest run that started, if that can be known."""
    try:
        found = _newest(fence, session, key, started=True, most=1, deadline=deadline)
    except SqlError:
        return None  # there is no such table, or we may not read it: a lock is looked at all the same
    return found[0] if found else None


def _newest(fence: Fence, session: Session, key: Key, *, started: bool, most: int, deadline: Deadline) -> list[Run]:
    sql = (
        f"SELECT {SHORT.format('document')} FROM {table(fence)} WHERE key = %s AND started = %s"
        f" ORDER BY id DESC LIMIT {most}"
    )
    found = [history.read(raw(row[0]) or b"") for row in session.ask(sql, deadline, (key.text, started))]
    return [run for run in found if run is not None]
