"""The tables that lockctl keeps, how they are made, and what a refused statement on them means.

Loaded when one is missing, is older than this program, or may not be written.
"""

# ruff: noqa: S608 - names of tables cannot be parameters of a statement

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.stores.postgresql.layout import FORBIDDEN, FRESH, NO_COLUMN, NO_TABLE, Names, quoted, text
from lockctl.stores.postgresql.session import Session, SqlError
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline


class Table(Value):
    """One table: what it is for, its columns and constraints, and what a user must be granted to use it."""

    word: str
    purpose: str
    columns: str
    rights: str


FENCE = Table(
    "lockctl_fence",
    "its tokens",
    'key text PRIMARY KEY, name text COLLATE "C", token bigint NOT NULL, owner text, document text, revocation text,'
    " taken_at timestamptz, rests_until timestamptz, success float8",
    "SELECT, INSERT, UPDATE",
)
HOLDER = Table(
    "lockctl_holder",
    "who shares a lock",
    "key text, owner text, token bigint NOT NULL, slots integer NOT NULL, document text, revocation text,"
    " taken_at timestamptz, PRIMARY KEY (key, owner)",
    "SELECT, INSERT, UPDATE, DELETE",
)
HISTORY = Table(
    "lockctl_history",
    "the history of its locks",
    "key text, started boolean, id bigint GENERATED ALWAYS AS IDENTITY, document text,"
    " noted_at timestamptz DEFAULT pg_catalog.clock_timestamp(), PRIMARY KEY (key, started, id)",
    "SELECT, INSERT, UPDATE, DELETE",  # rows are locked before they are deleted
)
TABLES = (FENCE, HOLDER, HISTORY)
NEW_COLUMNS = ("rests_until", "success")  # which the fence table of an older lockctl lacks
ALTER = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS rests_until timestamptz, ADD COLUMN IF NOT EXISTS success float8"
# the schemas with a table of tokens, and whether its name alone means that one; the catalog shows those of others, too
HOMES = (
    f"SELECT n.nspname::text, c.oid = pg_catalog.to_regclass('{FENCE.word}') FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    f" WHERE c.oid = pg_catalog.to_regclass('{FENCE.word}')"
    f" OR (c.relname = '{FENCE.word}' AND c.relkind = 'r' AND c.relpersistence <> 't'"
    " AND pg_catalog.current_schema() IS NOT NULL)"  # else none can be made, and the refusal says what is missing
    " ORDER BY 2 DESC NULLS LAST, 1 LIMIT 4"
)
NO_SCHEMA = "3F000"
EXISTS = ("42P07", "42710", "23505")  # somebody else was creating it at the same time
# a column is missing, of another type, or too small for what is to be written; an index is missing
WRONG_SHAPE = (NO_COLUMN, "42804", "42809", "42883", "42P10", "22003", "23502")


def mend(names: Names, session: Session, error: SqlError, sql: str, deadline: Deadline) -> None:
    """Make what *error* says is missing for *sql*. Raises what it means if that is not it, or is not allowed."""
    if error.code == NO_TABLE:
        table = concerned(error)
        create(session, table, _place(names, session, table, deadline), deadline)
    elif error.code == NO_COLUMN and any(name in str(error) for name in NEW_COLUMNS):
        statement = ALTER.format(names.table)
        try:
            session.ask(FRESH + statement, deadline)
        except SqlError as refusal:
            if refusal.code == FORBIDDEN:
                raise ConfigError(
                    f"{refusal}: the table is that of an older lockctl: have its owner run: {statement}"
                ) from None
            raise explained(names, refusal, session, statement) from None
    else:
        raise explained(names, error, session, sql) from None


def create(session: Session, table: Table, place: str, deadline: Deadline) -> None:
    """Make *table* at *place*, its name with or without a schema. Raises ``ConfigError`` if we may not."""
    statement = f"CREATE TABLE IF NOT EXISTS {place} ({table.columns})"
    try:
        session.ask(FRESH + statement, deadline)
    except SqlError as error:
        if error.code in EXISTS:
            return
        if error.code in (FORBIDDEN, NO_SCHEMA):
            user, home = _user(session), place.removesuffix(table.word).removesuffix(".")
            usage = f"GRANT USAGE ON SCHEMA {home or 'public'} TO {user}"
            usage = f"CREATE SCHEMA {home}; {usage}; " if home else f"{usage}, and if the table is not there: "
            raise ConfigError(
                f"{error}: lockctl keeps {table.purpose} in a table that it cannot create: have its owner run: "
                f"{usage if error.code == NO_SCHEMA else ''}{statement}; GRANT {table.rights} ON {place} TO {user}"
            ) from None
        raise


def explained(names: Names, error: SqlError, session: Session, sql: str) -> BackendUnavailable | ConfigError:
    """What it means that *sql*, a statement on tables, was refused."""
    table = concerned(error)
    if error.code == FORBIDDEN and table.word in str(error):
        place = names.named(table.word)
        more = ", DELETE" if table is FENCE and f"DELETE FROM {names.quoted}" in sql else ""
        return ConfigError(f"{error}: have its owner run: GRANT {table.rights}{more} ON {place} TO {_user(session)}")
    if error.code == FORBIDDEN and names.bare_schema is not None and printable(names.bare_schema) in str(error):
        return ConfigError(f"{error}: have its owner run: GRANT USAGE ON SCHEMA {names.schema} TO {_user(session)}")
    if error.code in WRONG_SHAPE:
        tables = [table] if table.word in str(error) else [each for each in TABLES if each.word in sql]
        places = " or ".join([names.named(each.word) for each in tables])
        return ConfigError(f"{error}: {places} is not the table that lockctl made, or holds what it did not write")
    return error


def concerned(error: SqlError) -> Table:
    """The table that *error* is about, which is named in every language."""
    return next((table for table in TABLES if table.word in str(error)), FENCE)


def homes(session: Session, deadline: Deadline) -> tuple[str | None, list[str]]:
    """The schema whose table of tokens is meant where none is named, if there is one; others that have such a table."""
    rows = [(text(name) or "", bool(is_meant)) for name, is_meant in session.ask(HOMES, deadline)]
    meant = next((name for name, is_meant in rows if is_meant), None)
    return meant, [name for name, is_meant in rows if not is_meant]


def named_in_url(schema: str) -> str:
    """The parameter of a URL that names *schema*."""
    from urllib.parse import quote

    return f"?schema={quote(schema, safe='')}"


def _place(names: Names, session: Session, table: Table, deadline: Deadline) -> str:
    """Where *table* is to be: where the tokens are, or two users would have tables that the other does not see.

    Raises ``ConfigError`` where the tokens are in a schema that this user's search_path does not reach.
    """
    if names.schema is not None:
        return names.named(table.word)
    meant, others = homes(session, deadline)
    if meant is not None:
        return Names(meant).named(table.word)
    if others:
        raise ConfigError(
            f"{session.where}: {FENCE.word} is already in the schema {' and '.join(map(printable, others))}, which this"
            f" user's search_path does not reach, and a second one would have other tokens for the same locks:"
            f" say {named_in_url(others[0])} in the URLs of all users"
        )
    return table.word


def _user(session: Session) -> str:
    return printable(quoted(getattr(session, "user", "lockctl")))
