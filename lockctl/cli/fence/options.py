"""What a verb of ``lockctl fence`` is told about a resource, and the options that say it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from lockctl.cli import exit_status
from lockctl.cli.output import print_data
from lockctl.cli.parameters import Parsed, positive_duration
from lockctl.errors import UsageError
from lockctl.fence import Location, Mark, Stale, locate, own_mark, parse_token
from lockctl.fence.mark import parse_domain
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Command = Callable[..., int]

TOKEN, DOMAIN = Parsed(parse_token), Parsed(parse_domain)
RESOURCE = click.argument("resource", type=click.Path(readable=False))
STORE = click.option("--store", metavar="URL", help="The store of the mark; RESOURCE is then a name in it.")
TIMEOUT = click.option(
    "--timeout",
    metavar="DURATION",
    type=Parsed(positive_duration("5s")),
    default="10s",
    show_default=True,
    help="Time limit for the store.",
)


def own_token(function: Command) -> Command:
    """The options that say which token is shown."""
    function = click.option(
        "--domain", metavar="TEXT", type=DOMAIN, help="The domain of the token; without it: $LOCKCTL_TOKEN_DOMAIN."
    )(function)
    return click.option("--token", metavar="N", type=TOKEN, help="The fencing token; without it: $LOCKCTL_TOKEN.")(
        function
    )


class Arguments(Value):
    """What was said about a resource on the command line."""

    resource: str
    store: str | None
    timeout: float  # seconds
    token: int | None = None
    domain: str | None = None
    as_json: bool = False
    yes: bool = False

    @property
    def scheme(self) -> str:
        """The kind of the store, for people and programs."""
        words = self.resource if self.store is None else self.store
        return words.partition("://")[0].lower() if "://" in words else "file"

    def location(self) -> Location:
        """Where the mark is; raises ``UsageError``, ``ConfigError``."""
        return locate(self.resource, self.store)

    def mark(self, environ: Mapping[str, str]) -> Mark:
        """The token that is shown: of the options, else of the environment. Raises ``UsageError``."""
        given = dict(environ)
        if self.token is not None:
            given["LOCKCTL_TOKEN"] = str(self.token)
            if self.domain is None and "LOCKCTL_TOKEN_DOMAIN" not in environ:
                raise UsageError("--token requires --domain, because LOCKCTL_TOKEN_DOMAIN is not set")
        if self.domain is not None:
            given["LOCKCTL_TOKEN_DOMAIN"] = self.domain
        return own_mark(given)


def show_token(arguments: Arguments) -> int:
    """Show the token; 0: accepted and recorded. Raises ``Stale`` after the document was printed, if one is wanted."""
    mark = arguments.mark(os.environ)
    with arguments.location() as location:
        try:
            seen = location.store.advance(location.resource, mark, timeout=arguments.timeout)
        except Stale as stale:
            if arguments.as_json:
                print_data(document(arguments, location, mark, stale.current, accepted=False))
            raise
    if arguments.as_json:
        print_data(document(arguments, location, mark, seen, accepted=True))
    return exit_status.OK


def document(
    arguments: Arguments, location: Location, mark: Mark | None, current: Mark | None, *, accepted: bool | None
) -> str:
    """The JSON of ``advance``, ``check`` and ``show``; the latter accepts nothing, and shows no token of its own."""
    return json.dumps(
        {
            "resource": location.resource.encode("utf-8", "replace").decode(),  # a name may be no text
            "store": arguments.scheme,
            "accepted": accepted,
            "token": None if mark is None else mark.token,
            "domain": None if mark is None else mark.domain,
            "current": None if current is None else {"domain": current.domain, "token": current.token},
        },
        indent=2,
    )
