"""``lockctl fence``: a resource that remembers the highest token, as a person or a script speaks to it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.messages import Talk
from lockctl.cli.output import print_data
from lockctl.durations import parse_duration
from lockctl.errors import ConfigError, UsageError
from lockctl.fence import Mark, Stale, open_place, own_mark, parse_token
from lockctl.fence.mark import parse_domain
from lockctl.fence.tenure import TIMEOUT
from lockctl.names import printable
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockctl.fence import Place


class Order(Value):
    """What was said about a resource on the command line, not yet checked."""

    resource: str
    store: str | None
    timeout: str | None
    token: str | None = None
    domain: str | None = None
    as_json: bool = False
    yes: bool = False

    @property
    def scheme(self) -> str:
        """The kind of the store, for people and programs."""
        words = self.resource if self.store is None else self.store
        return words.partition("://")[0].lower() if "://" in words else "file"

    def place(self) -> Place:
        """Where the mark is; raises ``UsageError``, ``ConfigError``."""
        return open_place(self.resource, self.store)

    def seconds(self) -> float:
        """The time limit; raises ``UsageError``."""
        if self.timeout is None:
            return TIMEOUT
        try:
            seconds = parse_duration(self.timeout)
        except ValueError as wrong:
            message = f"--timeout: {printable(str(wrong))}"
            raise UsageError(message) from None
        if not seconds:
            raise UsageError("--timeout: say a time that is longer than nothing, such as 5s")
        return seconds

    def mark(self, environ: Mapping[str, str]) -> Mark:
        """The token that is shown: of the options, else of the environment. Raises ``UsageError``."""
        token, domain = self._options()
        if token is None and domain is None:
            return own_mark(environ)
        given = dict(environ)
        if token is not None:
            given["LOCKCTL_TOKEN"] = str(token)
            if domain is None and "LOCKCTL_TOKEN_DOMAIN" not in environ:
                raise UsageError("--token without --domain, and there is no LOCKCTL_TOKEN_DOMAIN: say both")
        if domain is not None:
            given["LOCKCTL_TOKEN_DOMAIN"] = domain
        return own_mark(given)

    def new_mark(self) -> Mark | None:
        """For a reset: the mark to set, of the options alone; ``None`` to remove it. Raises ``UsageError``."""
        token, domain = self._options()
        if token is None and domain is None:
            return None
        if token is None or domain is None:
            raise UsageError("--token and --domain: say both, to set the mark, or none, to remove it")
        return Mark(domain, token)

    def _options(self) -> tuple[int | None, str | None]:
        try:
            option = "--token"
            token = None if self.token is None else parse_token(self.token)
            option = "--domain"
            return token, None if self.domain is None else parse_domain(self.domain)
        except ValueError as wrong:
            message = f"{option}: {wrong}"
            raise UsageError(message) from None


def advance(order: Order) -> int:
    """Show the token; 0: accepted and recorded. Raises ``Stale`` after the document was printed, if one is wanted."""
    mark, limit, place = order.mark(os.environ), order.seconds(), order.place()
    try:
        seen = place.store.advance(place.resource, mark, timeout=limit)
    except Stale as stale:
        if order.as_json:
            print_data(document(order, place, mark, stale.current, accepted=False))
        raise
    finally:
        place.store.close()
    if order.as_json:
        print_data(document(order, place, mark, seen, accepted=True))
    return exit_status.OK


def show(order: Order) -> int:
    """Print the mark as ``DOMAIN;TOKEN``; nothing on stdout, and a word on stderr, if there is none."""
    limit, place = order.seconds(), order.place()
    try:
        seen = place.store.current(place.resource, timeout=limit)
    finally:
        place.store.close()
    if order.as_json:
        print_data(document(order, place, None, seen, accepted=None))
    elif seen is None:
        Talk(verbose=True)("info", f"{place.resource} has not seen a token yet")
    else:
        print_data(str(seen))
    return exit_status.OK


def reset(order: Order) -> int:
    """Set or remove the mark without a comparison, after a question to a person."""
    mark, limit, place = order.new_mark(), order.seconds(), order.place()
    talk = Talk(verbose=True)
    try:
        try:
            before = place.store.current(place.resource, timeout=limit)
            has = "has no mark" if before is None else f"has seen token {before.token} of {before.domain}"
        except ConfigError as damaged:
            before, has = None, f"cannot be read ({damaged})"
        else:
            if before == mark:
                if order.as_json:
                    print_data(document(order, place, None, mark, accepted=None))
                else:
                    talk("info", f"{place.resource} {has}: nothing to do")
                return exit_status.OK
        _confirm(order, place, has, mark)
        place.store.reset(place.resource, mark, timeout=limit)
    finally:
        place.store.close()
    if order.as_json:
        print_data(document(order, place, None, mark, accepted=None))
    else:
        now = "has no mark any more" if mark is None else f"has the mark {mark} now"
        talk("info", f"{place.resource} {now}")
    return exit_status.OK


def _confirm(order: Order, place: Place, has: str, mark: Mark | None) -> None:
    if order.yes:
        return
    shown = printable(place.resource)
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = f"{shown} {has}; without a terminal to ask on, --yes is needed"
        raise UsageError(message)
    wish = "Remove the mark? Then any token is accepted." if mark is None else f"Set it to {printable(str(mark))}?"
    sys.stderr.write(f"{shown} {printable(has)}\n{wish} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not reset")


def print_sql(dialect: str, resource: str | None, schema: str | None) -> int:
    """Print what a database needs to check tokens by itself."""
    from lockctl.fence import sql

    print_data(sql.text(dialect, resource, schema))
    return exit_status.OK


def document(order: Order, place: Place, mark: Mark | None, current: Mark | None, *, accepted: bool | None) -> str:
    """The JSON of ``advance``, ``check`` and ``show``; the latter accepts nothing, and shows no token of its own."""
    return json.dumps(
        {
            "resource": place.resource,
            "store": order.scheme,
            "accepted": accepted,
            "token": None if mark is None else mark.token,
            "domain": None if mark is None else mark.domain,
            "current": None if current is None else {"domain": current.domain, "token": current.token},
        },
        indent=2,
    )
