"""``--metrics-dir``: what the runs under each lock have come to, for the textfile collector of Prometheus.

Each lock has one file, which is its own memory: a run reads it, adds itself and replaces it, under a lock of the
directory. What is read is untrusted: whatever is not a line of ours counts as if it were not there.
"""

from __future__ import annotations

import fcntl
import os
import stat
from time import monotonic, sleep

from lockctl.cli import exit_status
from lockctl.cli.files import put, takes_files
from lockctl.clock import wall
from lockctl.model import OUTCOMES, Outcome
from lockctl.names import printable
from lockctl.url import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.cli.messages import Talk

COUNTER, SUMMARY, GAUGE = "counter", "summary", "gauge"
METRICS = {
    "lockctl_runs_total": (COUNTER, "Runs, by their outcome as in --report."),
    "lockctl_wait_seconds": (SUMMARY, "Time from asking for the lock until it was acquired, or was not."),
    "lockctl_acquire_seconds": (SUMMARY, "Time of the request that acquired the lock."),
    "lockctl_hold_seconds": (SUMMARY, "Time from acquiring the lock until it was released."),
    "lockctl_renewals_total": (COUNTER, "Renewals of leases that succeeded."),
    "lockctl_renewal_failures_total": (COUNTER, "Renewals of leases that failed or were not answered."),
    "lockctl_leases_lost_total": (COUNTER, "Runs that were stopped because the lease was lost."),
    "lockctl_revocations_total": (COUNTER, "Runs that were stopped by lockctl force-release."),
    "lockctl_stale_tokens_total": (COUNTER, "Runs whose token was refused by the resource of --fence."),
    "lockctl_last_run_timestamp_seconds": (GAUGE, "When the last run ended or was refused."),
    "lockctl_last_success_timestamp_seconds": (GAUGE, "When the command last ended with status 0."),
    "lockctl_last_exit_code": (GAUGE, "Exit status of the command in the last run in which it was started."),
}
PATIENCE = 1.0  # seconds for another run that writes
PAUSE = 0.01
LARGEST = 1 << 16  # bytes: far more than one file has


def check_directory(path: str) -> None:
    """Find out before anything runs whether a file can be written there; raises ``ValueError``."""
    place = absolute(path)
    if not (os.path.isdir(place) and os.access(place, os.R_OK) and takes_files(place)):
        raise ValueError(f"{printable(path)} is not a directory in which this user can write: create it")


def write_metrics(directory: str, locks: tuple[str, ...], outcome: Outcome, talk: Talk) -> None:
    """Add a run to the file of each lock. A failure is said; the status stays the job's."""
    directory = absolute(directory)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(descriptor)
            for lock in locks:
                path = f"{directory}/lockctl-{lock}.prom"
                put(path, _text(_updated(_read(path), lock, outcome)).encode(), 0o644)
        finally:
            os.close(descriptor)
    except OSError as failure:
        talk("warning", f"cannot write metrics to {directory}: {failure.strerror}")


def _lock(descriptor: int) -> None:
    """Raises ``BlockingIOError`` if another has it for long."""
    until = monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                raise
            sleep(PAUSE)


def _read(path: str) -> dict[str, float]:
    """The samples in a file of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.read(descriptor, LARGEST).decode("ascii", "replace") if is_file else ""
    finally:
        os.close(descriptor)
    samples = {}
    for line in text.splitlines():
        name, _, written = line.rpartition(" ")
        try:
            number = float(written)
        except ValueError:
            continue
        if 0 <= number < float("inf"):
            samples[name] = number
    return samples


def _updated(old: dict[str, float], lock: str, outcome: Outcome) -> dict[str, float]:
    """The samples after one more run; those that no run has set yet are left out."""
    samples: dict[str, float] = {}

    def add(name: str, more: float, label: str = "") -> None:
        key = f'{name}{{lock="{lock}"{label}}}'
        samples[key] = old.get(key, 0.0) + more

    def observe(name: str, seconds: float | None) -> None:
        add(f"{name}_sum", seconds or 0.0)
        add(f"{name}_count", seconds is not None)

    def note(name: str, content: float | None) -> None:
        key = f'{name}{{lock="{lock}"}}'
        if content is not None or key in old:
            samples[key] = old[key] if content is None else content

    for kind in OUTCOMES:
        add("lockctl_runs_total", kind == outcome.kind, f',outcome="{kind}"')
    observe("lockctl_wait_seconds", outcome.waited)
    observe("lockctl_acquire_seconds", outcome.acquired_in)
    observe("lockctl_hold_seconds", outcome.held)
    add("lockctl_renewals_total", outcome.renewals)
    add("lockctl_renewal_failures_total", outcome.renewal_failures)
    add("lockctl_leases_lost_total", outcome.kind == "lost")
    add("lockctl_revocations_total", outcome.kind == "revoked")
    add("lockctl_stale_tokens_total", outcome.fence == "stale")
    code = None if outcome.status is None else exit_status.of_wait_status(outcome.status)
    note("lockctl_last_run_timestamp_seconds", wall())
    note("lockctl_last_success_timestamp_seconds", wall() if outcome.kind == "exited" and code == 0 else None)
    note("lockctl_last_exit_code", code)
    return samples


def _text(samples: dict[str, float]) -> str:
    lines = []
    for metric, (kind, about) in METRICS.items():
        own = [f"{key} {number!r}" for key, number in samples.items() if _metric_of(key) == metric]
        lines += [f"# HELP {metric} {about}", f"# TYPE {metric} {kind}", *own] if own else []
    return "\n".join(lines) + "\n"


def _metric_of(key: str) -> str:
    name = key.partition("{")[0]
    return name if name in METRICS else name.removesuffix("_sum").removesuffix("_count")
