"""``--report``: the outcome of a run as JSON."""

from __future__ import annotations

import os

from lockctl import config, names
from lockctl.cli import exit_status
from lockctl.cli.files import can_put, put
from lockctl.cli.output import holder_document
from lockctl.clock import utc
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import Outcome
from lockctl.names import printable
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockctl.cli.messages import Talk
    from lockctl.config_file import ConfigFile


def check_place(path: str) -> None:
    """Find out before anything runs whether the report can be written; raises ``ValueError``."""
    if not can_put(path):
        raise ValueError(f"cannot write {printable(path)}: no such directory, no permission, or not a file")


def write_report(path: str, outcome: Outcome, talk: Talk) -> None:
    """Write it. A failure is said; the status stays the job's."""
    import json

    document = {
        "name": outcome.name or None,
        "backend": outcome.backend or None,
        "host": outcome.host,
        "command": list(outcome.words) or None,
        "token": outcome.token,
        "started_at": None if outcome.started_at is None else utc(outcome.started_at),
        "duration": None if outcome.duration is None else round(outcome.duration, 3),
        "waited": round(outcome.waited, 3),
        "outcome": outcome.kind,
        "exit_code": None if outcome.status is None else exit_status.of_wait_status(outcome.status),
        "detail": outcome.detail or _which(outcome),
        "not_released": outcome.not_released or None,
        "labels": dict(outcome.labels),
        "holder": holder_document(outcome.seen.holders[0]) if outcome.seen and outcome.seen.holders else None,
    }
    text = json.dumps(document, indent=2) + "\n"
    try:
        put(path, text.encode("utf-8", "surrogateescape"))
    except OSError as failure:
        talk("warning", f"cannot write the report {path}: {failure.strerror}")


def speak_as_wanted(given: Mapping[str, str | bool], environ: Mapping[str, str], talk: Talk) -> None:
    """Have *talk* go on as the settings want it, as far as they have no mistake, for an error that came before them."""
    file = _file(given, environ)
    lock = talk.lock or (str(given["lock"]) if "lock" in given else None)
    found = {}
    for name in ("log_format", "verbose", "quiet"):
        try:
            found[name] = config.effective(name, given, environ, file, lock).content
        except LockctlError:
            found[name] = None
    talk.configure(as_json=found["log_format"] == "json", verbose=bool(found["verbose"]), quiet=bool(found["quiet"]))


def _file(given: Mapping[str, str | bool], environ: Mapping[str, str]) -> ConfigFile | None:
    """The configuration file, if there is one without a mistake."""
    try:
        return config.read_config(config.config_path(given.get("config"), environ))
    except LockctlError:
        return None


def report_refusal(
    given: Mapping[str, str | bool],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    error: str,
    talk: Talk,
    kind: str = "not_executed",
) -> None:
    """The same, and its metrics, for a run that an error ended before there was an outcome, as far as wanted.

    Whatever of the settings is not the mistake itself still counts.
    """
    report, metrics, patterns, backend = None, None, (), ""
    lock = talk.lock or (str(given["lock"]) if "lock" in given else None)
    file = _file(given, environ)
    try:
        report = config.effective("report", given, environ, file, lock).content
        metrics = config.effective("metrics_dir", given, environ, file, lock).content
        patterns = config.effective("redact", given, environ, file, lock).content or ()
        backend = config.backend_url(config.effective("backend", given, environ, file, lock), environ, file).scheme
    except LockctlError:
        pass
    outcome = Outcome(kind, lock or "", backend, (), os.uname().nodename, 0.0)
    if report is not None and can_put(report):
        from lockctl.cli import redact

        shown = redact.hide(words, patterns) if words else ()
        write_report(report, replace(outcome, words=shown, detail=error), talk)
    if metrics is not None and os.path.isdir(metrics) and lock and names.is_name(lock):
        from lockctl.cli.metrics import write_metrics

        write_metrics(metrics, (lock,), outcome, talk)


def kind_of(error: Exception) -> str:
    """The outcome of a run that an error ended before its command was started."""
    if isinstance(error, BackendUnavailable):
        return "unavailable"
    return (
        "held"
        if isinstance(error, LockctlError) and exit_status.of_error(error) == exit_status.HELD
        else "not_executed"
    )


def _which(outcome: Outcome) -> str | None:
    """Of several locks, the one that *holder* has."""
    seen = outcome.seen
    return f"{seen.name} is held" if seen is not None and seen.name != outcome.name else None
