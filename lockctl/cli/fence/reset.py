"""``lockctl fence reset``: set or remove a mark without a comparison, after a question to a person."""

from __future__ import annotations

from typing import Any

import click

from lockctl.cli import exit_status
from lockctl.cli.fence.options import DOMAIN, RESOURCE, STORE, TIMEOUT, TOKEN, Arguments, document
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, YES, ask_person
from lockctl.cli.output import print_data
from lockctl.errors import ConfigError, UsageError
from lockctl.fence import Location, Mark
from lockctl.names import printable


@verb(
    "reset",
    examples={
        "lockctl fence reset /srv/stock.json": "After the lock has moved to another backend.",
        "lockctl fence reset stock --store redis://redis.example/0 --yes": "The same in a script.",
    },
)
@RESOURCE
@click.option("--token", metavar="N", type=TOKEN, help="Set the mark to this token; without it the mark is removed.")
@click.option("--domain", metavar="TEXT", type=DOMAIN, help="The domain of that token.")
@YES
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Set or remove the mark without comparing tokens.

    After a lock has moved to another backend for good.
    """
    arguments = Arguments(**given)
    mark = _new_mark(arguments)
    with arguments.location() as location:
        has = _differing(arguments, location, mark)
        if has is None:
            return exit_status.OK
        if not arguments.yes:
            _confirm(location, has, mark)
        location.store.reset(location.resource, mark, timeout=arguments.timeout)
    now = "has no mark any more" if mark is None else f"has the mark {mark} now"
    _tell(arguments, location, mark, now)
    return exit_status.OK


def _new_mark(arguments: Arguments) -> Mark | None:
    """The mark to set, of the options alone; ``None`` to remove it. Raises ``UsageError``."""
    if arguments.token is None and arguments.domain is None:
        return None
    if arguments.token is None or arguments.domain is None:
        raise UsageError("give both --token and --domain to set the mark, or neither to remove it")
    return Mark(arguments.domain, arguments.token)


def _differing(arguments: Arguments, location: Location, mark: Mark | None) -> str | None:
    """What the resource has instead of *mark*; ``None`` after telling that it has that mark."""
    try:
        before = location.store.current(location.resource, timeout=arguments.timeout)
    except ConfigError as damaged:
        return f"cannot be read ({damaged})"
    has = "has no mark" if before is None else f"has seen token {before.token} of {before.domain}"
    if before != mark:
        return has
    _tell(arguments, location, mark, f"{has}: nothing to do")
    return None


def _tell(arguments: Arguments, location: Location, mark: Mark | None, text: str) -> None:
    if arguments.as_json:
        print_data(document(arguments, location, None, mark, accepted=None))
    else:
        Talk(verbose=True)("info", f"{location.shown} {text}")


def _confirm(location: Location, has: str, mark: Mark | None) -> None:
    shown = printable(location.shown)
    wish = "Remove the mark? Then any token is accepted." if mark is None else f"Set it to {printable(str(mark))}?"
    if not ask_person(f"{shown} {has}", f"{shown} {printable(has)}", wish):
        raise UsageError("the mark was not reset")
