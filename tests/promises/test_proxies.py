"""What a proxy or another server on the way answers is not what the store says: a lock stays in doubt, and is not lost."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.faults.backends import HTTP, PLACES
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STATUSES = (200, 301, 403, 404, 409, 410, 412)
TEXTS = {
    "a text": b"404 page not found",
    "a page": b"<html><head><title>404 Not Found</title></head><body>nginx</body></html>",
    "a document": json.dumps({"message": "no Route matched with those values"}).encode(),
    "nothing": b"",
}


@pytest.fixture(params=HTTP)
def between(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[HttpProxy, str]]:
    """A proxy before a server, and the URL of locks behind it."""
    place = PLACES[request.param]
    with HttpProxy(request.getfixturevalue(place.servers).address) as proxy:
        yield proxy, place.url([proxy.address], f"proxies-{os.urandom(6).hex()}", tmp_path)


def test_a_lock_is_not_gone_because_a_proxy_says_so(between: tuple[HttpProxy, str]) -> None:
    proxy, place = between
    client = open_backend(parse_url(place))
    grant = take(client, claim(ttl=60.0))
    date = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))]
    steps: dict[str, Callable[[], object]] = {
        "renew": lambda: client.renew(grant, timeout=LIMIT),
        "release": lambda: client.release(grant, timeout=LIMIT),
        "inspect": lambda: client.inspect("nightly", timeout=LIMIT),
        "list": lambda: list(client.list("*", timeout=LIMIT)),
    }
    believed = []
    for status, text, step in itertools.product(STATUSES, TEXTS, steps):
        answer = status, date, TEXTS[text]
        proxy.look = lambda _, answer=answer: answer  # type: ignore[misc]
        try:
            steps[step]()
        except (BackendUnavailable, ConfigError):
            continue
        believed.append((step, status, text))
    assert not believed
    proxy.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    client.release(grant, timeout=LIMIT)
    client.close()
