"""What the libraries and programs give that lockctl asks for credentials: the number of those that are to be had now.

A server that wants some accepts one number. Those of before are kept by whoever asked for them, until told to forget.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from lockctl.stores.azblob import access as azblob
from lockctl.stores.gcs import protocol as gcs
from lockctl.stores.kubernetes import access as kubernetes
from lockctl.wire import aws
from tests.simulation.processes import me
from tests.simulation.world import Here

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = 1e9  # seconds for which they say that they are good


def _number() -> str:
    return str(Here.world.login)


def _found() -> SimpleNamespace:
    """As botocore finds credentials: these stay what they are."""
    frozen = SimpleNamespace(access_key="us", secret_key="secret", token=_number())
    return SimpleNamespace(get_frozen_credentials=lambda: frozen)


def _token() -> tuple[str, float]:
    return _number(), me().clock.wall() + LONG


def install(put: Callable[[object, str, object], None]) -> None:
    """Have lockctl ask here."""
    put(aws.Chain, "_loaded", lambda _: SimpleNamespace(get_credentials=_found))
    put(azblob.Access, "_asked", lambda _: _token())
    put(gcs.Bucket, "_renewed", lambda _: _token())
    put(kubernetes.Access, "_ask", lambda *_: kubernetes.Credentials(token=_number()))
