"""What is said about a run that did not end like any command."""

from __future__ import annotations

import errno
import os

from lockctl.cli.messages import exhausted
from lockctl.cli.output import held_by, holder_document, where_options
from lockctl.durations import format_age, format_duration
from lockctl.errors import EXHAUSTED, GUARD_KILLED
from lockctl.names import command_line
from lockctl.supervise.signals import signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockctl.cli.messages import Talk
    from lockctl.config import Effective
    from lockctl.model import Outcome


def tell(outcome: Outcome, settings: Mapping[str, Effective], *, where: Mapping[str, str | bool], talk: Talk) -> None:
    """Say it; *where*: the options as they were given, with which another command looks at the same lock."""
    level, text = _said(outcome, settings, where)
    if text:
        seen = outcome.seen
        holder = holder_document(seen.holders[0]) if seen and seen.holders else None
        seconds = outcome.waited if outcome.duration is None else outcome.duration
        talk(level, text, outcome.kind, holder=holder, seconds=seconds)
    if outcome.leftovers:
        talk("warning", left_behind(outcome.leftovers, outcome.left), "leftovers")


def left_behind(count: int, which: str) -> str:
    """That processes outlived the command: how many, and which ones for people."""
    return f"stopped {count} process{'es' if count > 1 else ''} that the command had left behind: {which}"


def _said(outcome: Outcome, settings: Mapping[str, Effective], where: Mapping[str, str | bool]) -> tuple[str, str]:
    """Level and text; no text: nothing is to be said."""
    if outcome.interrupted is not None:
        return "info", f"{signal_name(outcome.interrupted)} ended the wait"
    if outcome.fence:
        return "error", f"nothing was started: {outcome.detail}"
    if outcome.kind == "held":
        if settings["skip_ok"].content:
            return "warning", ""
        which = f"{outcome.seen.name} is " if outcome.seen and outcome.seen.name != outcome.name else ""
        return "warning", outcome.detail or which + held_by(outcome.seen, where_options(where))
    if outcome.kind == "unavailable":
        return "error", outcome.detail
    if outcome.kind == "lost":
        return "warning", f"the lease was lost, the command was stopped: {outcome.detail or 'not renewed in time'}"
    if outcome.kind == "revoked":
        return "warning", f"the lock was revoked, the command was stopped: {outcome.detail}"
    if outcome.kind == "timed_out":
        limit, age = format_duration(settings["max_runtime"].content), format_age(outcome.duration or 0.0)
        return "warning", f"--max-runtime {limit} was reached, the command was stopped after {age}"
    if outcome.kind == "not_executed":
        return "error", _not_executed(outcome)
    return "info", ""


def _not_executed(outcome: Outcome) -> str:
    return outcome.detail or cannot_run(outcome.words, outcome.error)


def cannot_run(words: tuple[str, ...], error: int) -> str:
    """Why a command was not executed, by its errno."""
    if error in EXHAUSTED:
        return exhausted(OSError(error, os.strerror(error)))
    why = "its guard process was killed" if error == GUARD_KILLED else os.strerror(error)
    text = f"cannot run {command_line(words[:1])}: {why}"
    if error != errno.ENOENT:
        return text
    import shutil  # few need it

    if shutil.which(words[0]):
        return f"{text}: not the file, but the interpreter that it names: its first line (#!) may end in CR LF"
    if len(words) == 1 and " " in words[0]:
        text += "; to run a line of shell, give -c (--shell) before it"
    return text
