"""lockctl.supervise.rehearsal: all that comes before the command, and nothing of it stays."""

from __future__ import annotations

import errno
import os
import select
from typing import Any

import pytest

from lockctl.supervise import channel, child, rehearsal
from lockctl.supervise.orders import JOB_VARIABLES
from lockctl.supervise.starting import Starting


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_the_guard_goes_through_a_whole_start_and_nothing_of_it_stays() -> None:
    made = []

    def make(*words: Any, on_terminal: bool) -> Starting:
        made.append(Starting(*words, on_terminal=on_terminal))
        return made[0]

    before = open_descriptors()
    rehearsal.of_guard(make)
    assert open_descriptors() == before
    watch = made[0].job.watch
    assert watch is not None
    assert watch.wake_at() == float("inf")


def test_the_process_of_the_command_goes_as_far_as_to_execute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[Any, ...]] = []
    execute = os.execve

    def execve(path: str, words: list[str], environment: dict[str, str]) -> None:
        with pytest.raises(OSError, match="No such file") as failed:
            execute(path, words, environment)
        tried.append((path, words, environment, failed.value.errno))

    monkeypatch.setattr(os, "execve", execve)
    before, environment = open_descriptors(), {"PATH": "/bin"}
    rehearsal.of_command(("true", "x"), environment)
    assert open_descriptors() == before
    ((path, words, given, number),) = tried
    assert (path, words, number) == ("", ["true", "x"], errno.ENOENT)
    assert given == {"PATH": "/bin", **dict.fromkeys(JOB_VARIABLES, "0123456789")}
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("fails", [False, True])
def test_who_does_not_wait_rehearses_nothing_and_who_waits_does_it_once(
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    one, other = channel.pair()
    poll, done = select.poll(), []

    def of_command(*words: Any) -> None:
        done.append(words)
        one.send(channel.FINISHED)
        if fails:
            raise RuntimeError("another version of this program")

    monkeypatch.setattr(rehearsal, "of_command", of_command)
    poll.register(other.fileno, select.POLLIN)
    child.wait_for(poll, "of_command", "a", "b")
    assert done == [("a", "b")]
    child.wait_for(poll, "of_command", "a", "b")
    assert done == [("a", "b")]
    one.close()
    other.close()
