"""Finding out whether a connection keeps its server process, or a pooler gives every statement to another.

A pooler announces a server process that does not exist, so that one is there is known for certain. What
it does with connections it does not say. So a second connection opens a transaction, which pins a server
process, while the first is idle. If connections share processes, the second is given the one that the
first used last, or the first finds itself on another one afterwards. And if no process is free for the
second, but the first is served although it came later, the first has a process of its own.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql.session import Session, SqlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline

ROUNDS = 25  # other clients of the pooler can hide the exchange in some, hardly in all; each takes a millisecond
FREE_PROCESS = 0.3  # seconds in which a pooler that has a free process gives it
PIN = "BEGIN; SELECT pg_catalog.pg_backend_pid()"
WHICH = "SELECT pg_catalog.pg_backend_pid()"


def is_pooled(session: Session) -> bool:
    """Whether something between us and the server answered in its name."""
    return session.announced_pid != session.pid


def lends(session: Session) -> ConfigError:
    """The error that says that the session has no server process of its own."""
    return ConfigError(
        f"{session.where}: a pooler that gives every transaction another server process cannot hold a"
        " session's lock: connect past it, set it to session pooling, or say scope=transaction in the URL"
    )


def check_owns_process(session: Session, other: Session, deadline: Deadline) -> None:
    """Return if *session* keeps its server process until it is closed; raises ``ConfigError`` if not.

    *other* is a second connection to the same pooler, closed when this returns.
    """
    try:
        for _ in range(ROUNDS):
            found = _pinned(other, deadline)
            if found == session.pid or session.row(WHICH, 1, deadline)[0] != session.pid:
                raise lends(session)
            if found is None:
                return
            other.ask("ROLLBACK", deadline)
    finally:
        other.close()


def explained(failure: BackendUnavailable) -> BackendUnavailable | ConfigError:
    """*failure*, or what it means when it came from a pooler that allows no transactions."""
    if "statement pooling" not in str(failure):
        return failure
    return ConfigError(f"{failure}: connect past the pooler, or set it to session or transaction pooling")


def _pinned(other: Session, deadline: Deadline) -> int | None:
    other.send(PIN)
    try:
        return int(other.finish(deadline.sooner(FREE_PROCESS))[0][0])
    except SqlError as error:
        raise explained(error) from None
    except BackendUnavailable as failure:
        if other.pending and deadline.left() > 0:
            return None
        raise explained(failure) from None
