"""Waiters of PostgreSQL that are killed: their sessions end with them, not with their leases."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take, waiters
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.postgres import Postgres

WAIT = ("run", "-l", "nightly", "-t", "60s", "-w", "forever", "--", "true")


@pytest.fixture
def holder(lockctl: Lockctl, postgres_server: Postgres) -> Iterator[Backend]:
    """A client at a place for locks of its own, to which `lockctl` goes, too."""
    lockctl.url = f"{postgres_server.url}?prefix=w{os.urandom(6).hex()}:"
    made = open_backend(parse_url(lockctl.url))
    yield made
    made.close()


def test_a_waiter_that_is_killed_leaves_nothing_to_those_behind_it(lockctl: Lockctl, holder: Backend) -> None:
    grant = take(holder, claim(ttl=60.0))
    first = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder) == 1)
    second = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder) == 2)
    first.kill()
    # the server looks after the connection of a waiter twice a second
    eventually(lambda: waiters(holder) == 1, limit=3.0)
    holder.release(grant, timeout=LIMIT)
    assert second.wait(5) == 0


def test_a_waiter_that_is_killed_when_it_is_its_turn_delays_nobody(lockctl: Lockctl, holder: Backend) -> None:
    grant = take(holder, claim(ttl=60.0))
    waiter = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder))
    os.kill(waiter.pid, signal.SIGSTOP)
    holder.release(grant, timeout=LIMIT)
    mine = claim()
    assert holder.try_acquire(mine, timeout=LIMIT) is None, "it is the turn of the one that stands still"
    waiter.kill()
    before = time.monotonic()
    holder.wait(mine, timeout=LIMIT, interrupt=None)
    take(holder, mine)
    assert time.monotonic() - before < 6.0
