"""``lockctl force-release``: revoke a lock, or take it away at once."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.look import REQUEST_TIMEOUT, checked
from lockctl.cli.messages import Talk
from lockctl.cli.output import held_by, print_data
from lockctl.cli.run import user_name
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError, UsageError
from lockctl.lease.afterwards import REMEMBER_TIMEOUT
from lockctl.model import Run
from lockctl.value import Value, replace

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Holder, LockInfo

POLL = 0.1  # seconds between two looks whether the holder has given the lock back
LONGEST_PAUSE = 2.0  # seconds between two looks at a backend that fails
SILENT_HOLDER = 30.0  # seconds: the lease of a holder that did not say its own
LONGEST_STOP = 30.0  # seconds beyond a lease in which a job that was told should have been stopped


class Order(Value):
    """What the operator wants."""

    name: str
    now: bool
    token: str | None
    reason: str
    yes: bool
    as_json: bool
    where: tuple[str, ...] = ()  # the options with which to look at the same lock


def force_release(backend: Backend, order: Order) -> int:
    """Free one lock; 0: it is free or was, 75: another holds it by now or the holder has not stopped yet."""
    talk = Talk(verbose=True)
    name = checked(order.name)
    wanted = _token(order.token)
    lock = backend.inspect(name, timeout=REQUEST_TIMEOUT)
    if lock.state == "free":
        return _answer(order, talk, "free", f"{name} is free: nothing to do")
    holders = [holder for holder in lock.holders if wanted is None or holder.token == wanted]
    if not holders:
        tokens = ", ".join(str(holder.token) for holder in lock.holders)
        plural = "its token is" if len(lock.holders) == 1 else "their tokens are"
        return _answer(
            order, talk, "other_holder", f"{name}: not released: {held_by(lock, order.where)}; {plural} {tokens}"
        )
    _confirm(order, replace(lock, holders=tuple(holders)))
    by = f"{user_name(os.environ)}@{os.uname().nodename}"
    told, floor = [], 0
    failure: LockctlError | None = None
    for holder in holders:
        # when only --min-hold keeps the lock, nobody is there to be told
        now = order.now or holder.ended_at is not None
        try:
            least = _revoke(backend, order, holder, by, now=now)
        except LockctlError as refused:  # another program: the others are told all the same
            failure = refused
            continue
        if least is not None:
            told.append(holder)
            floor = max(floor, least)
            _remember(backend, order, holder, by, talk)
    if failure is not None:
        raise failure
    if not told:
        return _already_gone(backend, order, holders, talk)
    if order.now:
        others = _still_inside(backend, order, [holder for holder in lock.holders if holder not in told])
        what = f"a place in {name} is free, {others} more hold it" if others else f"{name} is free"
        if all(holder.ended_at is not None for holder in told):
            return _answer(order, talk, "released", f"{what}: only --min-hold kept it", floor)
        return _answer(
            order,
            talk,
            "released",
            f"{what}. The old holder may still be running until it notices:"
            f" resources that check tokens must be advanced to at least {floor}",
            floor,
        )
    return _await_release(backend, order, told, talk)


def _revoke(backend: Backend, order: Order, holder: Holder, by: str, *, now: bool) -> int | None:
    """See ``Backend.revoke``; asked once more when the first answer may have been lost, which does no harm."""

    def ask() -> int | None:
        return backend.revoke(order.name, holder, now=now, by=by, reason=order.reason, timeout=REQUEST_TIMEOUT)

    try:
        return ask()
    except BackendUnavailable:
        time.sleep(POLL)
    try:
        return ask()
    except BackendUnavailable as failure:
        unknown = "the lock was freed" if now else "the holder was told"
        message = f"{failure}: whether {unknown} is not known: look at the lock, and ask again"
        raise BackendUnavailable(message) from None


def _already_gone(backend: Backend, order: Order, seen: list[Holder], talk: Talk) -> int:
    """What to say when none of those *seen* was there any more: they left, or a lost answer was that of success."""
    lock = backend.inspect(order.name, timeout=REQUEST_TIMEOUT)
    floor = 1 + max([holder.token or 0 for holder in seen]) if order.now else None
    risk = (
        f". If its holder did not leave by itself, it may be running until it notices:"
        f" resources that check tokens must be advanced to at least {floor}"
        if floor
        else ""
    )
    if lock.state == "free":
        return _answer(order, talk, "free", f"{order.name} is free by now{risk}", floor)
    text = f"{order.name}: the holder that was seen is gone, it is {held_by(lock, order.where)} by now{risk}"
    return _answer(order, talk, "other_holder", text, floor)


def _still_inside(backend: Backend, order: Order, others: list[Holder]) -> int:
    """How many of the holders that were not told have the lock all the same; 0 also when that cannot be known."""
    if not others:
        return 0
    try:
        seen = backend.inspect(order.name, timeout=REQUEST_TIMEOUT).holders
    except LockctlError:
        return 0
    inside = {(holder.owner, holder.token) for holder in seen}
    return sum((holder.owner, holder.token) in inside for holder in others)


def _remember(backend: Backend, order: Order, holder: Holder, by: str, talk: Talk) -> None:
    """Keep who did it and why in the history, also of a holder that cannot write there any more."""
    how = "force-released at once" if order.now else "force-released"
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
        detail=f"{how} by {by}" + (f": {order.reason}" if order.reason else ""),
    )
    try:
        backend.remember(order.name, run, timeout=REMEMBER_TIMEOUT)
    except (BackendUnavailable, ConfigError) as failure:
        talk("warning", f"this is missing in the history: {failure}")


def _await_release(backend: Backend, order: Order, told: list[Holder], talk: Talk) -> int:
    until = time.monotonic() + max(holder.ttl or SILENT_HOLDER for holder in told) + LONGEST_STOP
    gone = {(holder.owner, holder.token) for holder in told}
    state, pause = "it has not given it back yet", POLL
    while time.monotonic() < until:
        try:
            lock = backend.inspect(order.name, timeout=REQUEST_TIMEOUT)
        except BackendUnavailable as failure:  # what was asked for is done: only the looking fails
            state, pause = f"whether it has given it back is not known: {failure}", min(2 * pause, LONGEST_PAUSE)
        else:
            if not any((holder.owner, holder.token) in gone and holder.ended_at is None for holder in lock.holders):
                return _answer(order, talk, "released", f"{order.name} was given back")
            state, pause = "it has not given it back yet", POLL
        time.sleep(pause)
    return _answer(order, talk, "told", f"{order.name}: the holder was told; {state}")


def _answer(order: Order, talk: Talk, result: str, text: str, floor: int | None = None) -> int:
    if order.as_json:
        print_data(json.dumps({"name": order.name, "result": result, "next_token_at_least": floor}, indent=2))
    else:
        talk("info" if result in ("free", "released") else "error", text)
    return exit_status.OK if result in ("free", "released") else exit_status.HELD


def _token(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        message = f"--token: {text[:30]!r} is not a token: a decimal number as in LOCKCTL_TOKEN"
        raise UsageError(message)
    return int(text)


def _confirm(order: Order, lock: LockInfo) -> None:
    if order.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = f"{order.name}: {held_by(lock, order.where)}; without a terminal to ask on, --yes is needed"
        raise UsageError(message)
    risk = " The old holder is not stopped first: two may run at once." if order.now else ""
    sys.stderr.write(f"{order.name} is {held_by(lock, order.where)}\nRelease it?{risk} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise LockctlError("not released")
