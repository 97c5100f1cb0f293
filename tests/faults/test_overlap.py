"""Promise 5.1: whatever happens to the first run, nobody of its job is alive when the next command starts."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from lockctl.supervise import tree
from tests.faults.backends import LEASED, TWINS, announced
from tests.faults.scene import Scene, marked
from tests.jobs import LIMIT, eventually, stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

ROUNDS = int(os.environ.get("OVERLAP_ROUNDS", "1"))  # more on request
REPETITIONS = 6 * ROUNDS  # with files, which take no time to be freed; two at once of daemons that never stop forking
REPETITIONS_OF_LEASES = 2 * ROUNDS  # an even number: every other one has a daemon that closed what it inherited
AT_ONCE = 5  # more would need more than a lease of files on a machine whose other processor is taken
LIVES_ON = 0.5  # seconds: a next command that does not wait would start within them
TTL_OF_FILES = 4.0  # seconds: longer than what starts beside other tests


def nothing(_: Scene, __: Lockctl) -> None:
    """The job itself is the fault."""


def kill_keeper(scene: Scene, _: Lockctl) -> None:
    os.kill(scene.first.pid, signal.SIGKILL)


def kill_guard(scene: Scene, _: Lockctl) -> None:
    os.kill(scene.guard, signal.SIGKILL)


def kill_both(scene: Scene, _: Lockctl) -> None:
    both = [scene.first.pid, scene.guard]
    for pid in both if int(scene.name[1:]) % 2 else reversed(both):
        tree.send(pid, signal.SIGKILL)  # the second may already be dying of the first's death


def kill_both_of_a_daemon(scene: Scene, lockctl: Lockctl) -> None:
    """It lives on for a while, and nobody ends it."""
    kill_both(scene, lockctl)
    time.sleep(LIVES_ON)
    (scene.directory / "enough").touch()


def kill_by_name(scene: Scene, _: Lockctl) -> None:
    """What `pkill -KILL -f lockctl` does."""
    for pid in sorted((scene.first.pid, scene.guard)):
        shown = [Path(f"/proc/{pid}/{each}").read_bytes() for each in ("comm", "cmdline")]
        if any(b"lockctl" in each for each in shown):
            os.kill(pid, signal.SIGKILL)


def stop_keeper(scene: Scene, _: Lockctl) -> None:
    stop(scene.first.pid)


def stop_guard(scene: Scene, _: Lockctl) -> None:
    os.kill(scene.guard, signal.SIGSTOP)


def revoke(scene: Scene, lockctl: Lockctl) -> None:
    answer = lockctl("force-release", scene.name, "--yes")
    assert answer.returncode == 0, answer.stderr


def kill_keeper_of_a_stopped_command(scene: Scene, _: Lockctl) -> None:
    eventually(lambda: (tree.stat_fields(scene.command()) or [b""])[0] == b"T")
    os.kill(scene.first.pid, signal.SIGKILL)


class Fault(NamedTuple):
    """One kind of accident."""

    happen: Callable[[Scene, Lockctl], None]
    status: int | tuple[int, ...]  # of the first lockctl, as Popen has it
    traits: tuple[str, ...] = ("daemon",)
    options: tuple[str, ...] = ()
    may_close: bool = True  # the promise also holds for a daemon that closed the lock's descriptor
    leased: bool = True  # it is tried with leases too; else it is about processes alone, whatever the backend


FAULTS = {
    "keeper killed": Fault(kill_keeper, -signal.SIGKILL),
    "guard killed": Fault(kill_guard, 128 + signal.SIGKILL),
    "whatever is called lockctl killed": Fault(kill_by_name, -signal.SIGKILL),
    # nobody is left to end the daemon: the kernel keeps the lock for as long as it has the descriptor
    "keeper and guard killed": Fault(
        kill_both_of_a_daemon,
        (-signal.SIGKILL, 128 + signal.SIGKILL),
        may_close=False,
        leased=False,
    ),
    "keeper and guard killed, no daemon": Fault(kill_both, (-signal.SIGKILL, 128 + signal.SIGKILL), ()),
    "keeper stopped": Fault(stop_keeper, 76),
    "guard stopped": Fault(stop_guard, 76),
    "ignores TERM, revoked": Fault(revoke, 76, ("daemon", "deaf")),
    "ignores TERM, max-runtime": Fault(nothing, 124, ("daemon", "deaf"), ("--max-runtime", "3s"), leased=False),
    "leaves a daemon": Fault(nothing, 0, ("daemon", "leaves"), leased=False),
    "leaves a daemon that hops from pid to pid": Fault(nothing, 0, ("daemon", "hops", "leaves"), leased=False),
    "keeper killed, a daemon hops from pid to pid": Fault(
        kill_keeper, -signal.SIGKILL, ("daemon", "hops"), leased=False
    ),
    "guard killed, a daemon hops from pid to pid": Fault(
        kill_guard, 128 + signal.SIGKILL, ("daemon", "hops"), leased=False
    ),
    "stops itself": Fault(kill_keeper_of_a_stopped_command, -signal.SIGKILL, ("daemon", "halts"), leased=False),
}


def rehearse(fault: Fault, lockctl: Lockctl, place: Place, directory: Path, number: int) -> list[str]:
    """One repetition; what went wrong."""
    closed = ("closed",) * (fault.may_close and number % 2)
    scene = Scene(lockctl, place.ttl, directory / str(number), f"r{number}", (*fault.traits, *closed), *fault.options)
    fault.happen(scene, lockctl)
    scene.await_second()
    wrong = []
    if fault.happen is stop_keeper:
        os.kill(scene.first.pid, signal.SIGCONT)  # it was not needed for anything above
    expected = fault.status if isinstance(fault.status, tuple) else (fault.status,)
    for process, statuses in ((scene.first, expected), (scene.second, (0,))):
        if process.wait(LIMIT) not in statuses:
            wrong.append(f"exit status {process.returncode}, not {statuses}")
    try:
        eventually(lambda: not marked(scene.mark))
    except AssertionError:
        wrong.append("processes of the runs are left")
    return wrong + scene.overlaps()


def rehearse_often(fault: str, lockctl: Lockctl, place: Place, directory: Path, times: int, at_once: int) -> None:
    """So many repetitions of a fault, so many of them at once."""
    with ThreadPoolExecutor(at_once) as pool:
        rounds = pool.map(lambda number: rehearse(FAULTS[fault], lockctl, place, directory, number), range(times))
        assert list(rounds) == [[]] * times


def leased() -> list[object]:
    """Each fault on each store, but on two of those alone that differ by their drivers; on all if EVERY_STORE is set."""
    groups = 1 if os.environ.get("EVERY_STORE") else len(TWINS) // 2
    cases: list[object] = []
    for number, fault in enumerate(fault for fault in FAULTS if FAULTS[fault].leased):
        left_out = [twin for place, twin in enumerate(TWINS) if (place - number) % groups]
        cases += [pytest.param(fault, name, marks=announced(name)) for name in LEASED if name not in left_out]
    return cases


@pytest.mark.parametrize(("fault", "backend_name"), leased())
def test_the_next_command_starts_after_the_last_process_of_the_first_job_is_gone(
    fault: str, place: Place, lockctl: Lockctl, tmp_path: Path
) -> None:
    rehearse_often(fault, lockctl, place, tmp_path, REPETITIONS_OF_LEASES, AT_ONCE)


HOPPING = [fault for fault in FAULTS if "hops" in FAULTS[fault].traits]


@pytest.mark.parametrize("backend_name", ["file"])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in HOPPING])
def test_so_it_does_with_files(fault: str, place: Place, lockctl: Lockctl, tmp_path: Path) -> None:
    with_time = place._replace(ttl=TTL_OF_FILES)
    rehearse_often(fault, lockctl, with_time, tmp_path, REPETITIONS, AT_ONCE)


@pytest.mark.parametrize("backend_name", ["file"])
@pytest.mark.parametrize("fault", HOPPING)
def test_so_it_does_when_a_daemon_hops_from_pid_to_pid(
    fault: str, place: Place, lockctl: Lockctl, tmp_path: Path
) -> None:
    """So many processes come and go that this runs alone."""
    rehearse_often(fault, lockctl, place, tmp_path, REPETITIONS, 2)
