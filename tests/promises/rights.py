"""What a user of locks does with a backend, to see that some rights are enough for all of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.jobs import Lockctl


def check_everything(lockctl: Lockctl, url: str, *, shared: bool = True) -> None:
    """Hold, wait, share, look, revoke and remember: nothing is refused, and nothing warned of.

    *shared*: whether the backend has readers.
    """
    holder = lockctl.start_holding("nightly", "-b", url)
    waiter = lockctl.start("run", "-l", "nightly", "-b", url, "--wait", "forever", "--", "true")
    listed = lockctl("list", "-b", url, "--json")
    assert [lock["name"] for lock in json.loads(listed.stdout)] == ["nightly"], listed.stderr
    assert lockctl("force-release", "nightly", "--yes", "-b", url).returncode == 0
    assert holder.wait(30) == 76
    assert waiter.wait(30) == 0
    readers = [["--shared"]] if shared else []
    for more in (*readers, ["--slots", "2"], ["--once-per", "1h"], ["--min-hold", "2s"]):
        done = lockctl("run", "-l", more[0].strip("-"), "-b", url, *more, "--", "true")
        assert (done.returncode, done.stderr) == (0, ""), more
    again = lockctl("run", "-l", "once-per", "-b", url, "--once-per", "1h", "--", "true")
    assert again.returncode == 75
    runs = json.loads(lockctl("history", "nightly", "-b", url, "--json").stdout)
    assert {run["outcome"] for run in runs} == {"revoked", "exited"}
