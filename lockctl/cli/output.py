"""Data on stdout, and how locks and holders are shown there and in messages."""

from __future__ import annotations

import os
import sys

from lockctl.clock import utc, wall
from lockctl.durations import format_age
from lockctl.errors import BackendUnavailable, UsageError
from lockctl.names import command_line, printable
from lockctl.url import LOCAL, SECRETS, unquote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

    from lockctl.model import Holder, LockInfo, Run, Waiter

NO_SCREEN = ("", "dumb", "unknown")  # values of TERM: no cursor that could be moved


def print_data(text: str) -> None:
    """Write data to stdout; a reader that has gone away ends the program quietly.

    Raises ``BackendUnavailable`` when it cannot be written, as to a full disk: nobody must take half of it for all.
    """
    out = data_stream()
    try:
        out.write(text if text.endswith("\n") or not text else text + "\n")
        out.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as failure:
        discard_output()
        raise BackendUnavailable(f"cannot write to stdout: {failure.strerror}") from None


def data_stream() -> TextIO:
    """The stream for data. What its encoding does not have becomes a question mark. Raises ``UsageError``."""
    out = sys.stdout
    if out is None:  # closed by the caller: ``>&-``
        raise UsageError("there is no stdout to write to: it was closed before lockctl started")
    out.reconfigure(errors="replace")  # type: ignore[union-attr]
    return out


def discard_output() -> None:
    """Nobody reads any more: what is still buffered for stdout goes nowhere, also at the end of the program."""
    null = os.memfd_create("lockctl")  # there may be no /dev/null
    os.dup2(null, 1)
    os.close(null)


def on_screen() -> bool:
    """Whether stdout is a terminal that can move its cursor."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "") not in NO_SCREEN


def on_styled_screen() -> bool:
    """Whether stdout is such a terminal and its owner wants colours: without them the plain text is as good."""
    return on_screen() and not os.environ.get("NO_COLOR")


def held_by(seen: LockInfo | None, where: tuple[str, ...] = ()) -> str:
    """Who holds a lock, since when, and how to look further; *where*: see :func:`where_options`."""
    if seen is None:
        return "held by another process; the backend did not say which one"
    return f"{holding(seen)}; see: " + command_line(("lockctl", "inspect", *where, seen.name))


def holding(seen: LockInfo, *, brief: bool = False) -> str:
    """Who holds a lock, and since when; *brief*: since when first, as a span, for a line that may be cut."""
    if not seen.holders and seen.waiters:
        first = _who(seen.waiters[0])
        return f"free now, but {first} is first in the queue; if it has died, it is soon removed from there"
    if not seen.holders:
        return "held by another process, which has just released it"
    holder = seen.holders[0]
    command = f": {command_line(holder.command)}" if holder.command else ""
    if seen.state == "foreign":
        return f"held by another program, {_who(holder)}{command}"
    since = _since(holder, brief=brief)
    who = f"{since} by {_who(holder)}" if brief else f" by {_who(holder)}{since}"
    if holder.ended_at is not None:
        left = "" if holder.expires_in is None else f" for {format_age(holder.expires_in)} more"
        return f"held by --min-hold{left} after the job of {_who(holder)}{since}{command}"
    others = len(seen.holders) - 1
    more = f", and {others} more{f' in {seen.slots} slots' if seen.slots > 1 else ''}" if others else ""
    return f"held{who}{command}{more}"


def where_options(given: Mapping[str, str | bool]) -> tuple[str, ...]:
    """The options of this command line without which another command would look elsewhere; no secret is in them."""
    options: list[str] = []
    if given.get("config"):
        options += ["--config", str(given["config"])]
    if given.get("backend"):
        options += ["-b", without_secrets(str(given["backend"]))]
    return tuple(options)


def without_secrets(text: str) -> str:
    """A backend as it was written, without its password and where a password comes from; a profile as it is.

    What looks like a password in a URL with a mistake is left out too.
    """
    rest, question, query = text.partition("?")
    scheme, colon, place = rest.partition(":")
    netloc = place[2:].partition("/")[0] if place.startswith("//") else ""
    if "@" in (netloc if scheme.lower() in LOCAL else rest):
        userinfo, _, place = place.rpartition("@")
        user = userinfo.lstrip("/").partition(":")[0]
        # what stands there alone is a token of Consul, or a key of Azure, in a URL without its colon
        hidden = scheme.lower().startswith(("consul", "azblob"))
        shown = f"{user}@" if user and userinfo.startswith("//") and not hidden else ""
        rest = f"{scheme}://{shown}{place}" if colon else rest.rpartition("@")[2]
    pairs = [pair for pair in query.split("&") if pair and unquote(pair.partition("=")[0]) not in SECRETS]
    return rest + (question + "&".join(pairs) if pairs else "")


def _who(holder: Holder | Waiter) -> str:
    host = printable(holder.host) if holder.host else "an unknown host"
    pid = f" pid {holder.pid}" if holder.pid else ""
    user = f" ({printable(holder.user)})" if holder.user else ""
    return host + pid + user


def _since(holder: Holder, *, brief: bool) -> str:
    if holder.acquired_at is None:
        return ""
    age = format_age(wall() - holder.acquired_at)
    return f" for {age}" if brief else f" since {utc(holder.acquired_at)} ({age})"


def lock_document(lock: LockInfo) -> dict[str, object]:
    """One lock as the JSON of the contract has it: every key present, ``null`` for what is not known."""
    return {
        "name": lock.name,
        "backend": lock.backend,
        "key": lock.key,
        "state": lock.state,
        "fencing": lock.fencing,
        "slots": lock.slots,
        "holders": [holder_document(holder) for holder in lock.holders],
        "waiters": None
        if lock.waiters is None
        else [
            {"host": waiter.host, "pid": waiter.pid, "user": waiter.user, "since": _moment(waiter.since)}
            for waiter in lock.waiters
        ],
        "last_run": None if lock.last_run is None else last_run_document(lock.last_run),
    }


def last_run_document(run: Run) -> dict[str, object]:
    """One run as the JSON of the contract has it in ``last_run``."""
    return {
        "host": run.host,
        "command": None if run.command is None else list(run.command),
        "token": run.token,
        "started_at": _moment(run.started_at),
        "duration": None if run.duration is None else round(run.duration, 3),
        "outcome": run.outcome,
        "exit_code": run.exit_code,
        "labels": dict(run.labels),
    }


def run_document(name: str, backend: str, run: Run) -> dict[str, object]:
    """One run as the JSON of ``history`` has it."""
    return {
        "name": name,
        "backend": backend,
        **last_run_document(run),
        "user": run.user,
        "ended_at": _moment(run.ended_at),
        "waited": None if run.waited is None else round(run.waited, 3),
        "detail": run.detail,
    }


def holder_document(holder: Holder) -> dict[str, object]:
    """One holder as the JSON of the contract has it."""
    return {
        "owner": holder.owner,
        "host": holder.host,
        "pid": holder.pid,
        "user": holder.user,
        "command": None if holder.command is None else list(holder.command),
        "token": holder.token,
        "mode": holder.mode,
        "acquired_at": _moment(holder.acquired_at),
        "expires_in": None if holder.expires_in is None else round(holder.expires_in, 3),
        "ended_at": _moment(holder.ended_at),
        "labels": None if holder.labels is None else dict(holder.labels),
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc(seconds)


def json_array(documents: Iterable[str]) -> str:
    """What ``json.dumps(..., indent=2)`` makes of a list, without all its documents as objects at once."""
    inner = ",\n".join("  " + text.replace("\n", "\n  ") for text in documents)
    return f"[\n{inner}\n]" if inner else "[]"
