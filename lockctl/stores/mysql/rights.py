"""What a user needs to be granted in MySQL and MariaDB, as statements have it. Loaded when a right is missing."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.mysql.session import Session
    from lockctl.wire.deadline import Deadline

RIGHTS = "SELECT, INSERT, UPDATE, DELETE"  # that each table of lockctl needs


def quoted(name: str) -> str:
    """The name of a database, or a part of that of an account, whatever characters it has."""
    return printable("`" + name.replace("`", "``") + "`")


def grant(database: str, table: str, account: str) -> str:
    """The statement that allows an *account*, see :func:`account_of`, all that is needed."""
    return f"GRANT {RIGHTS} ON {quoted(database)}.{table} TO {account}"


def account_of(session: Session, deadline: Deadline) -> str:
    """Whom the server takes us for; ``USER`` if it does not say."""
    try:
        ((account,),) = session.ask("SELECT CURRENT_USER()", deadline)
    except (BackendUnavailable, ValueError):
        return "USER"
    user, _, host = str(account).rpartition("@")
    return f"{quoted(user)}@{quoted(host)}"
