"""Clients of URLs, closed at the end of their test, and those behind a proxy that sees their requests."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.faults.backends import PLACES
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def opened() -> Iterator[Callable[[str], Any]]:
    """The client of a URL."""
    with contextlib.ExitStack() as ends:

        def make(url: str) -> Any:
            made = open_backend(parse_url(url))
            ends.callback(made.close)
            return made

        yield make


@pytest.fixture
def between(store: str, request: pytest.FixtureRequest) -> Iterator[HttpProxy]:
    """A proxy before the server of the store that the test names."""
    with HttpProxy(request.getfixturevalue(PLACES[store].servers).address) as proxy:
        yield proxy


@pytest.fixture
def word() -> str:
    """A path that nobody else uses."""
    return f"requests-{os.urandom(6).hex()}"


@pytest.fixture
def connect(
    store: str, between: HttpProxy, word: str, opened: Callable[[str], Any], tmp_path: Path
) -> Callable[[], Any]:
    """A call that makes a client behind the proxy."""
    place = PLACES[store].url([between.address], word, tmp_path)
    return lambda: opened(place)
