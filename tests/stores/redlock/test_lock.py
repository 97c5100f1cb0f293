"""What only Redlock has: majorities, what a minority may do, and clients that do not agree on the nodes."""

from __future__ import annotations

import _thread
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, RequestInterrupted
from lockctl.lease.attempts import Attempts
from lockctl.model import Revocation
from tests.contract.harness import LIMIT, UNHEARD, Background, claim, take, wait_for_turn
from tests.contract.keeping import revoke
from tests.contract.remembering import a_run
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from tests.jobs import Lockctl
    from tests.servers.redis import Redis
    from tests.stores.redlock.conftest import Scene

NODES = 5


@pytest.mark.parametrize("mode", ["blackhole", "refuse", "reset", "drop_replies"])
def test_a_minority_that_is_away_changes_nothing_but_the_time_it_takes(scene: Scene, mode: str) -> None:
    client, other = scene.client(), scene.client()
    scene.cut(1, 3, mode=mode)
    grant = take(client, claim())
    assert other.try_acquire(claim(), timeout=LIMIT) is None
    assert client.renew(grant, timeout=UNHEARD).token == grant.token
    assert other.inspect("nightly", timeout=LIMIT).holders[0].token == grant.token
    client.release(grant, timeout=LIMIT)
    scene.cut()
    assert take(other, claim()).token > grant.token


def test_a_majority_that_is_away_is_said_and_leaves_nothing(scene: Scene) -> None:
    client, mine = scene.client(), claim()
    scene.cut(0, 2, 4)
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes answered, 3 are needed"):
        client.try_acquire(mine, timeout=2.0)
    assert scene.where() == []
    scene.cut()
    client.withdraw(mine, timeout=LIMIT)
    take(scene.client(), claim())


def test_a_lock_that_was_lost_on_a_minority_is_put_back_there_where_no_other_has_it(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=30.0))
    value = scene.servers[0].ask("GET", scene.key)

    def values() -> list[bytes]:
        return [server.ask("GET", scene.key) for server in scene.servers]

    for lost in ((0, 1), (2, 3), (4, 0)):  # one after the other: more than a majority in all
        for number in lost:
            scene.servers[number].ask("DEL", scene.key)
        eventually(lambda: client.renew(grant, timeout=LIMIT) and values() == [value] * NODES)
    assert all(28_000 < server.ask("PTTL", scene.key) <= 30_000 for server in scene.servers)
    scene.servers[0].ask("DEL", scene.key, f"{{{scene.key}}}:fence")
    scene.servers[1].ask("SET", scene.key, "somebody", "PX", "60000")
    eventually(lambda: client.renew(grant, timeout=LIMIT) and values()[0] == value)
    assert scene.servers[0].ask("GET", f"{{{scene.key}}}:fence") == str(grant.token).encode()
    assert scene.servers[1].ask("GET", scene.key) == b"somebody"


def test_a_lock_that_a_majority_has_lost_is_put_back_nowhere(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim())
    for number in (0, 1):
        scene.servers[number].ask("DEL", scene.key)
    scene.cut(2)
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes renewed the lock, 3 are needed"):
        client.renew(grant, timeout=0.5)
    scene.cut()
    scene.servers[2].ask("DEL", scene.key)
    with pytest.raises(LeaseLost, match="on 2 of 5 nodes only"):
        client.renew(grant, timeout=LIMIT)
    eventually(lambda: not any(node._busy.locked() for node in client._nodes))
    assert scene.where() == [3, 4]


def test_nodes_that_are_slow_hold_the_lock_too_and_the_others_may_then_fail(scene: Scene) -> None:
    client = scene.client()
    scene.cut(3, 4, mode="delay=0.3")
    grant = take(client, claim(ttl=20.0))
    beginning = f"{grant.claim.owner}|{grant.token}|".encode()
    assert all(server.ask("GET", scene.key).startswith(beginning) for server in scene.servers[:3])
    eventually(lambda: all((server.ask("GET", scene.key) or b"").startswith(beginning) for server in scene.servers))
    scene.cut(0, 1)
    assert client.renew(grant, timeout=LIMIT)


def test_a_holder_is_shown_with_the_token_of_the_majority(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=20.0))
    for number in (1, 3):  # as those that gave their own tokens too late
        later = f"{grant.claim.owner}|{grant.token + 7 + number}|"
        value = scene.servers[number].ask("GET", scene.key).replace(f"{grant.claim.owner}|{grant.token}|".encode(), b"")
        scene.servers[number].ask("SET", scene.key, later.encode() + value, "PX", "20000")
    assert client.inspect("nightly", timeout=LIMIT).holders[0].token == grant.token


def test_a_node_that_is_slow_does_not_get_the_lock_after_it_was_given_back(scene: Scene) -> None:
    client = scene.client()
    client.release(take(client, claim()), timeout=LIMIT)  # the connections are there
    scene.cut(3, 4, mode="delay=0.3")
    client.release(take(client, claim(ttl=20.0)), timeout=LIMIT)
    scene.cut()
    eventually(lambda: not any(node._busy.locked() for node in client._nodes))
    scene.await_late_requests()
    take(client, claim())  # what a node did not hear yet, it hears first
    eventually(lambda: len(scene.where()) == NODES)
    eventually(lambda: len({server.ask("GET", scene.key) for server in scene.servers}) == 1)  # a late one joins them


def test_a_job_survives_the_outages_of_three_of_five_nodes_one_after_the_other(lockctl: Lockctl, scene: Scene) -> None:
    nodes = ",".join(proxy.address for proxy in scene.proxies)
    url = f"redlock://{nodes}/0?prefix={scene.prefix}"
    job = lockctl.start("run", "-b", url, "-l", "nightly", "-t", "2s", "--", "sleep", "60")
    eventually(lambda: len(scene.where()) == NODES)
    for number in (0, 2, 4):
        scene.cut(number)
        eventually(lambda number=number: number not in scene.where())  # type: ignore[misc]
        scene.cut()
        eventually(lambda: len(scene.where()) == NODES)
    job.send_signal(signal.SIGTERM)
    assert job.wait(LIMIT) == 128 + signal.SIGTERM
    assert scene.where() == []


def test_a_split_vote_is_given_back_at_once_by_who_lost_it(scene: Scene) -> None:
    first, second = scene.client(), scene.client()
    for number in (0, 1, 2):  # somebody is in the midst of it: neither he nor we have a majority of the rest
        scene.servers[number].ask("SET", scene.key, "somebody", "PX", "300")
    assert first.try_acquire(claim(), timeout=LIMIT) is None
    assert scene.where() == [0, 1, 2]
    assert first.inspect("nightly", timeout=LIMIT).state == "foreign"
    mine = claim()
    grant = wait_for_turn(second, mine)
    assert second.renew(grant, timeout=LIMIT)


def test_clients_that_name_other_nodes_are_told_so(scene: Scene) -> None:
    all_five, three = scene.client(), scene.client(slice(2, 5))
    take(all_five, claim())
    with pytest.raises(ConfigError, match="another set of nodes"):
        three.try_acquire(claim(), timeout=LIMIT)


def test_the_order_of_the_nodes_in_the_url_does_not_matter(scene: Scene) -> None:
    one, reverse = scene.client(), scene.client(slice(None, None, -1))
    grant = take(one, claim())
    assert reverse.try_acquire(claim(), timeout=LIMIT) is None
    one.release(grant, timeout=LIMIT)
    assert take(reverse, claim()).domain == grant.domain


def test_the_key_is_that_of_a_single_server_so_that_its_clients_are_kept_out(scene: Scene) -> None:
    grant = take(scene.client(), claim())
    alone = scene.single(0)
    assert alone.try_acquire(claim(), timeout=LIMIT) is None
    assert alone.inspect("nightly", timeout=LIMIT).holders[0].token == grant.token


def test_each_node_of_a_majority_takes_the_token_over(scene: Scene) -> None:
    client, fence = scene.client(), f"{{{scene.key}}}:fence"
    scene.servers[3].ask("SET", fence, str(int((time.time() + 3600) * 1_000_000)))
    grant = take(client, claim())
    for server in scene.servers:
        assert server.ask("GET", fence) == str(grant.token).encode()
        assert server.ask("GET", scene.key).startswith(f"{grant.claim.owner}|{grant.token}|".encode())
        assert 0 < server.ask("PTTL", scene.key) <= 1000 * grant.ttl


def test_a_node_takes_a_token_over_only_for_the_lock_as_it_gave_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may end, and a late request have it give the lock to the same owner anew, with a token after another's."""
    client, mine = scene.client(), claim()
    confirm = client._confirm

    def late(claim: Claim, given: dict[Any, int], *more: Any) -> Any:
        for server in scene.servers[:3]:
            _, token, document = server.ask("GET", scene.key).split(b"|", 2)
            anew = b"%s|%d|%s" % (mine.owner.encode(), int(token) + 1, document)
            server.ask("SET", scene.key, anew, "PX", "60000")
        return confirm(claim, given, *more)

    monkeypatch.setattr(client, "_confirm", late)
    assert client.try_acquire(mine, timeout=LIMIT) is None
    assert client.inspect("nightly", timeout=LIMIT).state == "free"


def test_an_operator_reaches_the_holder_through_a_majority_and_every_majority_tells_it(scene: Scene) -> None:
    holder, operator = scene.client(), scene.client()
    grant = take(holder, claim(ttl=60.0))
    seen = operator.inspect("nightly", timeout=LIMIT).holders[0]
    scene.cut(0, 1)
    assert operator.revoke("nightly", seen, Revocation(now=False, by="ops@web1", reason=""), timeout=2.0)
    scene.cut(3, 4)
    with pytest.raises(LeaseRevoked, match="ops@web1"):
        holder.renew(grant, timeout=UNHEARD)
    scene.cut(0, 1, 2)
    with pytest.raises(BackendUnavailable):
        operator.revoke("nightly", seen, Revocation(now=True, by="ops@web1", reason=""), timeout=1.0)
    scene.cut()
    floor = revoke(operator, seen, now=True)
    # two nodes were freed before: whoever is told that nobody is there knows that the lock is free
    assert floor is None or floor > grant.token
    assert take(operator, claim()).token > grant.token


def test_nodes_that_an_operator_freed_one_after_the_other_stay_free(scene: Scene) -> None:
    holder = scene.client()
    grant = take(holder, claim(ttl=60.0))
    eventually(lambda: len(scene.where()) == NODES)
    seen = holder.inspect("nightly", timeout=LIMIT).holders[0]
    for number in (0, 1, 2):
        operator = scene.operator(number)
        with pytest.raises(BackendUnavailable, match="1 of 5 nodes"):
            revoke(operator, seen, now=True)
        if number < 2:
            holder.renew(grant, timeout=LIMIT)  # a majority has it yet
            eventually(lambda: not any(node._busy.locked() for node in holder._nodes))
        assert scene.where() == [*range(number + 1, NODES)]
    with pytest.raises(LeaseLost, match="on 2 of 5 nodes only"):
        holder.renew(grant, timeout=LIMIT)


@pytest.mark.parametrize("theirs", [(0, 1), (3, 4)])
def test_of_two_other_programs_that_of_a_majority_is_shown_and_taken_away(
    scene: Scene, theirs: tuple[int, ...]
) -> None:
    operator = scene.client()
    for number, server in enumerate(scene.servers):
        server.ask("SET", scene.key, "of a minority" if number in theirs else "of a majority")
    (seen,) = operator.inspect("nightly", timeout=LIMIT).holders
    assert revoke(operator, seen, now=True) is not None
    eventually(lambda: tuple(scene.where()) == theirs)


def test_what_a_lost_attempt_sends_late_does_not_hit_the_next_one(scene: Scene) -> None:
    client = scene.client()
    client.release(take(client, claim()), timeout=LIMIT)  # all servers know the scripts
    attempts = Attempts(client, claim(ttl=20.0))
    for number in (3, 4):
        scene.servers[number].ask("SET", scene.key, "somebody", "PX", "60000")
    scene.cut(2, mode="delay=3")
    assert attempts.take(LIMIT, None) is None
    for number in (3, 4):
        scene.servers[number].ask("DEL", scene.key)
    scene.cut()
    eventually(lambda: not client._nodes[2]._busy.locked())
    grant: Any = attempts.take(LIMIT, None)
    eventually(lambda: len({server.ask("GET", scene.key) for server in scene.servers}) == 1)  # a late one joins them
    scene.await_late_requests()
    values = [server.ask("GET", scene.key) for server in scene.servers]
    assert values == [values[0]] * NODES
    assert values[0].startswith(f"{grant.claim.owner}|".encode())


def test_attempts_at_a_majority_that_stalls_do_not_keep_the_next_one_out(scene: Scene) -> None:
    attempts = Attempts(scene.client(), claim(ttl=60.0))
    scene.cut(0, 1, 2, mode="delay=3")
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            attempts.take(1.0, None)
    scene.cut()
    grant: Any = attempts.take(LIMIT, None)
    scene.await_late_requests()
    assert scene.where() == list(range(NODES))
    assert attempts.backend.renew(grant, timeout=LIMIT)


def test_nodes_that_answer_are_asked_without_a_thread(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    client = scene.client()
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    for _ in range(2):  # with connections that are made, and with those that are there
        grant = take(client, claim())
        client.renew(grant, timeout=LIMIT)
        assert client.release_with_run(grant, a_run(), timeout=LIMIT)
    assert scene.where() == []
    monkeypatch.undo()
    assert client.history("nightly", timeout=LIMIT) == (a_run(),)


def test_a_node_that_cannot_have_a_thread_is_one_that_is_away(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    client = scene.client()
    scene.cut(3, 4)
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    grant = take(client, claim())  # goes on without them
    monkeypatch.undo()
    scene.cut()
    assert not any(node._busy.locked() for node in client._nodes)
    eventually(lambda: client.renew(grant, timeout=LIMIT) and len(scene.where()) == NODES)


def test_nodes_whose_names_must_be_resolved_are_asked_at_the_same_time(scene: Scene) -> None:
    client = scene.client(host="localhost")
    scene.cut(0, 1)
    grant = take(client, claim())
    scene.cut()
    eventually(lambda: client.renew(grant, timeout=LIMIT) and len(scene.where()) == NODES)
    client.release(grant, timeout=LIMIT)
    eventually(lambda: scene.where() == [])  # a majority answers for all


def test_a_request_whose_thread_starts_late_does_not_come_behind_the_one_that_gives_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = scene.client()
    client.release(take(client, claim()), timeout=LIMIT)  # the connections are there
    mine = claim(ttl=60.0)
    late: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
    reading, writing = os.pipe()
    os.write(writing, b".")
    monkeypatch.setattr(_thread, "start_new_thread", lambda *thread: late.append(thread))
    assert all(node.enter(0.0) for node in client._nodes)  # there is another request
    with pytest.raises(RequestInterrupted):
        client.try_acquire(mine, timeout=LIMIT, interrupt=reading)
    monkeypatch.undo()
    for node in client._nodes:
        node.leave()
    client.withdraw(mine, timeout=LIMIT)
    assert len(late) == NODES
    for serve, words in late:
        serve(*words)
    assert scene.where() == []
    for end in (reading, writing):
        os.close(end)


def test_no_answer_of_a_node_is_taken_for_that_of_another_request(scene: Scene) -> None:
    client = scene.client()
    for _ in range(5):
        scene.cut(0, 1, mode="delay=0.4")
        grant: Any = take(client, claim())
        scene.cut()
        client.renew(grant, timeout=1.0)
        client.release(grant, timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).state == "free"


def scripts_of(servers: list[Redis]) -> int:
    """How many scripts all of them have run."""
    told = [server.command("INFO", "commandstats") for server in servers]
    return sum(int(calls) for text in told for calls in re.findall(r"cmdstat_evalsha:calls=(\d+)", text))


def queue_at(scene: Scene, number: int) -> int:
    """How many wait at one node."""
    return int(scene.servers[number].command("ZCARD", f"{{{scene.key}}}:queue"))


def start_waiting(scene: Scene, mine: Claim) -> Background:
    """A wait of a client of its own."""
    client = scene.client()
    return Background(lambda: client.wait(mine, timeout=60.0, interrupt=None))


def test_a_release_wakes_the_first_of_those_who_wait_and_they_ask_seldom(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    claims = {each.owner: each for each in (claim(ttl=30.0) for _ in range(4))}
    waiting = [start_waiting(scene, each) for each in claims.values()]
    eventually(lambda: queue_at(scene, 0) == 4)
    before, began = scripts_of(scene.servers), time.monotonic()
    time.sleep(3.0)
    assert scripts_of(scene.servers) - before <= 20 * (time.monotonic() - began)
    client.release(grant, timeout=LIMIT)
    eventually(lambda: any(not each.running for each in waiting))
    assert sum(each.running for each in waiting) == 3
    for _ in waiting:  # each of those who were woken goes in and leaves, which wakes the next
        (owner,) = scene.servers[0].ask("ZRANGE", f"{{{scene.key}}}:queue", 0, 0)
        client.release(take(client, claims[owner.decode()]), timeout=LIMIT)
    for each in waiting:
        each.result()


@pytest.mark.parametrize("mode", ["blackhole", "refuse", "reset"])
def test_who_waits_goes_on_at_another_node_when_that_of_its_queue_is_away(scene: Scene, mode: str) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    waiting = start_waiting(scene, claim(ttl=30.0))
    eventually(lambda: queue_at(scene, 0) == 1)
    scene.cut(0, mode=mode)
    eventually(lambda: queue_at(scene, 1) == 1)
    client.release(grant, timeout=LIMIT)
    waiting.result()


def test_who_waits_takes_a_lock_that_is_left_on_the_nodes_that_answer_first(scene: Scene) -> None:
    client = scene.client()
    for server in scene.servers[:2]:
        server.ask("SET", scene.key, "left by a client that is gone")
    grant = take(client, claim(ttl=60.0))
    for number, delay in ((2, 0.01), (3, 0.05), (4, 0.05)):
        scene.proxies[number].mode = f"delay={delay}"
    waiting = start_waiting(scene, claim(ttl=30.0))
    eventually(lambda: queue_at(scene, 0) == 1)
    client.release(grant, timeout=LIMIT)
    waiting.result()


def test_who_lost_an_attempt_leaves_no_position_behind(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    mine = claim(ttl=60.0)
    grant = take(client, claim(ttl=60.0))
    reading, writing = os.pipe()
    waiting = Background(lambda: other.wait(mine, timeout=LIMIT, interrupt=reading))
    eventually(lambda: queue_at(scene, 0) == 1)
    os.write(writing, b".")
    waiting.result()
    os.close(reading)
    os.close(writing)
    assert queue_at(scene, 0) == 1
    assert other.try_acquire(mine, timeout=LIMIT) is None
    assert queue_at(scene, 0) == 0
    client.release(grant, timeout=LIMIT)
