"""The token of a ZooKeeper lock rises whatever happens to its nodes, its holders and its servers."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lockctl.errors import BackendUnavailable
from lockctl.model import Claim
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background
from tests.jobs import eventually
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Grant
    from tests.jobs import Lockctl

TAKE = 'echo "$LOCKCTL_TOKEN $LOCKCTL_TOKEN_DOMAIN" >> "$0"'


@pytest.fixture
def root() -> str:
    return f"/tokens-{os.urandom(6).hex()}"


@pytest.fixture
def opened() -> Iterator[Callable[[str], ZooKeeperBackend]]:
    """The client of a URL."""
    made: list[ZooKeeperBackend] = []

    def make(url: str) -> ZooKeeperBackend:
        made.append(ZooKeeperBackend.from_url(parse_url(url)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def claim(ttl: float = 1.0) -> Claim:
    return Claim("nightly", os.urandom(16).hex(), ttl, "web3", os.getpid(), "ops", ("./nightly.sh",))


def acquire(client: ZooKeeperBackend, ttl: float = 1.0) -> Grant:
    """Take the lock as soon as it is free and there is a server."""
    mine, until = claim(ttl), time.monotonic() + LIMIT * 2
    while True:
        try:
            grant = client.try_acquire(mine, timeout=5.0)
            if grant is not None:
                return grant
            client.wait(mine, timeout=5.0, interrupt=None)
        except BackendUnavailable:
            assert time.monotonic() < until
            time.sleep(0.1)


def rising(tokens: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_fifty_runs_one_after_the_other_have_rising_tokens_of_one_domain(
    lockctl: Lockctl, zookeeper_server: ZooKeeper, root: str
) -> None:
    log = lockctl.directory / "log"
    url = f"zookeeper://{zookeeper_server.address}{root}"
    for _ in range(50):
        done = lockctl("run", "-b", url, "-l", "nightly", "--", "sh", "-c", TAKE, str(log))
        assert done.returncode == 0, done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 50
    assert rising([int(token) for token, _ in lines])
    assert len({domain for _, domain in lines}) == 1


def test_fifty_who_contend_have_rising_tokens_in_the_order_in_which_they_were_inside(
    zookeeper_server: ZooKeeper, root: str, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    tokens: list[int] = []

    def contend(client: ZooKeeperBackend) -> None:
        for _ in range(5):
            grant = acquire(client, ttl=5.0)
            tokens.append(grant.token)
            client.release(grant, timeout=LIMIT)

    url = f"zookeeper://{zookeeper_server.address}{root}"
    clients = [opened(url) for _ in range(10)]
    contenders = [Background(lambda client=client: contend(client)) for client in clients]  # type: ignore[misc]
    for contender in contenders:
        contender.result(limit=60.0)
    assert len(tokens) == 50
    assert rising(tokens)


def test_the_token_rises_when_holders_are_killed(lockctl: Lockctl, zookeeper_server: ZooKeeper, root: str) -> None:
    log = lockctl.directory / "log"
    url = f"zookeeper://{zookeeper_server.address}{root}"
    for number in range(3):
        words = ("-b", url, "-t", "1s", "-w", "20s", "--", "sh", "-c", TAKE + "; exec sleep 60", str(log))
        holder = lockctl.start_holding("nightly", *words)
        eventually(lambda number=number: log.exists() and len(log.read_text().splitlines()) == number + 1)  # type: ignore[misc]
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert rising([int(line.split()[0]) for line in log.read_text().splitlines()])


def test_the_token_rises_over_a_restart_of_the_server_and_a_power_cut(
    start_server: Callable[..., ZooKeeper], root: str, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    server = start_server(ZooKeeper)
    client = opened(f"zookeeper://{server.address}{root}")
    grants = [acquire(client)]
    client.release(grants[-1], timeout=LIMIT)
    server.restart()
    grants.append(acquire(client))
    server.kill()
    server.start()
    client.release(grants[-1], timeout=LIMIT)
    grants.append(acquire(client))
    assert rising([grant.token for grant in grants])
    assert len({grant.domain for grant in grants}) == 1


@pytest.mark.parametrize("deleted", ["holder", "lock", "everything"])
def test_the_token_rises_when_nodes_are_deleted_by_hand(
    zookeeper_server: ZooKeeper, root: str, opened: Callable[[str], ZooKeeperBackend], deleted: str
) -> None:
    admin = KazooClient(hosts=zookeeper_server.address)
    admin.start()
    client = opened(f"zookeeper://{zookeeper_server.address}{root}")
    tokens = []
    for _ in range(3):
        tokens.append(acquire(client).token)
        if deleted == "holder":
            (node,) = admin.get_children(f"{root}/nightly")
            admin.delete(f"{root}/nightly/{node}")
        else:
            admin.delete(f"{root}/nightly" if deleted == "lock" else root, recursive=True)
    admin.stop()
    admin.close()
    assert rising(tokens)


def test_the_token_rises_when_the_leader_changes(
    zookeeper_three: ZooKeeperEnsemble, root: str, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    client, other = (opened(f"zookeeper://{zookeeper_three.hosts}{root}") for _ in range(2))
    grants = []
    for _ in range(2):
        leader = zookeeper_three.leader()
        grants.append(acquire(client))
        leader.kill()
        try:
            grants.append(acquire(other))  # the first is not renewed: its session ends
            other.release(grants[-1], timeout=LIMIT)
        finally:
            leader.start()
            eventually(lambda: len(zookeeper_three.followers()) == 2, limit=30.0)
    assert rising([grant.token for grant in grants])
    assert len({grant.domain for grant in grants}) == 1


def test_tokens_of_an_ensemble_whose_data_was_wiped_are_of_another_domain(
    start_server: Callable[..., ZooKeeper], root: str, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    server = start_server(ZooKeeper)
    before = acquire(opened(f"zookeeper://{server.address}{root}"))
    server.wipe()
    after = acquire(opened(f"zookeeper://{server.address}{root}"))
    assert after.domain != before.domain, "they may be smaller, and a resource refuses them"
