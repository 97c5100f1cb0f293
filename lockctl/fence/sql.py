"""SQL for programs that keep their marks in the database of their data: what ``lockctl fence sql`` prints.

What stands in comments behind ``--     `` is to be copied into programs and changed there; the rest is run as it is.
The stores of ``lockctl.fence.stores`` use the same table.
"""

from __future__ import annotations

from lockctl.errors import UsageError
from lockctl.fence.location import check_name
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.fence.mark import Mark

TABLE = "lockctl_mark"
SCHEMA = "public"  # of PostgreSQL, where the table is unless another one is named
LONGEST_SCHEMA = 63  # bytes: PostgreSQL cuts what is longer
EXAMPLE = "stock"  # the resource, and the table of the user, in what is printed
DIALECTS = ("mysql", "postgresql", "sqlite")  # each a file in ``dialects``


def text(dialect: str, resource: str | None = None, schema: str | None = None) -> str:
    """The table, and how to advance, to check and to refuse, in a dialect of ``DIALECTS``; ends with a newline.

    *resource* is the name that stands in the statements, ``stock`` if it is not given. *schema*, of PostgreSQL, is
    where table and function are, ``SCHEMA`` if it is not given. Raises ``UsageError``.
    """
    from importlib import import_module

    if dialect not in DIALECTS:
        raise UsageError(f"no SQL for {printable(dialect)!r}; there are: {', '.join(sorted(DIALECTS))}")
    if schema is not None and dialect != "postgresql":
        raise UsageError(f"--schema is for postgresql: in {dialect} the marks are in the database that runs this")
    where = SCHEMA if schema is None else _identifier(schema)
    name = EXAMPLE if resource is None else check_name(resource)
    whole: str = import_module(f"lockctl.fence.dialects.{dialect}").TEXT
    return whole.replace("<schema>", where).replace("<resource>", _quoted(dialect, name))


def pgoptions(mark: Mark, before: str) -> str:
    r"""``$PGOPTIONS`` with the settings that the trigger reads, for a program that uses libpq.

    What *before* says stays; of two settings of one name the server believes the last. A blank or a backslash in a
    value has a backslash before it, as the server wants (``pg_split_opts``).
    """
    stem = before.rstrip("\\")
    if (len(before) - len(stem)) % 2:
        before = before[:-1]  # it would keep our first blank from being one
    domain = "".join(f"\\{char}" if char == "\\" or char.isspace() else char for char in mark.domain)
    ours = f"-c lockctl.token={mark.token} -c lockctl.token_domain={domain}"
    return f"{before} {ours}" if before else ours


def _identifier(schema: str) -> str:
    """The name of a schema as SQL has it. Raises ``UsageError``."""
    too_long = len(schema.encode("utf-8", "surrogatepass")) > LONGEST_SCHEMA
    if not schema or too_long or not schema.isprintable() or "$" in schema:  # "$" could end the body of the function
        raise UsageError(
            f"{printable(schema[:40])!r} cannot name a schema: 1 to {LONGEST_SCHEMA} bytes of printable text, no $"
        )
    return '"' + schema.replace('"', '""') + '"'


def _quoted(dialect: str, name: str) -> str:
    """What stands between the quotes of a literal."""
    name = name.replace("'", "''")
    return name.replace("\\", "\\\\") if dialect == "mysql" else name
