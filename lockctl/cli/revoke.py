"""Asking holders for a lock, or taking it away from them: what ``force-release`` and ``watch`` do."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from lockctl.cli.options import REQUEST_TIMEOUT
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.lease.conclude import REMEMBER_TIMEOUT
from lockctl.model import Holder, LockInfo, Revocation, Run
from lockctl.request import user_name
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.cli.places import Place

AGAIN = 0.1  # seconds until a request whose answer was lost is sent again


class Wish(Value):
    """What an operator wants of the holders of a lock."""

    name: str
    now: bool = False
    reason: str = ""


def ask_holders(place: Place, seen: LockInfo) -> str:
    """Ask the holders that were *seen* to release a lock, and do not wait for it; what to say of that."""
    warnings: list[str] = []
    try:
        backend = place.open()
        told, _ = tell(backend, Wish(seen.name), list(seen.holders), lambda _level, text: warnings.append(text))
        backend.close()
    except LockctlError as failure:
        return str(failure)
    done = f"{seen.name}: the holder was asked to stop" if told else f"{seen.name}: the holder has changed: look again"
    return "; ".join([done, *warnings])


def tell(
    backend: Backend, wish: Wish, holders: list[Holder], talk: Callable[[str, str], None]
) -> tuple[list[Holder], int]:
    """Those of the holders that were there and were told, and the least token of the next holder."""
    by = f"{user_name(os.environ)}@{os.uname().nodename}"
    told, floor = [], 0
    failure: LockctlError | None = None
    for holder in holders:
        # when only --min-hold keeps the lock, nobody is there to be told
        now = wish.now or holder.ended_at is not None
        try:
            least = _revoke(backend, wish, holder, by, now=now)
        except LockctlError as refused:  # another program: the others are told all the same
            failure = refused
            continue
        if least is not None:
            told.append(holder)
            floor = max(floor, least)
            _remember(backend, wish, holder, by, talk)
    if failure is not None:
        raise failure
    return told, floor


def _revoke(backend: Backend, wish: Wish, holder: Holder, by: str, *, now: bool) -> int | None:
    """See ``Backend.revoke``; asked once more when the first answer may have been lost, which does no harm."""

    def ask() -> int | None:
        return backend.revoke(
            wish.name, holder, Revocation(now=now, by=by, reason=wish.reason), timeout=REQUEST_TIMEOUT
        )

    try:
        return ask()
    except BackendUnavailable:
        time.sleep(AGAIN)
    try:
        return ask()
    except BackendUnavailable as failure:
        unknown = "the lock was freed" if now else "the holder was asked"
        message = f"{failure}: it is not known whether {unknown}: inspect the lock and try again"
        raise BackendUnavailable(message) from None


def _remember(backend: Backend, wish: Wish, holder: Holder, by: str, talk: Callable[[str, str], None]) -> None:
    """Keep who did it and why in the history, also of a holder that cannot write there any more."""
    how = "force-released at once" if wish.now else "force-released"
    run = Run(
        host=holder.host,
        user=holder.user,
        command=holder.command,
        token=holder.token,
        started_at=None,
        ended_at=wall(),
        duration=None,
        waited=None,
        outcome="revoked",
        exit_code=None,
        detail=f"{how} by {by}" + (f": {wish.reason}" if wish.reason else ""),
        labels=holder.labels or (),
    )
    try:
        backend.remember(wish.name, run, timeout=REMEMBER_TIMEOUT)
    except (BackendUnavailable, ConfigError) as failure:
        talk("warning", f"this was not recorded in the history: {failure}")
