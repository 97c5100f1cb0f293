"""The token of ZooKeeper rises when the leader changes, and is of another domain when all data were lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.jobs import eventually
from tests.promises.tokens import holding, rising, tenure
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_token_rises_when_the_leader_changes(zookeeper_three: ZooKeeperEnsemble) -> None:
    url = f"zookeeper://{zookeeper_three.hosts}/tokens-{os.urandom(6).hex()}"
    grants = []
    for _ in range(2):
        leader = zookeeper_three.leader()
        with holding(url, ttl=1.0) as grant:
            grants.append(grant)
            leader.kill()
            try:
                grants.append(tenure(url))  # the first is not renewed: its session ends
            finally:
                leader.start()
                eventually(lambda: len(zookeeper_three.followers()) == 2, limit=30.0)
    assert rising([grant.token for grant in grants])
    assert len({grant.domain for grant in grants}) == 1


def test_tokens_of_an_ensemble_whose_data_was_wiped_are_of_another_domain(
    start_server: Callable[..., ZooKeeper],
) -> None:
    server = start_server(ZooKeeper)
    url = f"zookeeper://{server.address}/tokens"
    before = tenure(url)
    server.wipe()
    assert tenure(url).domain != before.domain, "they may be smaller, and a resource refuses them"
