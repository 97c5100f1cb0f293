"""What a queue costs a ZooKeeper server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.harness import LIMIT, take
from tests.contract.waiting import start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from tests.contract.test_zookeeper import ZooKeeperHarness
    from tests.servers.zookeeper import ZooKeeper

WAITERS = 10


def watches(server: ZooKeeper) -> int:
    """How many events the server owes to its clients."""
    line = next(line for line in server.four_letters("mntr").splitlines() if line.startswith("zk_watch_count"))
    return int(line.split()[1])


def test_each_waiter_watches_one_node_and_no_other(harness: ZooKeeperHarness) -> None:
    holder = harness.client()
    grant, before = take(holder, harness.claim()), watches(harness.server)
    waits = []
    for number in range(WAITERS):
        client, claim = harness.client(), harness.claim()
        waits.append((start_waiting(client, claim, holder, count=number + 1), client, claim))
    eventually(lambda: watches(harness.server) - before == WAITERS)
    for waiting, client, claim in waits:
        holder.release(grant, timeout=LIMIT)
        waiting.result()
        holder, grant = client, take(client, claim)
