"""`lockctl bench` measures every backend, and leaves nothing of its lock there, also when it is ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.bench.measure import percentile
from lockctl.supervise import tree
from tests.faults.backends import PLACES, addresses_of, on_sample
from tests.jobs import eventually
from tests.run.terminal import Terminal

if TYPE_CHECKING:
    from tests.jobs import Lockctl

SHORT = ("--rounds", "5", "--contenders", "2", "--for", "1s")


@pytest.mark.parametrize("backend", on_sample())
def test_a_backend_is_measured_and_nothing_is_left_there(
    backend: str, lockctl: Lockctl, request: pytest.FixtureRequest
) -> None:
    place = PLACES[backend]
    at = addresses_of(request.getfixturevalue(place.servers)) if place.servers else ()
    url = place.url(at, f"bench{os.urandom(4).hex()}", lockctl.directory)
    done = lockctl("bench", "-b", url, *SHORT, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["backend"] == backend
    assert found["acquire"]["count"] == found["release"]["count"] == 5
    assert found["handoff"]["count"] > 0
    assert 0 < found["acquire"]["p50"] <= found["acquire"]["p99"]
    assert found["throughput"] > 0
    assert json.loads(lockctl("list", "-b", url, "--json").stdout) == []


def test_the_table_has_the_usual_times_of_such_a_store(lockctl: Lockctl, redis_server: Any) -> None:
    done = lockctl("bench", "-b", redis_server.url, *SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    title, heading, acquire, *_, throughput = done.stdout.splitlines()
    assert "lock lockctl-bench-" in title
    assert heading.split() == ["LOCK", "P50", "P99", "USUAL"]
    assert acquire.startswith("acquire")
    assert acquire.endswith("1 to 2 ms")
    assert throughput.endswith("with 2 contenders in 1s")


def test_who_is_interrupted_leaves_no_lock_and_no_process(lockctl: Lockctl) -> None:
    ours, theirs = os.openpty()  # there it draws a bar
    os.set_blocking(ours, False)
    drawn = b""

    def contend() -> bool:
        nonlocal drawn
        with contextlib.suppress(BlockingIOError):
            drawn += os.read(ours, 65536)
        return len(tree.children(bench.pid)) > 1 and b"contention" in drawn

    bench = lockctl.start("bench", "--for", "60s", start_new_session=True, stderr=theirs, env={"TERM": "xterm"})
    eventually(contend)
    os.killpg(bench.pid, signal.SIGINT)
    assert bench.wait(10) == 128 + signal.SIGINT
    assert json.loads(lockctl("list", "--json").stdout) == []

    def is_gone() -> bool:  # who helped a contender to wait is dead, and collected by init when it comes to that
        try:
            os.killpg(bench.pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(is_gone)
    os.close(ours)
    os.close(theirs)


def test_the_cursor_is_there_when_it_is_suspended(lockctl: Lockctl) -> None:
    terminal = Terminal(lockctl.command, "bench", "--for", "30s", env=lockctl.environment({"TERM": "xterm"}))
    try:
        shown = terminal.expect("contention .*━")
        assert shown.rfind("\x1b[?25l") <= shown.rfind("\x1b[?25h"), "it is hidden while it runs"
    finally:
        terminal.end()


def test_a_backend_that_is_not_there_is_one_line(lockctl: Lockctl) -> None:
    done = lockctl("bench", "-b", "redis://127.0.0.1:1/0", *SHORT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)


def test_a_lease_that_no_run_could_have_is_refused_as_by_run(lockctl: Lockctl) -> None:
    for source, status, options, env in (
        ("--ttl", 64, ("--ttl", "0.1s"), {}),
        ("--ttl", 64, ("--ttl", "0"), {}),
        ("$LOCKCTL_TTL", 78, (), {"LOCKCTL_TTL": "0.2"}),
    ):
        done = lockctl("bench", *options, *SHORT, env=env)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
        assert done.stderr.endswith(f"it must be at least 1s (ttl: {source})\n")
    assert lockctl("bench", "--ttl", "2s", *SHORT, env={"LOCKCTL_KILL_AFTER": "30s"}).returncode == 0


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile((), 0.5) is None
    assert [percentile((3.0, 1.0, 2.0), part) for part in (0.0, 0.5, 0.99)] == [1.0, 2.0, 3.0]
