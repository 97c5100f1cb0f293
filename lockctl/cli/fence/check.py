"""``lockctl fence check``: is the token still the newest, right before a write."""

from __future__ import annotations

from typing import Any

from lockctl.cli.fence.options import RESOURCE, STORE, TIMEOUT, Arguments, own_token, show_token
from lockctl.cli.group import verb
from lockctl.cli.options import AS_JSON


@verb(
    "check",
    examples={
        "lockctl fence check /srv/stock.json && ./write-stock": (
            "fence write and fence exec leave no pause between check and write."
        ),
        "lockctl fence check stock --store sqlite:///srv/shop.db --json": "A mark in a database.",
    },
)
@RESOURCE
@own_token
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Check the token right before a write.

    Exits 0 if it is still the newest, 77 if not.
    """
    return show_token(Arguments(**given))
