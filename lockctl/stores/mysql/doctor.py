"""What would break locks in MySQL and MariaDB, asked through PyMySQL on a connection as locks use it."""

from __future__ import annotations

from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.mysql import address as addresses
from lockctl.stores.mysql.cell import NOW, TABLE, MysqlBackend
from lockctl.stores.mysql.rights import RIGHTS as NEEDED
from lockctl.stores.mysql.rights import account_of, quoted
from lockctl.stores.mysql.session import NO_TABLE, Session, SqlError
from lockctl.url import Url, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline

    Facts = dict[str, Any]

PATIENCE = 5.0  # seconds for one answer
FEW = 10  # connections that are left
SETTINGS = ("version", "read_only", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "max_connections")
# what a lock does with its table, in statements that touch no row
STATEMENTS = (
    f"SELECT data FROM {TABLE} WHERE FALSE",  # noqa: S608 - a constant
    f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE FALSE",  # noqa: S608
    f"UPDATE {TABLE} SET data = '' WHERE FALSE",  # noqa: S608
    f"DELETE FROM {TABLE} WHERE FALSE",  # noqa: S608
)
MAY_CREATE = (
    "SELECT COUNT(*) FROM"
    " (SELECT privilege_type FROM information_schema.user_privileges WHERE privilege_type = 'CREATE'"
    " UNION ALL SELECT privilege_type FROM information_schema.schema_privileges WHERE privilege_type = 'CREATE'"
    " AND DATABASE() LIKE table_schema) AS found"
)

READ_ONLY = Check(
    "mysql.read_only", "A replica refuses writes, and what it has may be old.", "name the primary in the URL"
)
DURABILITY = Check(
    "mysql.durability",
    "Commits that a crash loses take leases and the newest tokens with them.",
    "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 1, and the same in my.cnf",
)
IDLE = Check(
    "mysql.wait_timeout",
    "A connection that is ended while it is idle must be made anew for the next renewal.",
    "SET GLOBAL wait_timeout = 28800, and the same in my.cnf",
)
CONNECTIONS = Check(
    "mysql.connections",
    "A server without free connections refuses new jobs, and renewals that must connect again.",
    "SET GLOBAL max_connections = {more}, and the same in my.cnf",
)
RIGHTS = Check(
    "mysql.rights",
    "Without these rights a lock cannot be acquired.",
    f"GRANT {NEEDED}, CREATE ON {{database}}.* TO {{account}}",
)
CHECKS = (READ_ONLY, DURABILITY, IDLE, CONNECTIONS, RIGHTS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the server of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    take_params(url, MysqlBackend.parameters)
    address = addresses.from_url(url, {"prefix": ""})
    found.where = f"mysql at {address}"
    found.words["database"] = quoted(address.database)
    if found.lacks("pymysql", "mysql", needed=True):
        return
    session = Session(address, deadline.sooner(PATIENCE))
    try:
        found.words["account"] = account_of(session, deadline.sooner(PATIENCE))
        found.measure(lambda: float(session.ask(f"SELECT {NOW}", deadline.sooner(PATIENCE))[0][0]))
        _judge_settings(session, found, deadline)
        _judge_rights(session, found, deadline)
    finally:
        session.close()


def _judge_settings(session: Session, found: Examination, deadline: Deadline) -> None:
    (row,) = session.ask(f"SELECT {', '.join(f'@@global.{name}' for name in SETTINGS)}", deadline.sooner(PATIENCE))
    facts = dict(zip(SETTINGS, row, strict=True))
    read_only = bool(int(facts["read_only"]))
    found.judge(READ_ONLY, "read-only" if read_only else f"version {_text(facts['version'])}", fails=read_only)
    flushes, synchronised = int(facts["innodb_flush_log_at_trx_commit"]), int(facts["sync_binlog"])
    lost = flushes != 1 or (bool(int(facts["log_bin"])) and synchronised != 1)
    seen = f"innodb_flush_log_at_trx_commit {flushes}"
    seen += f", sync_binlog {synchronised}" if int(facts["log_bin"]) else ", no binary log"
    found.judge(DURABILITY, seen, warns=lost)
    ((idle,),) = session.ask("SELECT @@session.wait_timeout", deadline.sooner(PATIENCE))
    found.judge(IDLE, f"{idle} s", warns=int(idle) < found.ttl)
    used = int(session.ask("SHOW STATUS LIKE 'Threads_connected'", deadline.sooner(PATIENCE))[0][1])
    most = int(facts["max_connections"])
    found.words["more"] = str(2 * most)
    found.judge(CONNECTIONS, f"{used} of {most} in use", fails=used >= most, warns=most - used < FEW)


def _judge_rights(session: Session, found: Examination, deadline: Deadline) -> None:
    try:
        for statement in STATEMENTS:
            session.ask(statement, deadline.sooner(PATIENCE))
    except SqlError as refused:
        if refused.code != NO_TABLE[0]:
            found.judge(RIGHTS, str(refused), fails=True)
            return
        may = int(session.ask(MAY_CREATE, deadline.sooner(PATIENCE))[0][0]) > 0
        seen = f"{TABLE} is not there yet, and may {'' if may else 'not '}be made"
        found.judge(RIGHTS, seen, fails=not may)
    else:
        found.judge(RIGHTS, f"{TABLE} is there, and may be written")
    finally:
        session.ask("ROLLBACK", deadline.sooner(PATIENCE))


def _text(content: object) -> str:
    return printable(content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content))
