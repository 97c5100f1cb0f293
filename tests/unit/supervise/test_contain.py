"""lockctl.supervise.contain: an init that has ended before its guard says so. The namespaces are in tests/run."""

from __future__ import annotations

import os

import pytest

from lockctl.supervise import contain, tree


def be_init(_: int, answer: int, __: tuple[int, ...]) -> None:
    os.write(answer, b"0")  # and end, as by a KILL that was for the whole job


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> contain.Init:
    """One that has ended, and was not waited for."""
    monkeypatch.setattr(contain, "_be_init", be_init)
    made = contain.Init()
    os.waitid(os.P_PID, made.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(tree, "children", lambda _: [made.pid])
    return made


def test_an_init_that_was_killed_with_its_job_is_told_nothing(init: contain.Init) -> None:
    init.command_ended()
    init.let_end()
    init.end()


def test_an_init_that_was_waited_for_is_not_killed(init: contain.Init) -> None:
    os.waitpid(init.pid, 0)
    init.end()


def test_an_init_is_waited_for_when_it_is_ended(init: contain.Init) -> None:
    init.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(init.pid, 0)
