"""What waiting for a lock in Consul leaves there, and what a change of a key that is no release does."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import LIMIT, Background, take
from tests.contract.test_consul import ConsulHarness
from tests.faults.waiting import await_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl
    from tests.servers.consul import Consul


@pytest.fixture
def harness(consul_server: Consul) -> Iterator[ConsulHarness]:
    made = ConsulHarness(consul_server)
    yield made
    made.close()


def test_waiters_leave_no_session_neither_served_nor_killed(lockctl: Lockctl, harness: ConsulHarness) -> None:
    lockctl.url = f"consul://{harness.server.address}/?prefix={harness.prefix}"
    client = harness.client()
    grant = take(client, harness.claim(ttl=10.0))
    waiting = [lockctl.start("run", "-l", "nightly", "-w", "forever", "--", "true") for _ in range(3)]
    await_waiting(lockctl, "nightly", waiting)
    for each in waiting:
        each.kill()
        each.wait(LIMIT)
    client.release(grant, timeout=LIMIT)
    began = time.monotonic()
    assert lockctl("run", "-l", "nightly", "-w", "10s", "--", "true").returncode == 0
    assert time.monotonic() - began < 2.0
    assert harness.sessions() == 0


def test_a_wait_goes_on_when_the_key_changes_without_being_free(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(), harness.client(), harness.claim()
    grant = take(client, harness.claim(ttl=10.0))
    index = int(json.loads(harness.server.request("GET", harness.key("nightly")))[0]["ModifyIndex"])
    waiting = Background(lambda: other.wait(claim, timeout=20.0, interrupt=None))
    time.sleep(0.3)
    # any change of the key wakes the request, and what is not a release is waited through
    harness.server.request("PUT", harness.key("nightly"), os.urandom(8), cas=index)
    time.sleep(0.3)
    assert waiting.running
    client.release(grant, timeout=LIMIT)
    waiting.result()
