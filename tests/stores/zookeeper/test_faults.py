"""Lost answers, dead, paused and separated servers, and what is no ZooKeeper at all."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from lockctl.errors import BackendUnavailable, LeaseLost
from lockctl.stores.zookeeper.link import ATTEMPT_PART
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, LONG, UNHEARD, Background, claim, refused, take, wait_for_turn
from tests.contract.test_zookeeper import ZooKeeperHarness
from tests.jobs import eventually
from tests.promises.harms import administrator
from tests.servers.fixtures import private_servers
from tests.servers.proxy import Proxy
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.model import Claim, Grant


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A server that these tests may kill, wipe and put back, and leave running."""
    with private_servers(tmp_path_factory) as start:
        yield start(ZooKeeper)


def wait_through_failures(client: ZooKeeperBackend, wanted: Claim) -> Grant:
    """As who waits for a lock while servers come and go."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        try:
            return wait_for_turn(client, wanted)
        except BackendUnavailable:
            time.sleep(0.1)
    raise AssertionError("not granted")


def test_what_a_lost_answer_may_have_granted_is_found_again_or_given_back(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT)
    for give_back in (False, True):
        mine = harness.claim(ttl=5.0)
        assert other.inspect("nightly", timeout=LIMIT).state == "free"
        with harness.lost_transaction(client), pytest.raises(BackendUnavailable):
            client.try_acquire(mine, timeout=UNHEARD)
        assert len(harness.line("nightly")) == 1, "it was granted, and nobody knows"
        if give_back:
            client.withdraw(mine, timeout=LIMIT)
        else:
            client.release(take(client, mine), timeout=LIMIT)
        assert harness.line("nightly") == []


def test_a_request_after_one_without_an_answer_is_sent_on_another_connection(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim(ttl=20.0))
    harness.proxy(client).mode = "drop_replies"
    with pytest.raises(BackendUnavailable):
        client.renew(grant, timeout=0.3)
    harness.heal(client)
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.slow
def test_a_restart_of_the_server_within_the_session_hurts_neither_holder_nor_waiter(own_server: ZooKeeper) -> None:
    harness = ZooKeeperHarness(own_server)
    try:
        client, other = harness.client(), harness.client()
        grant = take(client, harness.claim(ttl=10.0))
        waiting = Background(lambda: wait_through_failures(other, harness.claim(ttl=10.0)))
        eventually(lambda: len(harness.line("nightly")) == 2)
        node = harness.line("nightly")[1]
        own_server.kill()
        with pytest.raises(BackendUnavailable):
            client.renew(grant, timeout=0.5)
        own_server.start()
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        assert harness.line("nightly")[1] == node, "it has kept its place"
        client.release(grant, timeout=LIMIT)
        assert waiting.result(LONG).token > grant.token
    finally:
        harness.close()


def test_a_dead_leader_and_then_a_paused_server_do_not_end_a_lease(
    zookeeper_three: ZooKeeperEnsemble, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    ensemble = zookeeper_three
    client = opened(f"zookeeper://{ensemble.hosts}/ensemble")
    grant = take(client, claim())

    def renewed() -> bool:
        try:
            return client.renew(grant, timeout=1.0).token == grant.token
        except BackendUnavailable:
            return False

    leader = ensemble.leader()
    leader.kill()
    try:
        eventually(renewed, limit=grant.ttl)
    finally:
        leader.start()
        eventually(lambda: len(ensemble.followers()) == 2, limit=30.0)
    paused = ensemble.followers()[0]
    paused.pause()
    try:
        for _ in range(10):
            eventually(renewed, limit=grant.ttl)
            time.sleep(0.1)
    finally:
        paused.resume()
    other = opened(f"zookeeper://{paused.address}/ensemble")
    assert refused(other, claim())
    client.release(grant, timeout=LIMIT)
    take(other, claim())


def test_one_of_three_servers_that_swallows_everything_delays_by_seconds_at_most(
    zookeeper_server: ZooKeeper, start_proxy: Callable[..., Any], opened: Callable[[str], ZooKeeperBackend]
) -> None:
    dead = start_proxy(zookeeper_server, mode="blackhole")
    for number in range(3):
        client = opened(f"zookeeper://{dead.address},{zookeeper_server.address}/dead{number}")
        began = time.monotonic()
        client.release(take(client, claim()), timeout=LIMIT)
        assert time.monotonic() - began < 4.0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 64,
        b"\0\0\0\0",
        b"\0\0\0\x01x",
        b"\x7f\xff\xff\xff" + b"x" * 64,
    ],
    ids=["silence", "http", "ones", "nothing", "short", "endless"],
)
def test_what_is_not_zookeeper_is_unavailable_in_time(answer: bytes, opened: Callable[[str], ZooKeeperBackend]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(answer)
                        over.wait(0.2)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            client = opened(f"zookeeper://127.0.0.1:{listener.getsockname()[1]}")
            began = time.monotonic()
            with pytest.raises(BackendUnavailable):
                client.try_acquire(claim(), timeout=0.7)
            assert time.monotonic() - began < 5.0
        finally:
            over.set()
            thread.join()


def test_a_server_that_cannot_be_found_is_named_with_the_reason(opened: Callable[[str], ZooKeeperBackend]) -> None:
    with pytest.raises(BackendUnavailable, match=r"zookeeper at 127.0.0.1:1: (no answer .*: )?Connection refused"):
        opened("zookeeper://127.0.0.1:1").inspect("nightly", timeout=0.3)
    with pytest.raises(BackendUnavailable, match=r"cannot resolve nowhere.invalid"):
        opened("zookeeper://nowhere.invalid").inspect("nightly", timeout=LIMIT)


def test_servers_that_refuse_connections_are_not_waited_for(
    opened: Callable[[str], ZooKeeperBackend], zookeeper_server: ZooKeeper
) -> None:
    client, mine = opened("zookeeper://127.0.0.1:1,127.0.0.1:2"), claim()
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"127.0.0.1:2: Connection refused"):
            client.try_acquire(mine, timeout=60.0)
        assert time.monotonic() - began < 20.0
    take(opened(f"zookeeper://127.0.0.1:1,{zookeeper_server.address}/refusing"), mine)


@pytest.mark.slow
def test_a_session_that_has_seen_more_than_the_server_says_so_and_a_new_one_gets_in(
    own_server: ZooKeeper, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    client, other = (opened(f"zookeeper://{own_server.address}/wiped") for _ in range(2))
    grant = take(client, claim(ttl=5.0))
    for _ in range(10):
        client.renew(grant, timeout=LIMIT)
    own_server.wipe()
    with pytest.raises(BackendUnavailable, match="its data are older than what this session has seen"):
        client.renew(grant, timeout=LIMIT)  # the pauses between attempts to connect have grown while it was away
    take(other, claim())


@pytest.mark.slow
def test_a_waiter_whose_session_the_servers_refuse_does_not_stand_behind_the_node_of_that_session(
    own_server: ZooKeeper, opened: Callable[[str], ZooKeeperBackend]
) -> None:
    """Their data were put back to a time when it did wait already."""
    client, mine = opened(f"zookeeper://{own_server.address}/t"), claim(ttl=30.0)

    with administrator(own_server) as admin:
        ahead = [admin.create(f"/t/nightly/{name}__lock__", makepath=True, sequence=True) for name in "ab"]
        waiting = Background(lambda: wait_through_failures(client, mine))
        eventually(lambda: len(admin.get_children("/t/nightly")) == 3)
    own_server.save()
    with administrator(own_server) as admin:
        for _ in range(100):  # more than what those who try to connect add afterwards
            admin.create("/seen", sequence=True)
        admin.delete(ahead[1])
        deleted = admin.last_zxid
    session = eventually(lambda: (used := client._attempts[mine.owner]._session) and used.last_zxid >= deleted and used)
    own_server.put_back()
    eventually(lambda: client._attempts[mine.owner]._session is not session)
    with administrator(own_server) as admin:
        for node in ahead:
            admin.delete(node)
    began = time.monotonic()
    assert waiting.result(60.0).claim == mine
    assert time.monotonic() - began < 10.0, "the session of before lasts 30 s"


def test_a_connection_that_was_reset_is_made_anew_without_a_word(
    harness: ZooKeeperHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    client = harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    harness.proxy(client).mode = "reset"
    with pytest.raises(BackendUnavailable):
        client.renew(grant, timeout=0.3)
    harness.heal(client)
    client.renew(grant, timeout=LIMIT)
    client.close()
    assert capfd.readouterr() == ("", "")


class Separable(ZooKeeper):
    """A member that reaches the leader through proxies of its own."""

    ways: dict[int, Proxy]

    def _configure(self) -> None:
        super()._configure()
        self.ways = {}
        file = self.directory / "zoo.cfg"
        lines = []
        for line in file.read_text().splitlines():
            for other in self.ensemble:
                if other is not self and line.startswith(f"server.{other.member}="):
                    way = self.ways[other.member] = Proxy((other.host, other.peers[0]))
                    line = f"server.{other.member}={other.host}:{way.port}:{other.peers[1]}"  # noqa: PLW2901
            lines.append(line)
        file.write_text("\n".join([*lines, ""]))

    def stop(self) -> None:
        super().stop()
        for way in self.ways.values():
            way.close()


class SeparableEnsemble(ZooKeeperEnsemble):
    """Three of them."""

    def __init__(self, directory: Path, *, members: int = 3) -> None:
        self.members = [Separable(directory / f"m{number}", member=number) for number in range(1, members + 1)]
        for member in self.members:
            member.ensemble = self.members


def test_a_follower_that_was_cut_off_renews_nothing_although_it_answers(
    start_server: Callable[..., SeparableEnsemble], opened: Callable[[str], ZooKeeperBackend]
) -> None:
    ensemble = start_server(SeparableEnsemble)
    lonely, leader = ensemble.followers()[0], ensemble.leader()
    assert isinstance(lonely, Separable)
    holder, rival = (opened(f"zookeeper://{server.address}/cut") for server in (lonely, leader))
    reader = KazooClient(hosts=lonely.address, read_only=True)
    reader.start()
    grant = take(holder, claim(ttl=2.0))
    mine = claim(ttl=2.0)
    waiting = Background(lambda: rival.wait(mine, timeout=20.0, interrupt=None))
    eventually(lambda: len(reader.get_children("/cut/nightly")) == 2)
    for _ in range(4):
        time.sleep(0.3)
        sent = time.monotonic()
        holder.renew(grant, timeout=LIMIT)
    for way in lonely.ways.values():
        way.mode = "blackhole"
    assert len(reader.get_children("/cut/nightly")) == 2, "what it answers proves nothing"
    while waiting.running and time.monotonic() < sent + 10.0:
        with pytest.raises((BackendUnavailable, LeaseLost)):
            holder.renew(grant, timeout=0.3)
    waiting.result()
    assert waiting.ended_at >= sent + grant.ttl
    assert take(rival, mine).token > grant.token
    reader.stop()
    reader.close()


def test_a_server_that_resets_the_connection_is_told_as_one_that_closes_it(
    zookeeper_server: ZooKeeper, start_proxy: Callable[..., Any], opened: Callable[[str], ZooKeeperBackend]
) -> None:
    """As one with too many connections does, for who has sent something by then."""
    proxy = start_proxy(zookeeper_server, mode="reset")
    client = opened(f"zookeeper://{proxy.host}:{proxy.port}/locks")
    with pytest.raises(BackendUnavailable, match="it closes the connection: no quorum, more connections from this"):
        client.try_acquire(claim(), timeout=1.0)


def test_how_long_a_server_was_silent_counts_from_the_connection() -> None:
    attempt = 3.0 / ATTEMPT_PART  # seconds: the second call goes on with the connection that the first one has begun
    told, mine = list[float](), claim(ttl=3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"zookeeper://127.0.0.1:{silent.getsockname()[1]}/x"
        with contextlib.closing(ZooKeeperBackend.from_url(parse_url(place))) as client:
            for _ in range(5):
                with pytest.raises(
                    BackendUnavailable, match=r"no answer within 0\.3 s: no answer within [\d.]+ s"
                ) as raised:
                    client.try_acquire(mine, timeout=0.3)
                told.append(float(str(raised.value).split()[-2]))
    assert max(told) >= attempt, told
    assert min(told) > 0
