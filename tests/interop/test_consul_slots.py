"""`consul lock -n` and `lockctl run --slots` share the same slots, and no more of them than there are."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LockctlError
from tests.contract.harness import claim, one_of, refused, take, waiters
from tests.contract.keeping import holder_of, revoke
from tests.interop.test_consul import HELD, Place, consul_lock, marked, place
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.test_consul import Start
    from tests.jobs import Lockctl

__all__ = ["consul_lock", "place"]  # fixtures
MISCONFIGURED = "78"


def waiting_job(path: Path) -> tuple[str, ...]:
    """The words of a job for lockctl that makes a file, and goes on until another one is there."""
    return ("--", "sh", "-c", marked(path, "true"))


def states(place: Place) -> tuple[str, int, int]:
    """The state of the lock, its slots, and how many have one."""
    shown = place.client.inspect("nightly", timeout=LIMIT)
    return shown.state, shown.slots, len(shown.holders)


def test_two_of_consul_lock_and_one_of_lockctl_fill_three_slots_and_all_others_wait_for_any_of_them(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    theirs = [consul_lock("-n", "3", marked(tmp_path / f"theirs{number}", "true")) for number in range(2)]
    eventually(lambda: all((tmp_path / f"theirs{number}").exists() for number in range(2)))
    ours = lockctl.start(*place.run, "--slots", "3", *waiting_job(tmp_path / "ours"))
    eventually((tmp_path / "ours").exists)
    assert states(place) == ("foreign", 3, 3)
    refusal = lockctl(*place.run, "--slots", "3", "--", "true")
    assert str(refusal.returncode) == HELD, refusal.stderr
    assert consul_lock("-n", "3", "-timeout=1s", f"touch {tmp_path}/overlap").wait(LIMIT) != 0

    # one of theirs leaves: ours goes on; ours leaves: one of theirs goes on
    our_waiter = lockctl.start(*place.run, "--slots", "3", "-w", "20s", *waiting_job(tmp_path / "our-waiter"))
    eventually(lambda: waiters(place.client))
    assert not (tmp_path / "our-waiter").exists()
    (tmp_path / "theirs0.end").touch()
    eventually((tmp_path / "our-waiter").exists)
    their_waiter = consul_lock("-n", "3", marked(tmp_path / "their-waiter", "true"))
    time.sleep(0.5)
    assert not (tmp_path / "their-waiter").exists()
    (tmp_path / "ours.end").touch()
    eventually((tmp_path / "their-waiter").exists)
    assert states(place) == ("foreign", 3, 3)

    for name in ("theirs1", "our-waiter", "their-waiter"):
        (tmp_path / f"{name}.end").touch()
    assert [each.wait(LIMIT) for each in (*theirs, ours, our_waiter, their_waiter)] == [0] * 5
    assert not (tmp_path / "overlap").exists()


def test_who_says_another_number_is_refused_by_either_side(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    theirs = consul_lock("-n", "2", marked(tmp_path / "theirs", "true"))
    eventually((tmp_path / "theirs").exists)
    refusal = lockctl(*place.run, "--slots", "3", "--", "true")
    assert str(refusal.returncode) == MISCONFIGURED
    assert "in use with 2 slots, not 3" in refusal.stderr
    (tmp_path / "theirs.end").touch()
    assert theirs.wait(LIMIT) == 0
    ours = lockctl.start(*place.run, "--slots", "3", *waiting_job(tmp_path / "ours"))
    eventually((tmp_path / "ours").exists)
    for words in (("-n", "2"), ()):
        assert consul_lock(*words, "-timeout=5s", f"touch {tmp_path}/overlap").wait(LIMIT) != 0
    (tmp_path / "ours.end").touch()
    assert ours.wait(LIMIT) == 0
    assert not (tmp_path / "overlap").exists()


def test_after_the_last_has_left_the_lock_can_be_used_in_every_way_again(place: Place, consul_lock: Start) -> None:
    ways: dict[str, Callable[[], bool]] = {
        "our slot": lambda: refused(place.client, one_of(2)),
        "their slot": lambda: consul_lock("-n", "2", "-timeout=5s", "true").wait(LIMIT) != 0,
        "our lock": lambda: refused(place.client, claim()),
        "their lock": lambda: consul_lock("-timeout=5s", "true").wait(LIMIT) != 0,
        "our other number": lambda: refused(place.client, one_of(5)),
    }
    names, order = list(ways), list[str]()
    for number, name in enumerate(names):  # each comes once behind each, itself too
        order.append(name)
        for later in names[number + 1 :]:
            order += [name, later]
    order.append(names[0])
    assert len(set(itertools.pairwise(order))) == len(names) ** 2
    for before, name in itertools.pairwise(["nobody", *order]):
        assert not ways[name](), f"{name} after {before}"
        assert place.entry() is None


def test_the_slot_of_a_killed_lockctl_becomes_free_for_consul_lock_and_the_lock_for_one_afterwards(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    words = ("run", "-b", place.url, "-t", "1s", "-l", "nightly", "--slots", "2")
    killed = lockctl.start(*words, *waiting_job(tmp_path / "killed"))
    other = lockctl.start(*place.run, "--slots", "2", *waiting_job(tmp_path / "other"))
    eventually((tmp_path / "killed").exists)
    eventually((tmp_path / "other").exists)
    killed.kill()
    killed.wait(LIMIT)
    began = time.monotonic()
    assert consul_lock("-n", "2", "-timeout=20s", "true").wait(LIMIT) == 0
    assert time.monotonic() - began < 8
    other.kill()
    other.wait(LIMIT)
    # what a vanished holder leaves has the flags of a semaphore, which keep `consul lock` out until lockctl was in
    eventually(lambda: states(place)[0] == "free", limit=15)
    assert consul_lock("-timeout=5s", "true").wait(LIMIT) != 0
    # the lock delay of that holder is over within LIMIT
    assert lockctl(*place.run, "--wait", f"{LIMIT}s", "--", "true").returncode == 0
    assert consul_lock("-timeout=5s", "true").wait(LIMIT) == 0


def test_a_slot_of_consul_lock_can_be_taken_away_and_its_command_is_ended(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    ours = lockctl.start(*place.run, "--slots", "2", *waiting_job(tmp_path / "ours"))
    eventually((tmp_path / "ours").exists)
    theirs = consul_lock("-n", "2", f"touch {tmp_path}/theirs; exec sleep 60")
    eventually((tmp_path / "theirs").exists)
    seen = place.client.inspect("nightly", timeout=LIMIT).holders[0]
    assert seen.owner is None
    with pytest.raises(LockctlError, match="cannot be told"):
        revoke(place.client, seen)
    assert revoke(place.client, seen, now=True) is not None
    theirs.wait(LIMIT)  # long before its sleep ends
    assert states(place) == ("held", 2, 1)
    (tmp_path / "ours.end").touch()
    assert ours.wait(LIMIT) == 0


def test_lockctl_and_consul_lock_in_turn_are_never_more_than_the_slots(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job = f"echo in >> {log}; sleep 0.1; echo out >> {log}"
    runs: list[subprocess.Popen[str]] = []
    for _ in range(5):
        runs.append(lockctl.start(*place.run, "--slots", "2", "-w", "60s", "--", "sh", "-c", job))
        runs.append(consul_lock("-n", "2", job))
    assert [run.wait(60) for run in runs] == [0] * 10
    inside, most = 0, 0
    for line in log.read_text().split():
        inside += 1 if line == "in" else -1
        most = max(most, inside)
    assert (inside, most) == (0, 2)
    assert place.entry() is None


def test_consul_lock_does_not_know_of_a_lock_that_min_hold_keeps(place: Place, consul_lock: Start) -> None:
    place.client.release(take(place.client, claim()), timeout=LIMIT, hold=30.0)
    assert refused(place.client, claim())
    assert refused(place.client, one_of(2))
    assert consul_lock("-timeout=5s", "true").wait(LIMIT) == 0
    assert states(place) == ("held", 1, 1)
    assert revoke(place.client, holder_of(place.client), now=True) is not None
    take(place.client, claim())
