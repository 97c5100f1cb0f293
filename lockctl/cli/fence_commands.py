"""The verbs of ``lockctl fence`` for click."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lockctl.cli.parameters import CommandWord, Group, Words

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., int]

DIALECTS = ("postgresql", "sqlite", "mysql")  # of `fence sql`


@click.group("fence", cls=Group)
def fence_() -> None:
    """Have a resource refuse the tokens of holders that have been replaced."""


TO_RESOURCE = (
    click.option("--store", metavar="URL", help="Where the mark is; RESOURCE is then a name in it."),
    click.option("--timeout", metavar="DURATION", help="How long the store may take.  [default: 10s]"),
)
OWN_TOKEN = (
    click.option("--token", metavar="N", help="The token to show; without it: $LOCKCTL_TOKEN."),
    click.option("--domain", metavar="TEXT", help="The domain of the token; without it: $LOCKCTL_TOKEN_DOMAIN."),
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def decorate(function: Command) -> Command:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


@fence_.command("advance")
@click.argument("resource", type=click.Path())
@with_options(*OWN_TOKEN, *TO_RESOURCE, AS_JSON)
def fence_advance(**given: Any) -> int:
    """Show the token at the start of a tenure, before the first read: older ones are refused from then on."""
    from lockctl.cli import fence

    return fence.advance(fence.Order(**given))


@fence_.command("check")
@click.argument("resource", type=click.Path())
@with_options(*OWN_TOKEN, *TO_RESOURCE, AS_JSON)
def fence_check(**given: Any) -> int:
    """Show the token again, right before a write: 0 if it is still the newest, 77 if not."""
    from lockctl.cli import fence

    return fence.advance(fence.Order(**given))


@fence_.command("show")
@click.argument("resource", type=click.Path())
@with_options(*TO_RESOURCE, AS_JSON)
def fence_show(**given: Any) -> int:
    """Print the highest token that the resource has seen, as DOMAIN;TOKEN."""
    from lockctl.cli import fence

    return fence.show(fence.Order(**given))


@fence_.command("write")
@click.argument("resource", metavar="FILE", type=click.Path())
@with_options(*OWN_TOKEN, TO_RESOURCE[1])
def fence_write(**given: Any) -> int:
    """Replace FILE with stdin, whole or not at all, and only if the token is the newest."""
    from lockctl.cli import fence
    from lockctl.cli import fence_write as verb

    return verb.fence_write(fence.Order(store=None, **given))


@fence_.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("resource", type=click.Path())
@click.argument("words", nargs=-1, type=CommandWord(), metavar="[--] COMMAND [ARG]...")
@with_options(*OWN_TOKEN, *TO_RESOURCE)
def fence_exec(words: tuple[str, ...], **given: Any) -> int:
    """Run a command while nobody can advance the mark of the resource."""
    from lockctl.cli import fence
    from lockctl.cli import fence_exec as verb

    verb.fence_exec(fence.Order(**given), words)


@fence_.command("reset")
@click.argument("resource", type=click.Path())
@click.option("--token", metavar="N", help="Set the mark to this token; without it the mark is removed.")
@click.option("--domain", metavar="TEXT", help="The domain of that token.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where no terminal is.")
@with_options(*TO_RESOURCE, AS_JSON)
def fence_reset(**given: Any) -> int:
    """Set or remove the mark without a comparison: when a lock has moved to another backend for good."""
    from lockctl.cli import fence

    return fence.reset(fence.Order(**given))


@fence_.command("sql")
@click.option("--dialect", metavar="postgresql|sqlite|mysql", required=True, type=Words(DIALECTS), help="Which SQL.")
@click.option("--resource", metavar="NAME", help="The resource in the statements.  [default: stock]")
@click.option("--schema", metavar="NAME", help="The schema of the marks in PostgreSQL.  [default: public]")
def fence_sql(dialect: str, resource: str | None, schema: str | None) -> int:
    """Print the table of the marks, and what a database needs to check tokens by itself."""
    from lockctl.cli import fence

    return fence.print_sql(dialect, resource, schema)
