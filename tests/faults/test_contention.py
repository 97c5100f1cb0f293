"""Many runs at one lock: never two inside, everybody is served, tokens only rise, waiting costs nothing."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import sys
from typing import TYPE_CHECKING

from tests.faults.waiting import await_waiting, cpu_seconds
from tests.jobs import LIMIT, eventually, guard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.jobs import Lockctl

CONTENDERS = 50
RUNS = 20  # one after the other; tests of each store have more of them
WAITERS = 50
ROUNDS = 3  # of one second each, for which the CPU time of idle processes is summed up; the quietest counts

# a counter that loses updates, and a directory that cannot be made twice, when two are inside
ENTER = """
mkdir "$0/inside" || echo "two were inside" >>"$0/wrong"
read count <"$0/count"
echo $((count + 1)) >"$0/count"
echo "$LOCKCTL_TOKEN" >>"$0/tokens"
rmdir "$0/inside" || echo "two were inside" >>"$0/wrong"
"""


def rising(tokens: Iterable[int]) -> bool:
    """Strictly: never lower and never equal."""
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_fifty_contenders_are_never_two_inside_and_all_are_served_with_rising_tokens(
    lockctl: Lockctl, tmp_path: Path
) -> None:
    (tmp_path / "count").write_text("0\n")
    runs = [
        lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", "sh", "-c", ENTER, str(tmp_path))
        for _ in range(CONTENDERS)
    ]
    assert [run.wait(LIMIT) for run in runs] == [0] * CONTENDERS
    assert not (tmp_path / "wrong").exists()
    assert (tmp_path / "count").read_text() == f"{CONTENDERS}\n"
    tokens = [int(line) for line in (tmp_path / "tokens").read_text().splitlines()]
    assert len(tokens) == CONTENDERS
    assert rising(tokens)


def test_tokens_rise_over_many_runs_also_after_holders_that_were_killed(lockctl: Lockctl) -> None:
    tokens = []
    for number in range(RUNS):
        if number % 5:
            answer = lockctl("run", "-l", "nightly", "--wait", "10s", "--", "printenv", "LOCKCTL_TOKEN")
            assert answer.returncode == 0, answer.stderr
            tokens.append(int(answer.stdout))
            continue
        token_file = lockctl.directory / f".token-{number}"
        script = 'echo "$LOCKCTL_TOKEN" >"$0.new"; mv "$0.new" "$0"; exec sleep 60'
        holder = lockctl.start("run", "-l", "nightly", "--wait", "10s", "--", "sh", "-c", script, str(token_file))
        eventually(token_file.exists)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(LIMIT)
        tokens.append(int(token_file.read_text()))
    assert rising(tokens), tokens


def test_ten_waiters_are_each_served_once(
    lockctl: Lockctl, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    holder = lockctl.start_holding("nightly")
    served = tmp_path / "served"
    runs = []
    for number in range(10):
        command = ("sh", "-c", 'echo "$1" >>"$0"', str(served), str(number))
        runs.append(lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", *command))
        await_waiting(lockctl, "nightly", runs)
    holder.terminate()
    holder.wait(LIMIT)
    assert [run.wait(LIMIT) for run in runs] == [0] * 10
    order = [int(line) for line in served.read_text().split()]
    record_property("order in which the waiters were served", order)
    print(f"served in the order {order}")
    assert sorted(order) == list(range(10))


def test_fifty_waiters_cost_no_cpu(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("nightly")
    waiters = [lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", "true") for _ in range(WAITERS)]
    await_waiting(lockctl, "nightly", waiters)
    pids = [waiter.pid for waiter in waiters]
    used = min(cpu_seconds(pids, span=1) for _ in range(ROUNDS))
    assert used < 0.001 * WAITERS
    assert holder.poll() is None


def test_a_holder_costs_no_cpu_while_its_command_sleeps(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("nightly")
    guard_of(holder.pid)
    used = min(cpu_seconds([holder.pid], span=1) for _ in range(ROUNDS))
    assert used < 0.02


def test_a_waiter_is_woken_within_a_tenth_of_a_second_of_the_release(lockctl: Lockctl, tmp_path: Path) -> None:
    stamp = "import sys, time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME), file=open(sys.argv[1], 'w'))"
    command = (sys.executable, "-I", "-S", "-c")
    end_after_key = f"sys.stdin.read(1); {stamp.partition('; ')[2]}"
    delays = []
    for number in range(5):
        ended, begun = tmp_path / f"ended.{number}", tmp_path / f"begun.{number}"
        script = (*command, f"import sys, time; {end_after_key}", str(ended))
        read_end, write_end = os.pipe()
        holder = lockctl.start_holding("nightly", "--", *script, stdin=read_end)
        os.close(read_end)
        waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", *command, stamp, str(begun))
        await_waiting(lockctl, "nightly", [waiter])
        os.write(write_end, b".")
        os.close(write_end)
        assert (holder.wait(LIMIT), waiter.wait(LIMIT)) == (0, 0)
        delays.append((int(begun.read_text()) - int(ended.read_text())) / 1e9)
    assert statistics.median(delays) < 0.1, delays
