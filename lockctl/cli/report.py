"""``--report``: the outcome of a run as JSON."""

from __future__ import annotations

from lockctl.cli import exit_status
from lockctl.cli.files import can_put, put
from lockctl.cli.output import holder_document
from lockctl.clock import utc
from lockctl.errors import UsageError
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.cli.talk import Talk
    from lockctl.model import Outcome


def check_place(path: str) -> None:
    """Find out before anything runs whether the report can be written; raises ``UsageError``."""
    if not can_put(path):
        message = f"--report: cannot write {printable(path)}: no such directory, no permission, or no file"
        raise UsageError(message)


def write_report(path: str, outcome: Outcome, talk: Talk) -> None:
    """Write it. A failure is said; the status stays the job's."""
    import json

    document = {
        "name": outcome.name,
        "backend": outcome.backend,
        "host": outcome.host,
        "command": list(outcome.words),
        "token": outcome.token,
        "started_at": None if outcome.started_at is None else utc(outcome.started_at),
        "duration": None if outcome.duration is None else round(outcome.duration, 3),
        "waited": round(outcome.waited, 3),
        "outcome": outcome.kind,
        "exit_code": None if outcome.status is None else exit_status.of_wait_status(outcome.status),
        "detail": outcome.detail or _which(outcome),
        "not_released": outcome.not_released or None,
        "holder": holder_document(outcome.seen.holders[0]) if outcome.seen and outcome.seen.holders else None,
    }
    text = json.dumps(document, indent=2) + "\n"
    try:
        put(path, text.encode("utf-8", "surrogateescape"))
    except OSError as failure:
        talk("warning", f"cannot write the report {path}: {failure.strerror}")


def _which(outcome: Outcome) -> str | None:
    """Of several locks, the one that *holder* has."""
    seen = outcome.seen
    return f"{seen.name} is held" if seen is not None and seen.name != outcome.name else None
