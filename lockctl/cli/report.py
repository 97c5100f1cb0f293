"""``--report``: the outcome of a run as JSON, whole or not at all."""

from __future__ import annotations

import os

from lockctl.cli import exit_status
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
    directory = os.path.dirname(path) or "."
    if not os.access(directory, os.W_OK | os.X_OK) or os.path.isdir(path):
        message = f"--report: cannot write {printable(path)}: no such directory, no permission, or it is a directory"
        raise UsageError(message)


def write_report(path: str, outcome: Outcome, talk: Talk) -> None:
    """Write it beside the place and rename it there. A failure is said; the status stays the job's."""
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
        "detail": outcome.detail or None,
        "not_released": outcome.not_released or None,
        "holder": holder_document(outcome.seen.holders[0]) if outcome.seen and outcome.seen.holders else None,
    }
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError as failure:
        talk("warning", f"cannot write the report {path}: {failure.strerror}")
        try:
            os.unlink(temporary)
        except OSError:
            return
