"""``--report``: the outcome of a run as JSON."""

from __future__ import annotations

import os

from lockctl import config, json_text, names
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
    text = json_text.on_many_lines(document) + "\n"
    try:
        put(path, text.encode("utf-8", "surrogateescape"))
    except OSError as failure:
        talk("warning", f"cannot write the report {path}: {failure.strerror}")


class Refusal:
    """A run that an error ended before there was an outcome: what its settings want, as far as they have no mistake."""

    def __init__(self, given: Mapping[str, str | bool], environ: Mapping[str, str], talk: Talk) -> None:
        """Read the configuration file, if there is one without a mistake."""
        self._given, self._environ, self._talk = given, environ, talk
        self._lock = talk.lock or (str(given["lock"]) if "lock" in given else None)
        self._file: ConfigFile | None = None
        try:
            self._file = config.read_config(config.config_path(given.get("config"), environ))
        except LockctlError:
            pass

    def tell(self, error: str) -> None:
        """Say the error in the manner that is wanted, which did not count yet."""
        found = {}
        for name in ("log_format", "verbose", "quiet"):
            try:
                found[name] = self._setting(name).content
            except LockctlError:
                found[name] = None
        as_json = found["log_format"] == "json"
        self._talk.configure(as_json=as_json, verbose=bool(found["verbose"]), quiet=bool(found["quiet"]))
        self._talk("error", error)

    def report(self, words: tuple[str, ...], error: str, kind: str = "not_executed") -> None:
        """Write the report and the metrics that are wanted. What is not the mistake itself still counts."""
        report, metrics, patterns, backend = None, None, (), ""
        try:
            report = self._setting("report").content
            metrics = self._setting("metrics_dir").content
            patterns = self._setting("redact").content or ()
            backend = config.backend_url(self._setting("backend"), self._environ, self._file).scheme
        except LockctlError:
            pass
        outcome = Outcome(kind, self._lock or "", backend, (), os.uname().nodename, 0.0)
        if report is not None and can_put(report):
            write_report(report, replace(outcome, words=_shown(words, patterns), detail=error), self._talk)
        if metrics is not None and os.path.isdir(metrics) and self._lock and names.is_name(self._lock):
            from lockctl.cli.metrics import write_metrics

            write_metrics(metrics, (self._lock,), outcome, self._talk)

    def _setting(self, name: str) -> config.Effective:
        return config.effective(name, self._given, self._environ, self._file, self._lock)


def _shown(words: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The words without what nobody may see; none if that took too long."""
    from lockctl.cli import redact

    try:
        return redact.hide(words, patterns) if words else ()
    except ValueError:
        return ()


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
