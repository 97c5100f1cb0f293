"""``lockctl fence advance``: register a token at a resource before the first read."""

from __future__ import annotations

from typing import Any

from lockctl.cli.fence.options import RESOURCE, STORE, TIMEOUT, Arguments, own_token, show_token
from lockctl.cli.group import verb
from lockctl.cli.options import AS_JSON


@verb(
    "advance",
    examples={
        "lockctl fence advance /srv/stock.json": "In a command of lockctl run, before it reads the file.",
        "lockctl fence advance stock --store redis://redis.example/0": "A name in a store that all hosts reach.",
    },
)
@RESOURCE
@own_token
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Register the token at the resource before the first read.

    From then on the resource refuses older tokens.
    """
    return show_token(Arguments(**given))
