"""Semaphores, readers and writers, through the command line."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import registry
from tests.faults.backends import PLACES, on_backends, on_sample
from tests.fleet.visits import INSIDE, visits
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

WITH_SLOTS = [name for name in PLACES if registry.load(name).capabilities.slots]
SHARED = [name for name in PLACES if registry.load(name).capabilities.shared]


def test_there_are_backends_for_both() -> None:
    assert len(WITH_SLOTS) >= 6
    assert len(SHARED) >= 5


@pytest.mark.parametrize("backend_name", on_sample(*SHARED))
def test_a_writer_is_never_inside_with_anybody_and_is_not_starved(lockctl: Lockctl, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("--wait", "120s", "--", "sh", "-c", INSIDE, str(log))
    jobs = [
        lockctl.start("run", "-l", "a", *(() if number % 6 == 5 else ("--shared",)), *words, f"{number % 6}")
        for number in range(12)
    ]
    assert [job.wait(120) for job in jobs] == [0] * 12
    inside: list[str] = []
    most = 0
    for _, sign, who in visits(log):
        if sign == "+":
            inside.append(who)
        else:
            inside.remove(who)
        assert "5" not in inside or len(inside) == 1
        most = max(most, len(inside))
    assert most > 1


@pytest.mark.parametrize("backend_name", on_sample(*SHARED))
def test_a_stream_of_readers_does_not_starve_a_writer(lockctl: Lockctl, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    first = lockctl.start_holding("a", "--shared")
    writer = lockctl.start("run", "-l", "a", "--wait", "60s", "--", "touch", str(begun))
    eventually(lambda: lockctl("run", "-l", "a", "--shared", "--", "true").returncode == 75, LIMIT)
    readers = [lockctl.start("run", "-l", "a", "--shared", "--wait", "60s", "--", "sleep", "1") for _ in range(4)]
    first.terminate()
    assert first.wait(LIMIT) == 128 + signal.SIGTERM
    assert writer.wait(LIMIT) == 0
    assert begun.exists()
    assert [reader.wait(LIMIT) for reader in readers] == [0] * 4


@pytest.mark.parametrize("backend_name", on_sample(*WITH_SLOTS))
def test_who_says_another_number_of_slots_is_refused_with_both_numbers(lockctl: Lockctl) -> None:
    lockctl.start_holding("a", "--slots", "3")
    for options in (("--slots", "4"), ()):
        done = lockctl("run", "-l", "a", *options, "--", "true")
        assert (done.returncode, done.stderr.count("\n")) == (78, 1)
        assert "3 slots" in done.stderr
    assert lockctl("run", "-l", "a", "--slots", "3", "--", "true").returncode == 0


@pytest.mark.parametrize("backend_name", on_backends("redlock", "consul", "nats"))
def test_a_backend_that_does_not_have_it_says_so_before_anything_runs(lockctl: Lockctl, backend_name: str) -> None:
    for option, there in ((("--slots", "2"), WITH_SLOTS), (("--shared",), SHARED)):
        begin = time.monotonic()
        done = lockctl("run", "-l", "a", *option, "--", "echo", "ran")
        if backend_name in there:
            assert (done.returncode, done.stdout) == (0, "ran\n")
            continue
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
        assert option[0] in done.stderr
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("backend_name", on_backends("file"))
@pytest.mark.parametrize("number", ["0", "-1", "1001", "x", "1.5", "99999999999"])
def test_a_number_of_slots_that_is_none_is_refused(lockctl: Lockctl, number: str) -> None:
    done = lockctl("run", "-l", "a", f"--slots={number}", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--slots" in done.stderr


@pytest.mark.parametrize("backend_name", on_sample(*(name for name in WITH_SLOTS if name != "file")))
def test_who_takes_one_of_several_places_is_not_told_that_the_lock_is_free(lockctl: Lockctl) -> None:
    holders = [lockctl.start_holding("a", "--slots", "2") for _ in range(2)]
    seen = json.loads(lockctl("inspect", "a", "--json").stdout)["holders"]
    token, rest = (
        [str(holder["token"]) for holder in seen if (holder["pid"] == holders[0].pid) is own] for own in (True, False)
    )
    done = lockctl("force-release", "a", "--now", "--yes", "--token", *token)
    assert done.returncode == 0
    assert "one holder of a was removed, 1 more hold it" in done.stderr
    assert holders[0].wait(LIMIT) == 76
    done = lockctl("force-release", "a", "--now", "--yes", "--token", *rest)
    assert "a is free" in done.stderr
    assert holders[1].wait(LIMIT) == 76
