"""The token of etcd rises when leaders die."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.promises.tokens import rising, tenure
from tests.servers.etcd import EtcdCluster

if TYPE_CHECKING:
    from collections.abc import Callable


def test_tokens_rise_when_leaders_die(start_server: Callable[..., EtcdCluster]) -> None:
    cluster = start_server(EtcdCluster)
    url = f"etcd://{','.join(cluster.addresses)}/?prefix=t{os.urandom(6).hex()}/"
    tokens = [tenure(url).token]
    for _ in range(2):
        leader = cluster.leader()
        leader.kill()
        tokens.append(tenure(url).token)
        leader.start()
    tokens.append(tenure(url).token)
    assert rising(tokens)


def test_tokens_rise_whichever_member_gives_them(etcd_three: EtcdCluster) -> None:
    prefix = f"t{os.urandom(6).hex()}/"
    urls = [f"etcd://{address}/?prefix={prefix}" for address in etcd_three.addresses]
    assert rising([tenure(url).token for _ in range(4) for url in urls])
