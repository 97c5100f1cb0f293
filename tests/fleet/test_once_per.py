"""A job that many hosts start, and that must succeed once in each period."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import SERVED, on_backends, on_kinds, on_sample
from tests.fleet.hosts import history, with_wrong_clock

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.jobs import Lockctl

LATE = 5.0  # seconds at the end of a period in which no host begins: such a run may be one of the next
LONG = "3650d"  # a period whose end no test meets
HOSTS = 8
LARGEST_ERROR = 20.0  # seconds by which the clock of a host is wrong
PERIOD = 8  # seconds
PERIODS = int(os.environ.get("FLEET_PERIODS", "2"))  # 36 of them are five minutes


def once(
    lockctl: Lockctl, *words: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> CompletedProcess[str]:
    return lockctl("run", "-l", "report", "--once-per", LONG, *options, "--", *words, env=env)


@pytest.mark.parametrize("backend_name", on_sample())
def test_a_success_ends_the_period_and_a_failure_does_not(lockctl: Lockctl, tmp_path: Path) -> None:
    assert once(lockctl, "sh", "-c", "exit 3").returncode == 3
    assert once(lockctl, "/no/such/command").returncode == 127
    assert once(lockctl, "true").returncode == 0
    ran = tmp_path / "ran"
    again = once(lockctl, "touch", str(ran))
    assert again.returncode == 75
    assert "already succeeded" in again.stderr
    assert again.stderr.count("\n") == 1
    ahead = once(lockctl, "touch", str(ran), env=with_wrong_clock(tmp_path, 15.0))
    assert ahead.returncode == 75
    silent = once(lockctl, "touch", str(ran), options=("--skip-ok",))
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    assert not ran.exists()
    assert lockctl("run", "-l", "report", "--", "true").returncode == 0, "only who asks for it is skipped"
    outcomes = [(run["outcome"], run["exit_code"]) for run in history(lockctl, "report")]
    skipped = [("held", None)] * 3
    assert outcomes == [("exited", 0), *skipped, ("exited", 0), ("not_executed", None), ("exited", 3)]
    assert [run["started_at"] is None for run in history(lockctl, "report")][1:4] == [True] * 3


@pytest.mark.parametrize("backend_name", on_backends("file"))
def test_the_next_period_is_another(lockctl: Lockctl) -> None:
    words = ("run", "-l", "report", "--once-per", "2s", "--", "true")
    deadline = time.monotonic() + 30
    statuses: list[int] = []
    while statuses.count(0) < 3:
        assert time.monotonic() < deadline
        statuses.append(lockctl(*words).returncode)
        time.sleep(0.2)
    assert set(statuses) <= {0, 75}


@pytest.mark.parametrize("backend_name", on_kinds(*SERVED))
def test_a_fleet_with_wrong_clocks_succeeds_once_in_each_period_and_retries_failures(
    lockctl: Lockctl, tmp_path: Path
) -> None:
    """Each host fires when its own clock says so; the first run in every other period fails."""
    log, failures = tmp_path / "log", tmp_path / "failed"
    failures.mkdir()
    job = (
        "now=$(date +%s.%N); period=$((${now%.*} / PERIOD)); "
        'if [ $((period % 2)) = 0 ] && mkdir "$1/$period" 2>/dev/null; then exit 1; fi; '
        'sleep 0.01; echo "$period $now $LOCKCTL_TOKEN" >>"$0"'
    ).replace("PERIOD", str(PERIOD))
    words = ("run", "-l", "report", "--once-per", f"{PERIOD}s", "--", "sh", "-c", job, str(log), str(failures))
    start = (time.time() // PERIOD + 1) * PERIOD
    end = start + PERIODS * PERIOD
    statuses: list[int] = []

    def crontab(ahead: float) -> None:
        """A host: at each multiple of the period of its own clock it starts the job."""
        env = with_wrong_clock(tmp_path, ahead)
        while True:
            wait = PERIOD - (time.time() + ahead) % PERIOD
            if time.time() + wait >= end - LATE:
                return
            time.sleep(wait)
            if time.time() >= start:
                statuses.append(lockctl(*words, env=env).returncode)

    with_wrong_clock(tmp_path, 0)
    # never at the very end of a true period: on a busy machine the job would say that it ran in the next one
    phases = [number / (HOSTS - 1) * (PERIOD - LATE) for number in range(HOSTS)]
    whole = [round((number / (HOSTS - 1) * 2 - 1) * LARGEST_ERROR / PERIOD) * PERIOD for number in range(HOSTS)]
    spread = [error - phase for error, phase in zip(whole, phases, strict=True)]
    hosts = [threading.Thread(target=crontab, args=(ahead,)) for ahead in spread]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    lines = [line.split() for line in log.read_text().splitlines()]
    succeeded = [int(period) for period, _, _ in lines]
    # a run that a busy machine was so slow to start that it belongs to the period after the last one counts there
    assert sorted(succeeded)[:PERIODS] == [int(start) // PERIOD + number for number in range(PERIODS)]
    assert len(set(succeeded)) == len(succeeded)
    assert set(statuses) <= {0, 1, 75}
    assert statuses.count(0) == len(succeeded) <= PERIODS + 1
    assert statuses.count(1) == len(list(failures.iterdir())) >= PERIODS // 2
    assert len(statuses) >= HOSTS * (PERIODS - 1)
    tokens = [int(token) for _, _, token in sorted(lines, key=lambda line: float(line[1]))]
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("backend_name", on_backends("file"))
@pytest.mark.parametrize("options", [("--shared",), ("--slots", "2"), ("--restart",)])
def test_what_contradicts_a_period_is_refused(lockctl: Lockctl, options: tuple[str, ...]) -> None:
    done = once(lockctl, "true", options=options)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--once-per" in done.stderr
    assert options[0] in done.stderr


@pytest.mark.parametrize("backend_name", on_backends("file"))
@pytest.mark.parametrize("period", ["0.5s", "-1s", "x", "999ms"])
def test_a_period_that_is_none_is_refused(lockctl: Lockctl, period: str) -> None:
    done = lockctl("run", "-l", "a", f"--once-per={period}", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--once-per" in done.stderr
