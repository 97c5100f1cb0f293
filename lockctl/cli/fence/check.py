"""``lockctl fence check``: is the token still the newest, right before a write."""

from __future__ import annotations

from typing import Any

import click

from lockctl.cli.fence.order import RESOURCE, STORE, TIMEOUT, Order, own_token, show_token
from lockctl.cli.options import AS_JSON


@click.command("check")
@RESOURCE
@own_token
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Check the token right before a write: exits 0 if it is still the newest, 77 if not."""
    return show_token(Order(**given))
