"""Who is refused at Redis for a waiter that died is told so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, queue_up, take

if TYPE_CHECKING:
    from tests.jobs import Lockctl
    from tests.servers.redis import Redis


def test_a_run_that_is_refused_for_a_waiter_that_died_is_told_who_that_is(
    lockctl: Lockctl, redis_server: Redis
) -> None:
    lockctl.url = f"{redis_server.url}/0?prefix=w{os.urandom(6).hex()}:"
    holder, dead = (open_backend(parse_url(lockctl.url)) for _ in range(2))
    grant = take(holder, claim())
    queue_up(dead, claim(host="web3"), holder)  # its place outlives it
    holder.release(grant, timeout=LIMIT)
    done = lockctl("run", "-n", "-l", "nightly", "--", "true")
    assert done.returncode == 75
    assert f"free now, but web3 pid {os.getpid()} (ops) is first in the queue" in done.stderr
    holder.close()
    dead.close()
