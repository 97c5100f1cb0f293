"""``lockctl fence advance``: register a token at a resource before the first read."""

from __future__ import annotations

from typing import Any

import click

from lockctl.cli.fence.order import RESOURCE, STORE, TIMEOUT, Order, own_token, show_token
from lockctl.cli.options import AS_JSON


@click.command("advance")
@RESOURCE
@own_token
@STORE
@TIMEOUT
@AS_JSON
def command(**given: Any) -> int:
    """Register the token at the resource before the first read: from then on it refuses older tokens."""
    return show_token(Order(**given))
