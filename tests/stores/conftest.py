"""Clients of URLs, closed at the end of their test."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.registry import open_backend
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def opened() -> Iterator[Callable[[str], Any]]:
    """The client of a URL."""
    with contextlib.ExitStack() as ends:

        def make(url: str) -> Any:
            made = open_backend(parse_url(url))
            ends.callback(made.close)
            return made

        yield make
