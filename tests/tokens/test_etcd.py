"""Tokens of etcd rise strictly, whatever happens to holders, keys and servers."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from typing import TYPE_CHECKING

import pytest

from lockctl.model import Claim
from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, take
from tests.jobs import eventually
from tests.servers.etcd import Etcd, EtcdCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl

    Open = Callable[..., EtcdBackend]


def claim() -> Claim:
    return Claim("nightly", os.urandom(16).hex(), 30.0, "web3", 4121, "ops", ("./nightly.sh",))


def rising(tokens: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


@pytest.fixture
def connect() -> Iterator[Open]:
    with contextlib.ExitStack() as ends:
        prefix = f"t{os.urandom(6).hex()}/"

        def open_one(*addresses: str) -> EtcdBackend:
            made = open_backend(parse_url(f"etcd://{','.join(addresses)}/?prefix={prefix}"))
            assert isinstance(made, EtcdBackend)
            ends.callback(made.close)
            return made

        yield open_one


def tenure(client: EtcdBackend) -> int:
    grant = take(client, claim())
    client.release(grant, timeout=LIMIT)
    return grant.token


def test_fifty_tenures_one_after_the_other(etcd_three: EtcdCluster, connect: Open) -> None:
    clients = itertools.cycle([connect(address) for address in etcd_three.addresses])
    assert rising([tenure(client) for client in itertools.islice(clients, 50)])


def test_fifty_tenures_of_ten_who_contend(etcd_three: EtcdCluster, connect: Open) -> None:
    tokens: list[int] = []

    def contend(address: str) -> None:
        client = connect(address)
        for _ in range(5):
            mine = claim()
            while (grant := client.try_acquire(mine, timeout=LIMIT)) is None:
                client.wait(mine, timeout=LIMIT, interrupt=None)
            tokens.append(grant.token)
            client.release(grant, timeout=LIMIT)

    addresses = itertools.islice(itertools.cycle(etcd_three.addresses), 10)
    for contender in [Background(lambda address=address: contend(address)) for address in addresses]:  # type: ignore[misc]
        contender.result()
    assert len(tokens) == 50
    assert rising(tokens)


def test_holders_that_are_killed(lockctl: Lockctl, etcd_server: Etcd, locks: Path) -> None:
    log = locks / "tokens"
    url = f"etcd://{etcd_server.address}/?prefix=t{os.urandom(6).hex()}/"
    words = ("run", "-b", url, "-l", "nightly", "-t", "2", "-w", "30", "--")
    for number in range(3):
        holder = lockctl.start(*words, "sh", "-c", f'echo "$LOCKCTL_TOKEN" >> {log}; exec sleep 60')
        eventually(lambda number=number: log.exists() and len(log.read_text().split()) == number + 1)  # type: ignore[misc]
        holder.send_signal(signal.SIGKILL)
        holder.wait(LIMIT)
    assert lockctl(*words, "sh", "-c", f'echo "$LOCKCTL_TOKEN" >> {log}').returncode == 0
    tokens = [int(token) for token in log.read_text().split()]
    assert len(tokens) == 4
    assert rising(tokens)


def test_keys_that_are_deleted_by_hand(etcd_server: Etcd, connect: Open) -> None:
    client = connect(etcd_server.address)
    tokens = []
    for _ in range(5):
        tokens.append(take(client, claim()).token)
        etcd_server.command("del", client.layout.prefix, "--prefix")
    assert rising(tokens)


def test_a_server_that_is_restarted_killed_compacted_and_defragmented(
    start_server: Callable[..., Etcd], connect: Open
) -> None:
    server = start_server(Etcd)
    client = connect(server.address)
    tokens = [tenure(client)]
    server.restart()
    tokens.append(tenure(client))
    grant = take(client, claim())
    tokens.append(grant.token)
    server.kill()
    server.start()
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    client.release(grant, timeout=LIMIT)
    server.command("compaction", str(grant.token))
    server.command("defrag")
    tokens.append(tenure(client))
    server.wipe()
    tokens.append(tenure(client))
    assert rising(tokens)
    assert len({take(client, claim()).domain, grant.domain}) == 1


def test_leaders_that_die(start_server: Callable[..., EtcdCluster], connect: Open) -> None:
    cluster = start_server(EtcdCluster)
    client = connect(*cluster.addresses)
    tokens = [tenure(client)]
    for _ in range(2):
        leader = cluster.leader()
        leader.kill()
        tokens.append(eventually(lambda: attempt(client)))
        leader.start()
    tokens.append(tenure(client))
    assert rising(tokens)


def attempt(client: EtcdBackend) -> int | None:
    from lockctl.errors import BackendUnavailable

    try:
        return tenure(client)
    except BackendUnavailable:
        return None
