"""``lockctl fence sql``: what a database needs to check tokens by itself."""

from __future__ import annotations

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.output import print_data
from lockctl.fence import sql


@verb(
    "sql",
    examples={
        "lockctl fence sql --dialect sqlite | sqlite3 /srv/shop.db": "Create the table, once.",
        "lockctl fence sql --dialect postgresql --resource orders": "The statements for one resource.",
    },
)
@click.option(
    "--dialect",
    metavar="postgresql|sqlite|mysql",
    required=True,
    type=click.Choice(list(sql.DIALECTS)),
    help="The dialect of SQL.",
)
@click.option("--resource", metavar="NAME", help=f"Name of the resource in the statements.  [default: {sql.EXAMPLE}]")
@click.option("--schema", metavar="NAME", help=f"The schema of the marks in PostgreSQL.  [default: {sql.SCHEMA}]")
def command(dialect: str, resource: str | None, schema: str | None) -> int:
    """Print the SQL with which a database checks tokens itself.

    The table of marks, the conditional update, the triggers.
    """
    print_data(sql.text(dialect, resource, schema))
    return exit_status.OK
