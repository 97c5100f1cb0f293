"""``lockctl force-release``: revoke a lock, or take it away at once."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, REQUEST_TIMEOUT, YES, ask_person, with_settings
from lockctl.cli.output import held_by, holding, print_data, where_options
from lockctl.cli.parameters import LockName, Parsed
from lockctl.cli.places import Place, is_known, not_known, place
from lockctl.cli.revoke import Wish, tell
from lockctl.cli.waiting import screen_columns
from lockctl.durations import format_age
from lockctl.errors import BackendUnavailable, LockctlError
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
    token: int | None
    reason: str
    yes: bool
    as_json: bool
    place: Place
    where: tuple[str, ...] = ()  # the options with which to look at the same lock


def _token(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise ValueError(f"{text[:30]!r} is not a token: it must be a decimal number, as in LOCKCTL_TOKEN")
    return int(text)


@with_settings("backend", "config")
@verb(
    "force-release",
    examples={
        "lockctl force-release nightly --reason 'maintenance of the database'": (
            "The holder stops its command; the lock is free when its last process is gone."
        ),
        "lockctl force-release nightly --token 1763690400123456 --yes": (
            "In a script: only if the holder is still the one that was seen."
        ),
    },
)
@click.argument("name", type=LockName())
@click.option("--now", is_flag=True, help="Free the lock at once; the old holder may still be running.")
@click.option("--token", metavar="N", type=Parsed(_token), help="Refuse (75) unless the holder has this token.")
@click.option("--reason", default="", metavar="TEXT", help="Tell the holder why.")
@YES
@AS_JSON
def command(*, backend: str | None, config: str | None, **given: Any) -> int:
    """Have the holder of a lock stop its command and release it.

    Waits until the lock is free.
    """
    # 0: it is free or was, 75: another holds it by now, or the holder has not stopped yet
    looked_at = place(backend, config, given["name"])
    order = Order(**given, place=looked_at, where=where_options({"config": config or "", "backend": backend or ""}))
    opened = looked_at.open()
    talk = Talk(verbose=True)
    lock = opened.inspect(order.name, timeout=REQUEST_TIMEOUT)
    if lock.state == "free":
        if not is_known(opened, lock, timeout=REQUEST_TIMEOUT):
            return _answer(order, talk, "free", not_known(order.name, [looked_at]))
        return _answer(order, talk, "free", f"{order.name} is free in {looked_at}: nothing to do")
    holders = [holder for holder in lock.holders if order.token is None or holder.token == order.token]
    if not holders:
        tokens = ", ".join(str(holder.token) for holder in lock.holders)
        plural = "its token is" if len(lock.holders) == 1 else "their tokens are"
        text = f"{order.name} in {looked_at}: not released: {held_by(lock, order.where)}; {plural} {tokens}"
        return _answer(order, talk, "other_holder", text)
    _confirm(order, replace(lock, holders=tuple(holders)))
    told, floor = tell(opened, Wish(order.name, order.now, order.reason), holders, talk)
    if not told:
        return _already_gone(opened, order, holders, talk)
    if order.now:
        return _freed(opened, order, lock, told, floor, talk)
    return _await_release(opened, order, told, talk)


def _freed(backend: Backend, order: Order, lock: LockInfo, told: list[Holder], floor: int, talk: Talk) -> int:
    others = _still_inside(backend, order, [holder for holder in lock.holders if holder not in told])
    what = f"one holder of {order.name} was removed, {others} more hold it" if others else f"{order.name} is free"
    if all(holder.ended_at is not None for holder in told):
        return _answer(order, talk, "released", f"{what}: it was held only by --min-hold", floor)
    risk = "The old holder may still be running until it notices"
    text = f"{what}. {risk}: resources that check tokens must be advanced to at least {floor}"
    return _answer(order, talk, "released", text, floor)


def _already_gone(backend: Backend, order: Order, seen: list[Holder], talk: Talk) -> int:
    """What to say when none of those *seen* was there any more: they left, or a lost answer was that of success."""
    lock = backend.inspect(order.name, timeout=REQUEST_TIMEOUT)
    tokens = [holder.token for holder in seen if holder.token is not None]  # another program has none
    floor = 1 + max(tokens) if order.now and tokens else None
    risk = ". If its holder did not release it, the old holder may still be running until it notices" * order.now
    if floor:
        risk += f": resources that check tokens must be advanced to at least {floor}"
    if lock.state == "free":
        return _answer(order, talk, "free", f"{order.name} is free now{risk}", floor)
    text = f"{order.name}: the holder has changed: now {held_by(lock, order.where)}{risk}"
    return _answer(order, talk, "other_holder", text, floor)


def _still_inside(backend: Backend, order: Order, others: list[Holder]) -> int:
    """How many of the holders that were not told have the lock all the same; 0 also when that cannot be known."""
    if not others:
        return 0
    try:
        seen = backend.inspect(order.name, timeout=REQUEST_TIMEOUT).holders
    except LockctlError:
        return 0
    inside = {holder.identity for holder in seen}
    return sum(holder.identity in inside for holder in others)


def _await_release(backend: Backend, order: Order, told: list[Holder], talk: Talk) -> int:
    begun = time.monotonic()
    until = begun + max(holder.ttl or SILENT_HOLDER for holder in told) + LONGEST_STOP
    gone = {holder.identity for holder in told}
    state, pause = "it has not released the lock yet", POLL
    while time.monotonic() < until:
        try:
            lock = backend.inspect(order.name, timeout=REQUEST_TIMEOUT)
        except BackendUnavailable as failure:  # what was asked for is done: only the looking fails
            state, pause = f"it is not known whether it has released the lock: {failure}", min(2 * pause, LONGEST_PAUSE)
        else:
            if not any(holder.identity in gone and holder.ended_at is None for holder in lock.holders):
                _show_wait(talk, "")
                return _answer(order, talk, "released", f"{order.name} was released")
            state, pause = "it has not released the lock yet", POLL
            _show_wait(talk, f"waiting for {format_age(time.monotonic() - begun)}: {holding(lock, brief=True)}")
        time.sleep(pause)
    _show_wait(talk, "")
    return _answer(order, talk, "told", f"{order.name}: the holder was asked to stop; {state}")


def _show_wait(talk: Talk, text: str) -> None:
    columns = screen_columns()
    if columns:
        talk.rewrite(text, columns)


def _answer(order: Order, talk: Talk, result: str, text: str, floor: int | None = None) -> int:
    if order.as_json:
        print_data(json.dumps({"name": order.name, "result": result, "next_token_at_least": floor}, indent=2))
    else:
        talk("info" if result in ("free", "released") else "error", text)
    return exit_status.OK if result in ("free", "released") else exit_status.HELD


def _confirm(order: Order, lock: LockInfo) -> None:
    held = held_by(lock, order.where)
    risk = " The old holder is not stopped first: two commands may run at once." if order.now else ""
    if not order.yes and not ask_person(
        f"{order.name}: {held}", f"{order.name} in {order.place} is {held}", f"Release it?{risk}"
    ):
        raise LockctlError("the lock was not released")
