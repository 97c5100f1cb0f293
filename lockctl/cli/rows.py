"""Locks and runs as text: the cells of tables, and lines of facts, for plain output and for the screen."""

from __future__ import annotations

from lockctl.clock import utc, wall
from lockctl.durations import format_age
from lockctl.model import SHARED, Holder, LockInfo, Run, Waiter
from lockctl.names import command_line, printable

UNKNOWN = "-"


def place(host: str | None, pid: int | None, user: str | None) -> str:
    """Where a process is and whose it is."""
    text = host or "?"
    if pid:
        text += f" pid {pid}"
    return printable(text + (f" ({user})" if user else ""))


def labels_text(labels: tuple[tuple[str, str], ...] | None) -> str:
    """Labels as words."""
    return " ".join(f"{key}={content}" for key, content in labels or ())


def place_of(who: Holder | Waiter) -> str:
    """Where a holder or a waiter is."""
    return place(who.host, who.pid, who.user)


def row(lock: LockInfo, *, old: float = 0.0) -> tuple[str, ...]:
    """The cells of a lock, as it was seen *old* seconds ago: its first holder, and how many wait."""
    holder = lock.holders[0] if lock.holders else None
    name, state = printable(lock.name), printable(_state(lock))
    waiters = UNKNOWN if lock.waiters is None else str(len(lock.waiters))
    if holder is None:
        return (name, state, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, waiters, UNKNOWN)
    age = UNKNOWN if holder.acquired_at is None else format_age(wall() - holder.acquired_at)
    expires = UNKNOWN if holder.expires_in is None else format_age(holder.expires_in - old)
    token = UNKNOWN if holder.token is None else str(holder.token)
    others = f" +{len(lock.holders) - 1}" if len(lock.holders) > 1 else ""
    command = command_line(holder.command) if holder.command else UNKNOWN
    return (name, state, place_of(holder) + others, token, age, expires, waiters, command)


def wide_row(lock: LockInfo) -> tuple[str, ...]:
    """The same with all holders and waiters, the key, and the labels."""
    name, state, _, *middle, waiters, command = row(lock)
    holders = ", ".join(place_of(holder) for holder in lock.holders) or UNKNOWN
    if lock.waiters:
        waiters += ": " + ", ".join(place_of(waiter) for waiter in lock.waiters)
    labels = ", ".join(labels_text(holder.labels) for holder in lock.holders if holder.labels)
    return (name, state, holders, *middle, waiters, command, printable(lock.key), printable(labels) or UNKNOWN)


def _state(lock: LockInfo) -> str:
    """The state, and for people how many of the slots are taken, or that the holders are readers."""
    if lock.slots > 1:
        return f"{lock.state} {len(lock.holders)}/{lock.slots}"
    if lock.holders and lock.holders[0].ended_at is not None:
        return f"{lock.state}, ended"
    return f"{lock.state} shared" if lock.holders and lock.holders[0].mode == SHARED else lock.state


def facts(lock: LockInfo, backend: str) -> list[tuple[str, str]]:
    """(label, printable text) of everything about a lock in this *backend*."""
    lines = [("name", lock.name), ("state", _state(lock)), ("backend", backend)]
    lines += [("key", lock.key), ("fencing", lock.fencing)]
    for holder in lock.holders:
        lines += _holder_lines(holder)
    if lock.last_run is not None:
        lines.append(("last run", run_line(lock.last_run)))
    for number, waiter in enumerate(lock.waiters or (), 1):
        since = "" if waiter.since is None else f", since {_since(waiter.since)}"
        lines.append((f"waiter {number}", place_of(waiter) + since))
    return [(label, printable(text)) for label, text in lines]


def _since(moment: float) -> str:
    return f"{utc(moment)} ({format_age(wall() - moment)})"


def run_line(run: Run) -> str:
    """How a run went, in one line."""
    began = "" if run.started_at is None else f" {utc(run.started_at)}"
    took = "" if run.duration is None else f" after {span(run.duration)}"
    status = "" if run.exit_code is None else f" {run.exit_code}"
    command = f": {command_line(run.command)}" if run.command else ""
    labels = f" {_bracketed(run)}" if run.labels else ""
    return f"{run.outcome}{status}{took}, on {place(run.host, None, run.user)}{began}{command}{labels}"


def run_row(run: Run) -> tuple[str, ...]:
    """The cells of a run in a history."""
    when = run.started_at if run.started_at is not None else run.ended_at
    status = "" if run.exit_code is None else f" {run.exit_code}"
    return (
        UNKNOWN if when is None else utc(when),
        printable(run.outcome + status),
        UNKNOWN if run.duration is None else span(run.duration),
        UNKNOWN if run.token is None else str(run.token),
        place(run.host, None, run.user),
        command_line(run.command) if run.command else UNKNOWN,
        printable(" ".join(filter(None, (_bracketed(run), run.detail)))) or UNKNOWN,
    )


def _bracketed(run: Run) -> str:
    return f"[{labels_text(run.labels)}]" if run.labels else ""


def span(seconds: float) -> str:
    """How long something took: short ones with their hundredths."""
    return f"{seconds:.2f}s" if seconds < 10 else format_age(seconds)


def _holder_lines(holder: Holder) -> list[tuple[str, str]]:
    lines = [("holder", place_of(holder))]
    if holder.acquired_at is not None:
        lines.append(("since", _since(holder.acquired_at)))
    if holder.ended_at is not None:
        lines.append(("ended", f"{utc(holder.ended_at)}; --min-hold holds the lock"))
    if holder.expires_in is not None:
        lines.append(("expires in", format_age(holder.expires_in)))
    if holder.token is not None:
        lines.append(("token", str(holder.token)))
    if holder.owner is not None:
        lines.append(("owner", holder.owner))
    if holder.command:
        lines.append(("command", command_line(holder.command)))
    if holder.labels:
        lines.append(("labels", labels_text(holder.labels)))
    return lines
