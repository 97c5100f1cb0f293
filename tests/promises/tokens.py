"""What tests of tokens share: one tenure after the other, each by a client of its own, also over an outage."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant

PATIENCE = 30.0  # seconds until a lock is free whose holder vanished, and its server is there again


def rising(tokens: list[int]) -> bool:
    """Strictly: never lower and never equal."""
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


@contextlib.contextmanager
def holding(url: str, ttl: float = 5.0) -> Iterator[Grant]:
    """The lock is held within the block, and then given back, unless it was lost or its server is away."""
    client, mine = open_backend(parse_url(url)), claim(ttl=ttl)

    def attempt() -> Grant | None:
        with contextlib.suppress(BackendUnavailable):
            grant = client.try_acquire(mine, timeout=LIMIT)
            if grant is None:
                client.wait(mine, timeout=1.0, interrupt=None)
            return grant
        return None

    try:
        grant = eventually(attempt, limit=PATIENCE)
        yield grant
        with contextlib.suppress(LockctlError):
            client.release(grant, timeout=LIMIT)
    finally:
        client.close()


def tenure(url: str) -> Grant:
    """A lock taken and given back."""
    with holding(url) as grant:
        return grant
