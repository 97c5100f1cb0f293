"""``lockctl list`` and ``lockctl inspect``: data for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.output import lock_document, print_data, table
from lockctl.clock import utc, wall
from lockctl.durations import format_age
from lockctl.errors import UsageError
from lockctl.names import check_name, command_line, printable

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Holder, LockInfo

REQUEST_TIMEOUT = 10.0  # seconds for one question to the backend
UNKNOWN = "-"
HEADING = ("NAME", "STATE", "HOLDER", "TOKEN", "AGE", "EXPIRES", "WAITERS")


def list_locks(backend: Backend, pattern: str, *, as_json: bool) -> int:
    """Print all locks whose names match; 0 also when there is none."""
    locks = backend.list(pattern, timeout=REQUEST_TIMEOUT)
    if as_json:
        print_data(json.dumps([lock_document(lock) for lock in locks], indent=2))
        return exit_status.OK
    rows = [_row(lock) for lock in locks]
    if rows:
        print_data(table([HEADING, *rows]))
    return exit_status.OK


def inspect_lock(backend: Backend, name: str, *, as_json: bool) -> int:
    """Print one lock; 0 also when it is free."""
    lock = backend.inspect(checked(name), timeout=REQUEST_TIMEOUT)
    if as_json:
        print_data(json.dumps(lock_document(lock), indent=2))
        return exit_status.OK
    lines = [("name", lock.name), ("state", lock.state), ("key", lock.key), ("fencing", lock.fencing)]
    for holder in lock.holders:
        lines += _holder_lines(holder)
    for number, waiter in enumerate(lock.waiters or (), 1):
        since = f", since {utc(waiter.since)}" if waiter.since is not None else ""
        lines.append((f"waiter {number}", place(waiter.host, waiter.pid, waiter.user) + since))
    print_data("\n".join(f"{label + ':':12}{printable(text)}" for label, text in lines))
    return exit_status.OK


def checked(name: str) -> str:
    """A lock name from the command line; raises ``UsageError``."""
    try:
        return check_name(name)
    except ValueError as wrong:
        raise UsageError(printable(str(wrong))) from None


def place(host: str | None, pid: int | None, user: str | None) -> str:
    """Where a process is and whose it is."""
    text = host or "?"
    if pid:
        text += f" pid {pid}"
    return printable(text + (f" ({user})" if user else ""))


def _row(lock: LockInfo) -> tuple[str, ...]:
    holder = lock.holders[0] if lock.holders else None
    waiters = UNKNOWN if lock.waiters is None else str(len(lock.waiters))
    if holder is None:
        return (lock.name, lock.state, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, waiters)
    age = UNKNOWN if holder.acquired_at is None else format_age(wall() - holder.acquired_at)
    expires = UNKNOWN if holder.expires_in is None else format_age(holder.expires_in)
    token = UNKNOWN if holder.token is None else str(holder.token)
    return (lock.name, lock.state, place(holder.host, holder.pid, holder.user), token, age, expires, waiters)


def _holder_lines(holder: Holder) -> list[tuple[str, str]]:
    lines = [("holder", place(holder.host, holder.pid, holder.user))]
    if holder.acquired_at is not None:
        lines.append(("since", f"{utc(holder.acquired_at)} ({format_age(wall() - holder.acquired_at)})"))
    if holder.expires_in is not None:
        lines.append(("expires in", format_age(holder.expires_in)))
    if holder.token is not None:
        lines.append(("token", str(holder.token)))
    if holder.owner is not None:
        lines.append(("owner", holder.owner))
    if holder.command:
        lines.append(("command", command_line(holder.command)))
    return lines
