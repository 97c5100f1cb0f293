"""Several locks in one run: all or none, never a deadlock."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_kinds, on_sample
from tests.fleet.hosts import history, inspect
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

everywhere = pytest.mark.parametrize("backend_name", on_kinds())
of_each_kind = pytest.mark.parametrize("backend_name", on_sample())
BOTH = ("run", "-l", "b", "-l", "a")
CROSSINGS = int(os.environ.get("CROSSINGS", "4"))  # runs of each of the two


@of_each_kind
def test_the_command_gets_a_token_for_each_and_the_first_name_stands_for_all(lockctl: Lockctl) -> None:
    done = lockctl(*BOTH, "--", "sh", "-c", 'echo "$LOCKCTL_LOCK $LOCKCTL_TOKEN $LOCKCTL_TOKENS"')
    assert (done.returncode, done.stderr) == (0, "")
    first, token, *tokens = done.stdout.split()
    assert first == "b"
    assert [word.partition("=")[0] for word in tokens] == ["b", "a"]
    assert tokens[0] == f"b={token}"
    for name, word in zip("ba", tokens, strict=True):
        assert history(lockctl, name)[0]["token"] == int(word.partition("=")[2])
    alone = lockctl("run", "-l", "a", "--", "sh", "-c", 'echo "$LOCKCTL_TOKEN ${LOCKCTL_TOKENS-none}"').stdout.split()
    assert int(alone[0]) > int(tokens[1].partition("=")[2])
    assert alone[1] == "none"


@of_each_kind
def test_all_are_taken_or_none(lockctl: Lockctl, tmp_path: Path) -> None:
    lockctl.start_holding("b")
    ran = tmp_path / "ran"
    done = lockctl(*BOTH, "--wait", "300ms", "--", "touch", str(ran))
    assert done.returncode == 75
    assert "lockctl inspect b" in done.stderr
    assert "is held" not in done.stderr
    assert not ran.exists()
    assert inspect(lockctl, "a")["state"] == "free"


@of_each_kind
def test_which_of_them_is_held_is_said(lockctl: Lockctl, tmp_path: Path) -> None:
    holder = lockctl.start_holding("a")
    report = tmp_path / "report"
    done = lockctl(*BOTH, "--report", str(report), "--", "true")
    assert done.returncode == 75
    assert done.stderr.startswith("lockctl: b: a is held by ")
    document = json.loads(report.read_text())
    assert (document["name"], document["detail"], document["holder"]["pid"]) == ("b", "a is held", holder.pid)


@of_each_kind
def test_one_that_is_named_twice_is_one_lock(lockctl: Lockctl) -> None:
    words = ("run", "-l", "a", "-l", "a", "--", "sh", "-c", 'echo "${LOCKCTL_TOKENS-none}"')
    assert lockctl(*words).stdout == "none\n"
    twice = lockctl(*BOTH, *BOTH[1:], "--", "sh", "-c", 'echo "$LOCKCTL_TOKENS"')
    assert [word.partition("=")[0] for word in twice.stdout.split()] == ["b", "a"]


@of_each_kind
def test_who_holds_both_keeps_everybody_out_of_each(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("a", "-l", "b")
    assert [lockctl("run", "-l", name, "--", "true").returncode for name in "ab"] == [75, 75]
    assert lockctl("run", "-l", "c", "--", "true").returncode == 0
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(LIMIT) == 128 + signal.SIGTERM
    assert lockctl(*BOTH, "--", "true").returncode == 0


@everywhere
def test_locks_that_were_taken_are_kept_while_another_is_waited_for(lockctl: Lockctl, place: Place) -> None:
    """The earlier one outlives its lease, and both come with one deadline."""
    second = lockctl.start_holding("b", "-t", f"{place.ttl}s", "-k", "0.2s")
    waiting = lockctl.start(
        *BOTH, "-t", f"{place.ttl}s", "-k", "0.2s", "--wait", "60s", "--", "sleep", str(1.2 * place.ttl)
    )
    eventually(lambda: inspect(lockctl, "a")["state"] == "held")
    until = time.monotonic() + 1.5 * place.ttl
    while time.monotonic() < until:
        assert lockctl("run", "-l", "a", "--", "true").returncode == 75
        time.sleep(0.5)
    second.send_signal(signal.SIGTERM)
    assert second.wait(LIMIT) == 128 + signal.SIGTERM
    assert waiting.wait(LIMIT) == 0


@of_each_kind
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_request_for_one_of_them_ends_the_job_and_frees_both(lockctl: Lockctl, name: str) -> None:
    holder = lockctl.start_holding("a", "-l", "b")
    assert lockctl("force-release", name, "--yes", "--reason", "why").returncode == 0
    assert holder.wait(LIMIT) == 76
    assert history(lockctl, "a")[0]["detail"].endswith(f", who asked for {name}: why")
    assert lockctl(*BOTH, "--", "true").returncode == 0


@everywhere
def test_a_killed_holder_loses_both(lockctl: Lockctl, place: Place) -> None:
    holder = lockctl.start_holding("a", "-l", "b", "-t", f"{place.ttl}s", "-k", "0.2s")
    holder.kill()
    holder.wait(LIMIT)
    done = lockctl(*BOTH, "--wait", f"{place.freed_within + 3}s", "--", "true")
    assert done.returncode == 0, done.stderr


@everywhere
def test_two_commands_that_name_them_in_opposite_orders_never_wait_for_each_other(lockctl: Lockctl) -> None:
    failures = []

    def work(*names: str) -> None:
        for _ in range(CROSSINGS):
            done = lockctl("run", "-l", names[0], "-l", names[1], "--wait", "20s", "--", "sleep", "0.01")
            if done.returncode:
                failures.append((done.returncode, done.stderr))

    workers = [threading.Thread(target=work, args=names) for names in ("ab", "ba")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert [inspect(lockctl, name)["state"] for name in "ab"] == ["free", "free"]
