"""What a user of locks does with a backend, to see that some rights are enough for all of it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take

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


def use_objects(url: str) -> None:
    """The same of a store of objects, by its calls: write, list and delete."""
    with contextlib.closing(open_backend(parse_url(url))) as backend:
        grant = take(backend, claim())
        backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == ["nightly"]
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
