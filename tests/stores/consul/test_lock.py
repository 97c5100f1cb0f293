"""What only Consul has: sessions, lock delays, the name of a cluster, answers that are lost, revocations in the key."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import SLOT, Revocation
from lockctl.stores.consul.layout import LOCK_FLAGS
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, UNHEARD, Background, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.test_consul import ConsulHarness
from tests.jobs import best_of_a_few, eventually
from tests.servers.consul import Consul, ConsulCluster
from tests.servers.http_proxy import HttpProxy, Request
from tests.servers.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl


@pytest.fixture
def private(start_server: Callable[..., Consul]) -> Iterator[Callable[..., ConsulHarness]]:
    """Makes a server of the test's own."""
    made: list[ConsulHarness] = []

    def start(**options: Any) -> ConsulHarness:
        made.append(ConsulHarness(start_server(Consul, **options)))
        return made[-1]

    yield start
    for each in made:
        each.close()


def token_in(entry: dict[str, Any]) -> int:
    """The token in the document of a holder."""
    return int(json.loads(b64decode(entry["Value"]))["token"])


def test_the_key_is_the_one_of_consul_lock_with_its_flags_and_the_token_is_in_its_document(
    harness: ConsulHarness,
) -> None:
    grant = take(harness.client(), harness.claim())
    entry = harness.entry()
    assert (entry["Flags"], token_in(entry)) == (LOCK_FLAGS, grant.token)
    assert entry["Key"] == grant.key + "/.lock"


def test_the_session_depends_on_its_ttl_alone(harness: ConsulHarness) -> None:
    take(harness.client(), harness.claim(ttl=1.5))
    (session,) = json.loads(harness.server.request("GET", "/v1/session/info/" + harness.entry()["Session"]))
    assert session["TTL"] == "1500ms"
    assert not session["NodeChecks"]
    assert not session["ServiceChecks"]


@pytest.mark.parametrize(
    ("params", "ttl", "lease", "delay"),
    [
        ({}, 1.0, 1.0, 1.25),
        ({}, 30.0, 30.0, 31.5),
        ({}, 58.0, 58.0, 60.0),
        ({}, 300.0, 58.0, 60.0),  # no delay is longer
        ({"lock_delay": "ttl"}, 30.0, 30.0, 31.5),
        ({"lock_delay": "15s"}, 300.0, 300.0, 15.0),
        ({"lock_delay": "0"}, 30.0, 30.0, 0.0),
    ],
)
def test_a_lease_is_not_relied_on_for_longer_than_its_lock_delay_unless_that_was_asked_for(
    harness: ConsulHarness, params: dict[str, str], ttl: float, lease: float, delay: float
) -> None:
    client = harness.client(**params)
    grant = take(client, harness.claim(ttl=ttl))
    (session,) = json.loads(harness.server.request("GET", "/v1/session/info/" + harness.entry()["Session"]))
    assert (grant.ttl, client.renew(grant, timeout=LIMIT).ttl, session["LockDelay"]) == (lease, lease, delay * 1e9)


def test_a_session_that_ends_before_its_ttl_keeps_the_lock_closed_until_the_lease_would_have_been_over(
    start_server: Callable[..., ConsulCluster],
) -> None:
    cluster = start_server(ConsulCluster)
    leader = cluster.leader()
    failing, other = (member for member in cluster.members if member is not leader)
    mine, theirs = ConsulHarness(failing), ConsulHarness(other)
    theirs.prefix = mine.prefix
    try:
        take(mine.client(), mine.claim("whole", ttl=8.0))
        take(mine.client(), mine.claim("slots", ttl=8.0, slots=2, mode=SLOT))
        grant = take(mine.client(), mine.claim("slots", ttl=8.0, slots=2, mode=SLOT))
        over = time.monotonic() + grant.ttl
        failing.kill()
        # Autopilot does this at the latest 15 s after a server failed: all sessions end that were made there
        cluster.remove(failing, other)
        wait_until(lambda: theirs.sessions("whole") + theirs.sessions("slots") == 0, "the sessions have ended")
        assert time.monotonic() < over - 2.0, "too late for what is tested"
        contender = theirs.client()
        claims = [theirs.claim("whole"), theirs.claim("whole", slots=2, mode=SLOT)]
        claims += [theirs.claim("slots"), theirs.claim("slots", slots=2, mode=SLOT)]
        while time.monotonic() < over:
            assert [claim for claim in claims if not refused(contender, claim)] == []
            time.sleep(0.1)
    finally:
        mine.close()
        theirs.close()


@pytest.mark.parametrize("params", [{}, {"lock_delay": "0"}, {"lock_delay": "5s"}])
def test_a_release_leaves_neither_key_nor_session_and_the_next_goes_on_at_once(
    harness: ConsulHarness, params: dict[str, str]
) -> None:
    client = harness.client(**params)
    for name in ("one", "two"):
        grant = take(client, harness.claim(name))
        client.release(grant, timeout=LIMIT)
        assert harness.sessions(name) == 0
        assert list(client.list("*", timeout=LIMIT)) == []
    take(harness.client(), harness.claim("one"))


def test_a_lock_delay_is_for_holders_that_vanished_and_is_waited_for_without_a_rush(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(lock_delay="1s"), harness.client(), harness.claim()
    take(client, harness.claim())
    harness.server.request("PUT", "/v1/session/destroy/" + harness.entry()["Session"])
    began, tries = time.monotonic(), 0
    while other.try_acquire(claim, timeout=LIMIT) is None:
        other.wait(claim, timeout=LIMIT, interrupt=None)
        tries += 1
    assert 0.5 < time.monotonic() - began < 3.5
    assert tries <= 3


@pytest.mark.parametrize("more", [(), ("-l", "other")])
def test_a_run_that_is_refused_for_a_lock_delay_is_told_so(
    harness: ConsulHarness, lockctl: Lockctl, more: tuple[str, ...]
) -> None:
    client = harness.client(lock_delay="20s")
    take(client, harness.claim())
    harness.server.request("PUT", "/v1/session/destroy/" + harness.entry()["Session"])
    url = f"consul://{harness.server.address}/?prefix={harness.prefix}"
    done = lockctl("run", "-n", "-b", url, "-l", "nightly", *more, "--", "true")
    assert done.returncode == 75
    assert "nobody holds it: Consul keeps it closed for the lock delay" in done.stderr


def test_who_was_refused_for_a_lock_delay_is_interrupted_at_once(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(lock_delay="5s"), harness.client(), harness.claim()
    take(client, harness.claim())
    harness.server.request("PUT", "/v1/session/destroy/" + harness.entry()["Session"])
    reading, writing = os.pipe()
    try:
        assert other.try_acquire(claim, timeout=LIMIT) is None
        os.write(writing, b".")
        began = time.monotonic()
        other.wait(claim, timeout=LIMIT, interrupt=reading)
        assert time.monotonic() - began < 4.0
    finally:
        os.close(reading)
        os.close(writing)


def test_a_waiter_that_gives_up_leaves_no_session(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(), harness.client(), harness.claim("busy")
    take(client, harness.claim("busy", ttl=120.0))
    assert other.try_acquire(claim, timeout=LIMIT) is None
    reading, writing = os.pipe()
    try:
        waiting = Background(lambda: other.wait(claim, timeout=LIMIT, interrupt=reading))
        # one whose answer does not arrive before the interruption would end with its ttl alone
        eventually(lambda: claim.owner in other._claims.sessions)
        assert harness.sessions("busy") == 3  # the holder's, that of our claim, and that of our position
        os.write(writing, b".")
        waiting.result()
        other.withdraw(claim, timeout=LIMIT)
        assert harness.sessions("busy") == 1
    finally:
        os.close(reading)
        os.close(writing)


def test_a_session_that_is_not_found_by_one_request_and_is_there_for_another_is_not_lost(
    harness: ConsulHarness,
) -> None:
    """A server that has just started denies sessions that it has not read yet: seen in three of eight restarts."""

    def deny(request: Request) -> Any:
        path, _, session = request.path.rpartition("/")
        return (404, [], f"Session id '{session}' not found".encode()) if path == "/v1/session/renew" else None

    with HttpProxy(harness.server.address) as proxy:
        client = ConsulBackend.from_url(parse_url(f"consul://{proxy.address}/?prefix={harness.prefix}"))
        try:
            grant = take(client, harness.claim())
            proxy.look = deny
            with pytest.raises(BackendUnavailable, match="the session is there"):
                client.renew(grant, timeout=LIMIT)
            with pytest.raises(BackendUnavailable, match="the session is there"):
                client.try_acquire(grant.claim, timeout=LIMIT)
            assert harness.sessions() == 1
            proxy.look = lambda _: None
            assert client.renew(grant, timeout=LIMIT).token == grant.token
            proxy.look = deny
            harness.server.request("PUT", "/v1/session/destroy/" + harness.entry()["Session"])
            with pytest.raises(LeaseLost):
                client.renew(grant, timeout=LIMIT)
        finally:
            client.close()


def test_a_ttl_below_the_servers_minimum_is_a_mistake_of_the_configuration_that_says_what_it_may_be(
    private: Callable[..., ConsulHarness],
) -> None:
    harness = private(session_ttl_min="10s")
    with pytest.raises(ConfigError, match=r"must be from 10s to 24h0m0s: change --ttl \(or session_ttl_min"):
        harness.client().try_acquire(harness.claim(ttl=5.0), timeout=LIMIT)


def test_a_cluster_has_one_name_and_another_cluster_another(
    harness: ConsulHarness, private: Callable[..., ConsulHarness]
) -> None:
    domains = {take(harness.client(), harness.claim(name)).domain for name in ("one", "two", "three")}
    elsewhere = private()
    elsewhere.prefix = harness.prefix
    domains.add(take(elsewhere.client(), harness.claim("one")).domain)
    assert len(domains) == 2
    assert all(domain.startswith("consul:") for domain in domains)


def test_three_thousand_locks_are_listed_in_little_time(harness: ConsulHarness) -> None:
    names = [f"job-{number:05}" for number in range(3000)]
    for start in range(0, len(names), 64):
        sets = [
            {"KV": {"Verb": "set", "Key": f"{harness.prefix}{name}/.lock", "Value": "", "Flags": LOCK_FLAGS}}
            for name in names[start : start + 64]
        ]
        harness.server.request("PUT", "/v1/txn", json.dumps(sets).encode())

    def attempt() -> float:
        began = time.monotonic()
        assert [lock.name for lock in harness.client().list("*", timeout=LIMIT)] == names
        return time.monotonic() - began

    best_of_a_few(attempt, 5)
    assert [lock.name for lock in harness.client().list("job-0012?", timeout=LIMIT)] == names[120:130]
    harness.server.request("DELETE", f"/v1/kv/{harness.prefix}", recurse="true")


def lose_answers(harness: ConsulHarness, client: ConsulBackend, method: str) -> None:
    """From the next call of one of the agent's methods on, requests arrive and replies do not."""
    agent, original = client._agent, getattr(client._agent, method)

    def losing(*args: Any) -> Any:
        setattr(agent, method, original)
        harness.proxy(client).mode = "drop_replies"
        return original(*args)

    setattr(agent, method, losing)


def test_a_claim_whose_answer_was_lost_finds_its_grant_again(harness: ConsulHarness) -> None:
    client, claim = harness.client(), harness.claim(ttl=30.0)
    client.release(take(client, harness.claim("first")), timeout=LIMIT)
    lose_answers(harness, client, "transact")
    with pytest.raises(BackendUnavailable):
        client.try_acquire(claim, timeout=UNHEARD)
    token = token_in(harness.entry())
    harness.heal(client)
    assert take(client, claim).token == token
    assert harness.sessions() == 1


def test_a_lock_that_a_lost_answer_may_have_granted_is_given_back(harness: ConsulHarness) -> None:
    client, claim = harness.client(), harness.claim(ttl=30.0)
    client.release(take(client, harness.claim("first")), timeout=LIMIT)
    lose_answers(harness, client, "transact")
    with pytest.raises(BackendUnavailable):
        client.try_acquire(claim, timeout=UNHEARD)
    assert harness.entry()["Session"]
    harness.heal(client)
    client.withdraw(claim, timeout=LIMIT)
    assert harness.sessions() == 0
    take(harness.client(), harness.claim())


def test_a_session_whose_answer_was_lost_holds_nothing(harness: ConsulHarness) -> None:
    client, claim = harness.client(), harness.claim()
    lose_answers(harness, client, "create_session")
    with pytest.raises(BackendUnavailable):
        client.try_acquire(claim, timeout=UNHEARD)
    take(harness.client(), harness.claim())


def test_a_grant_is_found_by_its_owner_also_from_another_connection(harness: ConsulHarness) -> None:
    claim, second = harness.claim(), harness.client()
    grant = take(harness.client(), claim)
    assert take(second, claim) == grant
    second.renew(grant, timeout=LIMIT)
    second.release(grant, timeout=LIMIT)
    take(harness.client(), harness.claim())


def test_a_revocation_leaves_the_token_as_it_was_seen_and_the_last_one_counts(harness: ConsulHarness) -> None:
    client, operator = harness.client(), harness.client()
    grant = take(client, harness.claim())
    floors = []
    for reason in ("first", "second"):
        floors.append(
            operator.revoke(
                "nightly", holder_of(operator), Revocation(now=False, by="ops", reason=reason), timeout=LIMIT
            )
        )
        assert holder_of(operator).token == grant.token
        assert take(client, grant.claim).token == grant.token
    with pytest.raises(LeaseRevoked, match="revoked by ops: second"):
        client.renew(grant, timeout=LIMIT)
    assert harness.entry()["Flags"] == LOCK_FLAGS
    client.release(grant, timeout=LIMIT)
    assert take(client, harness.claim()).token >= max(floor for floor in floors if floor is not None)


def test_a_revoked_holder_can_still_be_taken_the_lock_from(harness: ConsulHarness) -> None:
    client, operator = harness.client(), harness.client()
    grant = take(client, harness.claim())
    revoke(operator, holder_of(operator))
    floor = revoke(operator, holder_of(operator), now=True)
    later = take(operator, harness.claim())
    assert floor is not None
    assert grant.token < floor <= later.token
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)


def test_another_programs_session_survives_that_its_lock_is_taken_away(harness: ConsulHarness) -> None:
    client = harness.client()
    with harness.foreign_hold("nightly") as session:
        harness.write(b"", "other", acquire=session, flags=LOCK_FLAGS)
        assert revoke(client, holder_of(client), now=True) is not None
        assert client.inspect("other", timeout=LIMIT).state == "foreign"
