"""The classic story: a holder is paused as a whole, its lease ends, a successor writes, and the sleeper comes back.

With the session of the first job, keeper and guard are stopped too, as a paused virtual machine does it: nothing is
left that could kill the command in time. It then goes on before its guard does, which is the worst order.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.faults.backends import PLACES, addresses_of, announced, sampled
from tests.jobs import LIMIT, eventually, guard_of, stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

GRACE = 0.25  # seconds, --kill-after
STALE = 77
LOST = 76
# registers its token, reads, says so, waits until it shall write, writes; then it says with which status
SHELL = """
"$0" fence advance "$1" || exit 1
cat "$1" >"$2.read"
: >"$2.inside"
until test -e "$2.awake"; do sleep 0.1; done
printf %s "written by $3" | "$0" fence write "$1"
written=$?
"$0" fence check "$1"
echo "$written $?" >"$2.new"
mv "$2.new" "$2.said"
exit "$written"
"""
PROGRAM = """
import os, sys, time
from lockctl import fence
_, resource, place, who = sys.argv
mine = fence.own_mark(os.environ)
fence.advance(resource, mine)
with open(resource) as file, open(place + ".read", "w") as copy:
    copy.write(file.read())
open(place + ".inside", "w").close()
while not os.path.exists(place + ".awake"):
    time.sleep(0.02)
statuses = []
for step in fence.holding, fence.check:
    try:
        if step is fence.check:
            fence.check(resource, mine)
        else:
            with fence.holding(resource, mine), open(resource, "w") as file:
                file.write("written by " + who)
        statuses.append("0")
    except fence.Stale:
        statuses.append("77")
with open(place + ".new", "w") as file:
    file.write(" ".join(statuses))
os.rename(place + ".new", place + ".said")
sys.exit(int(statuses[0]))
"""


class Story:
    """One lock, one resource, and the jobs that come to them."""

    def __init__(self, lockctl: Lockctl, ttl: float, directory: Path, program: str) -> None:
        """*program* is the text of the job."""
        self.lockctl = lockctl
        self.directory = directory
        self.resource = directory / "stock"
        self.resource.write_text("written by nobody")
        self.options = ("-l", "stock", "-t", f"{ttl}s", "-k", f"{GRACE}s")
        self.interpreter = (
            ("sh", "-c", program, lockctl.command) if program is SHELL else (sys.executable, "-c", program)
        )

    def words(self, who: str) -> tuple[str, ...]:
        """The job of one actor."""
        return ("--", *self.interpreter, str(self.resource), str(self.directory / who), who)

    def statuses(self, who: str) -> str:
        """With what the write and the check of an actor ended."""
        said = self.directory / f"{who}.said"
        eventually(said.exists, LIMIT)
        return said.read_text().strip()


@pytest.fixture
def story(
    lockctl: Lockctl, locks: Path, tmp_path: Path, backend_name: str, program: str, request: pytest.FixtureRequest
) -> Story:
    place = PLACES[backend_name]
    at = addresses_of(request.getfixturevalue(place.servers)) if place.servers else ()
    lockctl.url = place.url(at, "t" + os.urandom(6).hex(), locks)
    return Story(lockctl, place.ttl, tmp_path, program)


def stop_all(root: int) -> list[int]:
    """Stop a process and everything below it; gives those back that were stopped, parents before children."""
    stop(root)

    def all_stopped() -> list[int]:
        family = [root, *tree.descendants(root)]
        # a shell between vfork and the exec of its child, which is stopped, is in state D
        running = [pid for pid in family if (fields := tree.stat_fields(pid)) and fields[0] not in {b"T", b"Z", b"D"}]
        for pid in running:
            tree.send(pid, signal.SIGSTOP)
        return [] if running else family

    found: list[int] = eventually(all_stopped)
    return found


@pytest.mark.parametrize(
    ("backend_name", "program"),
    [
        *(pytest.param(name, SHELL, marks=announced(name), id=f"{name}-commands") for name in sampled()),
        pytest.param("redis", PROGRAM, marks=announced("redis"), id="redis-library"),
    ],
)
def test_a_holder_that_slept_through_the_end_of_its_lease_writes_nothing(story: Story, backend_name: str) -> None:
    lockctl, resource, place = story.lockctl, story.resource, PLACES[backend_name]
    first = lockctl.start("run", *story.options, *story.words("a"))
    eventually((story.directory / "a.inside").exists)
    guard = guard_of(first.pid)
    stopped = stop_all(first.pid)
    assert guard in stopped
    assert len(stopped) >= 3

    if not place.is_leased:  # the kernel keeps the lock for a process that is stopped: an operator takes it away
        forced = lockctl("force-release", "stock", "--now", "--yes")
        assert forced.returncode == 0, forced.stderr
    (story.directory / "b.awake").touch()
    wait = f"{max(place.ttl, place.freed_within) + 5}s"
    second = lockctl("run", *story.options, "--wait", wait, *story.words("b"))
    assert second.returncode == 0, second.stderr
    assert story.statuses("b") == "0 0"
    assert resource.read_text() == "written by b"
    assert (story.directory / "a.read").read_text() == (story.directory / "b.read").read_text() == "written by nobody"
    assert not (story.directory / "a.said").exists()

    (story.directory / "a.awake").touch()
    for pid in stopped:
        if pid not in (first.pid, guard):
            tree.send(pid, signal.SIGCONT)
    assert story.statuses("a") == f"{STALE} {STALE}"
    assert resource.read_text() == "written by b"
    for pid in (guard, first.pid):
        os.kill(pid, signal.SIGCONT)
    assert first.wait(LIMIT) in {LOST, STALE}  # whichever its guard sees first: the deadline, or the end of the command
    assert resource.read_text() == "written by b"
