"""What a user of locks does with a backend, to see that some rights are enough for all of it."""

from __future__ import annotations

import contextlib
from subprocess import PIPE
from typing import TYPE_CHECKING

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, one_of, reader, take, waiters
from tests.contract.keeping import holder_of, revoke
from tests.jobs import eventually

if TYPE_CHECKING:
    from tests.jobs import Lockctl


def check_everything(lockctl: Lockctl, url: str, *, shared: bool = True) -> None:
    """Hold, wait, share, look, revoke and remember: nothing is refused, and nothing warned of.

    *shared*: whether the backend has readers.
    """
    words = ("-l", "nightly", "-b", url, "--wait", "forever", "--once-per", "1h", "--min-hold", "2s", "--", "true")
    holder = lockctl.start_holding("nightly", "-b", url)
    with contextlib.closing(open_backend(parse_url(url))) as operator:
        waiter = lockctl.start("run", *words, stderr=PIPE)
        eventually(lambda: waiters(operator) != 0)
        assert [lock.name for lock in operator.list("*", timeout=LIMIT)] == ["nightly"]
        assert revoke(operator, holder_of(operator)) is not None
        assert holder.wait(30) == 76
        assert waiter.communicate(timeout=30)[1] == ""
        assert waiter.returncode == 0
        for wanted in (reader(name="readers"), one_of(2, name="slots"))[not shared :]:
            grant = take(operator, wanted)
            operator.renew(grant, timeout=LIMIT)
            operator.release(grant, timeout=LIMIT)
        assert operator.last_success("nightly", timeout=LIMIT) is not None
        assert {run.outcome for run in operator.history("nightly", timeout=LIMIT)} == {"revoked", "exited"}
        eventually(lambda: operator.inspect("nightly", timeout=LIMIT).state == "free")


def use_objects(url: str) -> None:
    """The same of a store of objects, by its calls: write, list and delete."""
    with contextlib.closing(open_backend(parse_url(url))) as backend:
        grant = take(backend, claim())
        backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == ["nightly"]
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
