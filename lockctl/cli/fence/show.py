"""``lockctl fence show``: the mark of a resource."""

from __future__ import annotations

from typing import Any

from lockctl.cli import exit_status
from lockctl.cli.fence.options import RESOURCE, STORE, TIMEOUT, Arguments, document
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON
from lockctl.cli.output import print_data


@verb(
    "show",
    examples={
        "lockctl fence show /srv/stock.json": "The mark of a file.",
        "lockctl fence show stock --store redis://redis.example/0 --json": "That of a name in a store.",
    },
)
@RESOURCE
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Print the highest token that the resource has seen.

    As DOMAIN;TOKEN.
    """
    arguments = Arguments(**given)
    with arguments.location() as location:
        seen = location.store.current(location.resource, timeout=arguments.timeout)
    if arguments.as_json:
        print_data(document(arguments, location, None, seen, accepted=None))
    elif seen is None:
        Talk(verbose=True)("info", f"{location.shown} has not seen a token yet")
    else:
        print_data(str(seen))
    return exit_status.OK
