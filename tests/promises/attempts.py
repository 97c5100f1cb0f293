"""Who is let in by a server, and what the others are told: attempts to take a lock, by the calls that a run makes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.contract.remembering import a_run

if TYPE_CHECKING:
    from lockctl.model import Claim, Grant


def use(url: str, wanted: Claim | None = None) -> Grant:
    """Take a lock, give it back, and add a run to its history."""
    with contextlib.closing(open_backend(parse_url(url))) as client:
        grant = take(client, wanted or claim())
        client.release(grant, timeout=LIMIT)
        client.remember(grant.claim.name, a_run(), timeout=LIMIT)
        return grant


def attempt(url: str, wanted: Claim | None = None) -> LockctlError | None:
    """The error that a run would end with, or warn of, if there is one."""
    try:
        use(url, wanted)
    except (BackendUnavailable, ConfigError) as error:
        return error
    return None


def accepted(url: str) -> None:
    """A lock is granted there."""
    assert attempt(url) is None


def refused(
    url: str,
    said: str,
    *hidden: str,
    kind: type[LockctlError] | tuple[type[LockctlError], ...] = ConfigError,
    wanted: Claim | None = None,
) -> str:
    """A lock is refused with an error of this kind, whose one line says why, and nothing of what is hidden."""
    error = attempt(url, wanted)
    assert isinstance(error, kind), repr(error)
    text = str(error)
    assert said in text
    assert text.isprintable()
    assert not [word for word in hidden if word in text]
    return text
