"""The program is replaced or removed while it waits or its job runs: a run ends with what it began with."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl as package
from lockctl.supervise.keeper import LOAD_AFTER
from lockctl.supervise.preload import load_rest
from tests.faults.backends import on_backends, on_sample
from tests.faults.scene import GRACE
from tests.faults.waiting import await_waiting
from tests.jobs import LIMIT, Lockctl, eventually, guard_of
from tests.run.acquirer import Acquirer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.backends import Place

POLL, NO_LIMIT = "7", 0xFFFFFFFF  # the number of poll(2), and its last argument: -1
SETTLED = LOAD_AFTER + 1.5  # seconds, also on a busy machine
START = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from lockctl.__main__ import main
main()
"""


@pytest.fixture
def copy(lockctl: Lockctl, tmp_path: Path) -> Iterator[Lockctl]:
    """A program of its own, which may be removed."""
    folder = tmp_path / "program"
    shutil.copytree(Path(package.__file__).parent, folder / "lockctl")
    command = tmp_path / "lockctl"
    command.write_text(START.format(python=sys.executable, folder=str(folder)))
    command.chmod(0o755)
    runner = Lockctl(str(command), lockctl.directory)
    runner.url = lockctl.url
    yield runner
    runner.end_all()


def remove(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "program")


@pytest.mark.parametrize("backend_name", on_sample())
def test_a_job_whose_program_is_removed_ends_as_if_nothing_had_happened(
    copy: Lockctl, lockctl: Lockctl, place: Place, tmp_path: Path
) -> None:
    end, report, said = tmp_path / "end", tmp_path / "report", tmp_path / "said"
    words = ("--", "sh", "-c", 'while ! test -e "$0"; do sleep 0.1; done; exit 7', str(end))
    options = ("-t", f"{place.ttl}s", "-k", f"{GRACE}s", "--report", str(report))
    with said.open("w") as stderr:
        holder = copy.start_holding("nightly", *options, *words, stderr=stderr)
    time.sleep(SETTLED)
    remove(tmp_path)
    time.sleep(1.3 * place.ttl)  # it is renewed meanwhile, or it ends
    end.touch()
    assert (holder.wait(LIMIT), said.read_text()) == (7, "")
    assert '"exit_code": 7' in report.read_text()
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0
    assert '"exit_code": 7' in lockctl("history", "nightly", "--json").stdout


@pytest.mark.parametrize("backend_name", on_backends("file", "redis"))
def test_who_waits_while_the_program_is_removed_gets_the_lock_and_runs(
    copy: Lockctl, lockctl: Lockctl, tmp_path: Path
) -> None:
    holder = lockctl.start_holding("nightly")
    said = tmp_path / "said"
    with said.open("w") as stderr:
        waiter = copy.start("run", "-l", "nightly", "--wait", "forever", "--", "sh", "-c", "exit 7", stderr=stderr)
    await_waiting(lockctl, "nightly", [waiter])
    remove(tmp_path)
    holder.terminate()
    assert (waiter.wait(LIMIT), said.read_text()) == (7, "")
    assert eventually(lambda: lockctl("run", "-l", "nightly", "--", "true").returncode == 0)


OTHER_VERSION = "raise SystemExit('another version, which knows nothing of this one')\n"


@pytest.mark.parametrize("what", ["removed", "replaced"])
@pytest.mark.parametrize("backend_name", on_backends("file", "redis"))
def test_who_waits_to_acquire_while_the_program_is_removed_or_replaced_gets_the_lock(
    copy: Lockctl, lockctl: Lockctl, tmp_path: Path, what: str
) -> None:
    holder = lockctl.start_holding("nightly")
    acquirer, old = Acquirer(lockctl, lockctl.url), Acquirer(copy, lockctl.url)
    handle, said = str(tmp_path / "handle"), tmp_path / "said"
    words = ("acquire", "nightly", "--for", "1m", "--wait", "forever", "--handle", handle)
    try:
        with said.open("w") as stderr:
            waiter = copy.start(*words, env=old.env, stdout=stderr, stderr=stderr)
        eventually(lambda: json.loads(lockctl("inspect", "nightly", "--json").stdout)["waiters"])
        if what == "removed":
            remove(tmp_path)
        else:
            for file in (tmp_path / "program").rglob("*.py"):
                file.write_text(OTHER_VERSION)
        holder.terminate()
        assert (waiter.wait(LIMIT), said.read_text()) == (0, "")
        assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
        for verb in (("renew", "--for", "2m"), ("release",)):
            done = acquirer(*verb, "--handle", handle)
            assert (done.returncode, done.stderr) == (0, ""), verb
        assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0
    finally:
        acquirer.end()


@pytest.mark.parametrize("backend_name", on_sample())
def test_a_job_whose_program_is_removed_is_stopped_when_its_lock_is_asked_for(
    copy: Lockctl, lockctl: Lockctl, place: Place, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with said.open("w") as stderr:
        holder = copy.start_holding("nightly", "-t", f"{place.ttl}s", "-k", f"{GRACE}s", stderr=stderr)
    time.sleep(SETTLED)
    remove(tmp_path)
    assert lockctl("force-release", "nightly", "--yes").returncode == 0
    assert holder.wait(LIMIT) == 76
    (line,) = said.read_text().splitlines()
    assert "the lock was revoked" in line


@pytest.mark.parametrize("backend_name", on_sample())
def test_a_job_whose_program_is_removed_notes_its_success_and_keeps_its_lock(
    copy: Lockctl, lockctl: Lockctl, tmp_path: Path
) -> None:
    end, said = tmp_path / "end", tmp_path / "said"
    words = ("--", "sh", "-c", 'while ! test -e "$0"; do sleep 0.1; done', str(end))
    options = ("--once-per", "1h", "--min-hold", "1m")
    with said.open("w") as stderr:
        holder = copy.start_holding("nightly", *options, *words, stderr=stderr)
    time.sleep(SETTLED)
    remove(tmp_path)
    end.touch()
    assert (holder.wait(LIMIT), said.read_text()) == (0, "")
    refused = lockctl("run", "-l", "nightly", "--", "true")
    assert refused.returncode == 75
    assert "--min-hold" in refused.stderr
    assert lockctl("force-release", "nightly", "--now", "--yes").returncode == 0
    assert "already succeeded" in lockctl("run", "-l", "nightly", "--once-per", "1h", "--", "true").stderr


@pytest.mark.parametrize("backend_name", on_sample())
def test_who_waits_while_the_program_is_removed_is_refused_in_the_end(
    copy: Lockctl, lockctl: Lockctl, tmp_path: Path
) -> None:
    lockctl.start_holding("nightly")
    report, said = tmp_path / "report", tmp_path / "said"
    options = ("-v", "--log-format", "json", "--wait", "4s", "--report", str(report))
    with said.open("w") as stderr:
        waiter = copy.start("run", "-l", "nightly", *options, "--", "true", stderr=stderr)
    await_waiting(lockctl, "nightly", [waiter])
    remove(tmp_path)
    assert waiter.wait(LIMIT) == 75
    assert json.loads(report.read_text())["outcome"] == "held"
    lines = [json.loads(line) for line in said.read_text().splitlines()]
    assert lines[-1]["event"] == "held"


def waits_for_ever(process: int) -> bool:
    """Whether a process is in poll(2) without a limit, as a guard is when it has loaded what an order may need."""
    number, *arguments = Path(f"/proc/{process}/syscall").read_text().split()  # or "running"
    return number == POLL and int(arguments[2], 16) & NO_LIMIT == NO_LIMIT


@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces, as root")
@pytest.mark.parametrize("contain", ["require", "auto"])
def test_who_waits_while_the_program_is_removed_runs_a_contained_job(
    copy: Lockctl, lockctl: Lockctl, tmp_path: Path, contain: str
) -> None:
    holder = lockctl.start_holding("nightly")
    said, options = tmp_path / "said", ("--wait", "forever", "--contain", contain)
    with said.open("w") as stderr:
        waiter = copy.start("run", "-l", "nightly", *options, "--", "sh", "-c", "exit 7", stderr=stderr)
    await_waiting(lockctl, "nightly", [waiter])
    guard = guard_of(waiter.pid)
    eventually(lambda: waits_for_ever(guard))
    remove(tmp_path)
    holder.terminate()
    assert (waiter.wait(LIMIT), said.read_text()) == (7, "")


@pytest.mark.parametrize("backend_name", on_backends("file"))
def test_a_standby_whose_program_is_away_for_a_while_goes_on_when_it_is_there_again(
    copy: Lockctl, tmp_path: Path
) -> None:
    ran, said, program = tmp_path / "ran", tmp_path / "said", tmp_path / "program"
    with said.open("w") as stderr:
        words = ("sh", "-c", 'echo >>"$0"; sleep 1', str(ran))
        standby = copy.start("run", "-v", "-l", "nightly", "--restart", "--", *words, stderr=stderr)
    eventually(lambda: "waiting for the lock again" in said.read_text())
    program.rename(tmp_path / "away")
    eventually(lambda: "is not there" in said.read_text(), limit=LIMIT)
    before = len(ran.read_text())
    (tmp_path / "away").rename(program)
    eventually(lambda: len(ran.read_text()) > before, limit=LIMIT)
    standby.terminate()
    standby.wait(LIMIT)


def test_what_cannot_be_loaded_is_not_missed_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lockctl.cli.campaign", raising=False)
    monkeypatch.setitem(sys.modules, "lockctl.cli.report", None)  # importing it fails
    load_rest()
    assert "lockctl.cli.campaign" in sys.modules
