"""What would break locks in PostgreSQL, asked through psycopg2 on a connection as locks use it."""

from __future__ import annotations

from lockctl.durations import format_duration
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.postgresql.address import SESSION, Address, from_url
from lockctl.stores.postgresql.layout import quoted
from lockctl.stores.postgresql.pooler import PIN, check_owns_process, is_pooled
from lockctl.stores.postgresql.protocol import Opened, connect
from lockctl.stores.postgresql.schema import FENCE, NO_SCHEMA, homes, named_in_url
from lockctl.stores.postgresql.session import Session, SqlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

    Facts = dict[str, str]

PATIENCE = 5.0  # seconds
SECOND = 1.0  # seconds in which a pooler that has a free connection to the server gives it
APPLICATION = "lockctl-doctor"
OLDEST = 140000  # the first with idle_session_timeout
FEW = 10  # connections that are left
SETTINGS = (
    *("server_version", "server_version_num", "fsync", "synchronous_commit", "synchronous_standby_names"),
    *("max_connections", "superuser_reserved_connections", "idle_session_timeout"),
)
FACTS = (
    "SELECT json_build_object({settings}, 'standby', pg_catalog.pg_is_in_recovery()::text,"
    " 'replicas', (SELECT count(*) FROM pg_catalog.pg_stat_replication)::text,"
    " 'used', (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')::text,"
    " 'of_database', (SELECT datconnlimit FROM pg_catalog.pg_database"
    " WHERE datname = pg_catalog.current_database())::text,"
    " 'of_role', (SELECT rolconnlimit FROM pg_catalog.pg_roles WHERE rolname = current_user)::text,"
    " 'role', current_user::text, 'database', pg_catalog.current_database()::text,"
    " 'schema', COALESCE(%s, pg_catalog.current_schema()::text))::text"
)
RIGHTS_OF = (
    "SELECT to_regclass(%s) IS NOT NULL,"
    " CASE WHEN to_regclass(%s) IS NOT NULL THEN pg_catalog.has_table_privilege(to_regclass(%s)::oid, 'SELECT')"
    " AND pg_catalog.has_table_privilege(to_regclass(%s)::oid, 'INSERT')"
    " AND pg_catalog.has_table_privilege(to_regclass(%s)::oid, 'UPDATE')"
    " ELSE pg_catalog.has_schema_privilege(%s, 'CREATE') END"
)

STANDBY = Check(
    "postgresql.standby", "The locks of a standby exclude nobody elsewhere.", "name the primary in the URL, or both"
)
POOLER = Check(
    "postgresql.pooler",
    "A pooler that gives each transaction another server process loses the session's lock.",
    "connect past the pooler, set pool_mode = session for this user, or say scope=transaction in the URL",
)
VERSION = Check(
    "postgresql.version",
    "Before version 14 the lock of a holder that was cut off is free only when the network closes the connection.",
    "upgrade the server to 14 or newer",
)
DURABILITY = Check(
    "postgresql.durability",
    "Commits that a crash or a failover loses take the newest tokens with them, which are then given again.",
    "ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET synchronous_commit = on; with standbys also"
    " ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf()",
)
TIMEOUTS = Check(
    "postgresql.timeouts",
    "lockctl sets a limit of its own for its sessions, but programs that hold the same lock in SQL lose it.",
    "ALTER ROLE {role} SET idle_session_timeout = 0",
)
CONNECTIONS = Check(
    "postgresql.connections",
    "Each lock and each waiter has a connection of its own, and one that is refused is a job that does not run.",
    "ALTER SYSTEM SET max_connections = {more} (and restart), ALTER ROLE {role} CONNECTION LIMIT -1,"
    " or ALTER DATABASE {database} CONNECTION LIMIT -1",
)
RIGHTS = Check(
    "postgresql.rights",
    "The token of a lock is in a table, which must be made once and then written.",
    "{make}GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}, or, as the owner of the table,"
    " GRANT {rights} ON {table} TO {role}",
)
SCHEMA = Check(
    "postgresql.schema",
    "Where the URL names no schema, the search_path of each user says which table of tokens is meant: two users can"
    " have different ones for the same locks, and tokens do not rise from one to the other.",
    "say {home} in the URLs of all users",
)
POOL = Check(
    "postgresql.pool",
    "With scope=transaction a holder has a transaction open all the time, and what it writes needs another one.",
    "give the pooler two server connections for each holder and each waiter (default_pool_size in pgbouncer.ini)",
)
CHECKS = (STANDBY, POOLER, POOL, VERSION, DURABILITY, TIMEOUTS, CONNECTIONS, RIGHTS, SCHEMA)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the server of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    address = from_url(url)
    if found.lacks("psycopg2", "postgresql", needed=True):
        return
    session = _connection(address, deadline)
    found.where = session.where
    try:
        found.measure(lambda: _clock(session, deadline))
        facts = _facts(session, address, deadline)
        _judge_server(facts, found)
        _judge_limits(facts, found)
        _judge_rights(session, facts, found, deadline)
        if address.schema is None and facts["schema"]:
            _judge_schema(session, found, deadline)
        _judge_pooler(session, address, found, deadline)
    finally:
        session.close()


def _connection(address: Address, deadline: Deadline) -> Opened:
    return connect(address, deadline.sooner(PATIENCE), APPLICATION, PATIENCE, identify=False)


def _clock(session: Session, deadline: Deadline) -> float:
    sql = "SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"
    return float(session.row(sql, 1, deadline.sooner(PATIENCE))[0])


def _facts(session: Session, address: Address, deadline: Deadline) -> Facts:
    import json

    settings = ", ".join(f"'{name}', pg_catalog.current_setting('{name}', true)" for name in SETTINGS)
    (text,) = session.row(FACTS.format(settings=settings), 1, deadline.sooner(PATIENCE), (address.schema,))
    facts = json.loads(bytes(text).decode("utf-8", "replace"))
    return {name: "" if content is None else str(content) for name, content in facts.items()}


def _judge_server(facts: Facts, found: Examination) -> None:
    found.words.update(role=quoted(facts["role"]), database=quoted(facts["database"]))
    standby = facts["standby"] == "true"
    found.judge(STANDBY, "standby" if standby else "primary", fails=standby)
    found.judge(VERSION, facts["server_version"], warns=int(facts["server_version_num"]) < OLDEST)
    unsafe, replicas = facts["fsync"] != "on", int(facts["replicas"])
    alone = replicas > 0 and not facts["synchronous_standby_names"]
    relaxed = facts["synchronous_commit"] in ("off", "local")
    seen = f"fsync {facts['fsync']}, synchronous_commit {facts['synchronous_commit']}"
    seen += " (lockctl waits for the disk whatever this says)" if relaxed else ""
    seen += f", {replicas} standbys, none of them synchronous" if alone else f", {replicas} standbys"
    found.judge(DURABILITY, seen, fails=unsafe, warns=alone or relaxed)


def _judge_limits(facts: Facts, found: Examination) -> None:
    idle = facts["idle_session_timeout"]
    found.judge(TIMEOUTS, f"idle_session_timeout {idle or 'unknown'}", warns=idle not in ("", "0"))
    limits = [int(facts[name]) for name in ("of_database", "of_role") if int(facts[name] or -1) >= 0]
    most = int(facts["max_connections"]) - int(facts["superuser_reserved_connections"])
    left = min([most - int(facts["used"]), *(limit - 1 for limit in limits)])
    found.words["more"] = str(2 * int(facts["max_connections"]))
    found.judge(CONNECTIONS, f"{left} left of {min([most, *limits])}", fails=left < 2, warns=left < FEW)


def _judge_rights(session: Session, facts: Facts, found: Examination, deadline: Deadline) -> None:
    schema = facts["schema"]
    table = f"{quoted(schema)}.{FENCE.word}" if schema else FENCE.word
    found.words.update(schema=quoted(schema) if schema else "SCHEMA", make="", table=table, rights=FENCE.rights)
    if not schema:
        found.judge(RIGHTS, "no schema of the search_path exists, or may be used", fails=True)
        return
    try:
        exists, allowed = session.row(RIGHTS_OF, 2, deadline.sooner(PATIENCE), (table,) * 5 + (schema,))
    except SqlError as refused:
        if refused.code == NO_SCHEMA:
            found.words["make"] = f"CREATE SCHEMA {quoted(schema)}; "
        found.judge(RIGHTS, str(refused), fails=True)
        return
    seen = f"{table} {'is there' if exists else 'is not there yet'}, and may {'' if allowed else 'not '}be"
    found.judge(RIGHTS, f"{seen} {'written' if exists else 'made'}", fails=not allowed)


def _judge_schema(session: Session, found: Examination, deadline: Deadline) -> None:
    meant, others = homes(session, deadline.sooner(PATIENCE))
    elsewhere = " and ".join(map(printable, others))
    found.words["home"] = named_in_url(meant or "".join(others[:1]))
    if meant is None:
        seen = f"{FENCE.word} is in {elsewhere}, out of reach of the search_path" if others else f"no {FENCE.word} yet"
    else:
        seen = f"{FENCE.word} is in {printable(meant)}" + (f", and another one in {elsewhere}" if others else " alone")
    found.judge(SCHEMA, seen, fails=meant is None and bool(others), warns=bool(others))


def _judge_pooler(session: Opened, address: Address, found: Examination, deadline: Deadline) -> None:
    session.pid = int(session.row("SELECT pg_catalog.pg_backend_pid()", 1, deadline.sooner(PATIENCE))[0])
    if not is_pooled(session):
        found.judge(POOLER, "none")
        return
    try:
        check_owns_process(session, _connection(address, deadline), deadline.sooner(PATIENCE))
    except ConfigError as problem:
        needed = address.scope == SESSION or "statement pooling" in str(problem)
        found.judge(POOLER, str(problem) if needed else "transactions share connections", fails=needed)
        if not needed:
            _judge_pool(session, _connection(address, deadline), found, deadline)
    except BackendUnavailable as failure:
        found.judge(POOLER, f"there is one, and how it lends is not known: {failure}", warns=True)
    else:
        found.judge(POOLER, f"there is one, which keeps the connection ({format_duration(PATIENCE)} looked at)")


def _judge_pool(session: Opened, other: Opened, found: Examination, deadline: Deadline) -> None:
    """Whether a second transaction can be open beside another one; ends *other*."""
    try:
        other.ask(PIN, deadline.sooner(PATIENCE))
        session.ask(PIN, deadline.sooner(SECOND))
    except BackendUnavailable as failure:
        found.judge(POOL, f"no second transaction while one is open: {failure}", fails=True)
    else:
        found.judge(POOL, "two transactions can be open at once")
    finally:
        other.close()
