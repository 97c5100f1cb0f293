"""What is kept beside the locks of Consul: holds, successes, runs; whose clock counts, and who must not write."""

from __future__ import annotations

import contextlib
import json
import os
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import SLOT
from lockctl.stores.consul import records
from lockctl.stores.consul.layout import LOCK_FLAGS
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.url import parse_url
from lockctl.value import replace
from tests.contract.forgetting import forget, unused, use
from tests.contract.harness import LIMIT, UNHEARD, Background, refused, take
from tests.contract.remembering import a_run
from tests.contract.test_consul import ConsulHarness
from tests.jobs import eventually
from tests.servers.consul import Consul
from tests.stores.consul.test_lock import lose_answers
from tests.stores.consul.test_slots import requests
from tests.stores.consul.test_strangers import HOSTILE, INDEXED, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ALWAYS = {"domain", "token/nightly/last"}  # what is beside a lock that was ever held


def beside(harness: ConsulHarness) -> dict[str, Any]:
    """What is kept beside the locks: by the end of the key."""
    folder = f"{harness.prefix}.lockctl/"
    found = json.loads(harness.server.request("GET", f"/v1/kv/{folder}", recurse="true"))
    return {each["Key"].removeprefix(folder): each for each in found}


def keep(harness: ConsulHarness, seconds: float) -> Any:
    """A lock that is kept after its holder; the grant it had."""
    client = harness.client()
    grant = take(client, harness.claim())
    client.release(grant, timeout=LIMIT, hold=seconds)
    return grant


def test_a_hold_is_one_key_beside_the_lock_and_nothing_else_is_left(harness: ConsulHarness) -> None:
    grant = keep(harness, 30.0)
    assert harness.below() == []
    assert harness.sessions() == 0
    assert set(beside(harness)) == {*ALWAYS, "hold/nightly"}
    document = json.loads(b64decode(beside(harness)["hold/nightly"]["Value"]))
    assert (document["owner"], document["token"], document["acquired_at"]) == (
        grant.claim.owner,
        grant.token,
        grant.at,
    )
    assert 29.0 < document["until"] - time.time() <= 31.1
    other = harness.client()
    (holder,) = other.inspect("nightly", timeout=LIMIT).holders
    assert holder.expires_in is not None
    assert 28.0 < holder.expires_in <= 31.0
    assert [(lock.name, lock.state) for lock in other.list("*", timeout=LIMIT)] == [("nightly", "held")]


def test_a_hold_that_is_over_is_not_listed_and_is_removed_by_the_next_holder(harness: ConsulHarness) -> None:
    grant = keep(harness, 0.2)
    client = harness.client()
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")
    assert list(client.list("*", timeout=LIMIT)) == []
    assert "hold/nightly" in beside(harness)
    assert take(client, harness.claim()).token > grant.token
    assert set(beside(harness)) == ALWAYS


def test_a_release_with_a_hold_whose_answer_was_lost_can_be_repeated(harness: ConsulHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    lose_answers(harness, client, "transact")
    with pytest.raises(BackendUnavailable):
        client.release(grant, timeout=UNHEARD, hold=30.0)
    harness.heal(client)
    index = beside(harness)["hold/nightly"]["ModifyIndex"]
    client.release(grant, timeout=LIMIT, hold=30.0)
    client.release(grant, timeout=LIMIT, hold=30.0)
    assert beside(harness)["hold/nightly"]["ModifyIndex"] == index
    assert harness.sessions() == 0
    assert refused(harness.client(), harness.claim())


def test_a_hold_does_not_start_the_delay_of_holders_that_vanished(harness: ConsulHarness) -> None:
    client = harness.client(lock_delay="30s")
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=0.2)
    other, claim = harness.client(), harness.claim()
    began = time.monotonic()
    while other.try_acquire(claim, timeout=LIMIT) is None:
        other.wait(claim, timeout=LIMIT, interrupt=None)
    assert time.monotonic() - began < 3.0


NO_HOLDS = [
    *HOSTILE,
    b'{"owner": "x", "until": 1, "ended_at": 1}',
    b'{"owner": "x", "until": "4000000000", "ended_at": 1}',
    b'{"owner": "x", "until": 1e400, "ended_at": 1}',
    b'{"owner": "x", "until": 4000000000}',
    b'{"until": 4000000000, "ended_at": 1}',
]


def test_what_is_no_hold_keeps_nobody_out_and_goes(harness: ConsulHarness) -> None:
    client = harness.client()
    for value in NO_HOLDS:
        harness.put_beside("hold/nightly", value)
        claim = harness.claim()
        assert client.inspect("nightly", timeout=LIMIT).state == "free", value
        assert list(client.list("*", timeout=LIMIT)) == []
        client.wait(claim, timeout=LIMIT, interrupt=None)
        client.release(take(client, claim), timeout=LIMIT)
        assert set(beside(harness)) == ALWAYS


def test_the_names_of_holds_are_those_of_locks_or_not_listed(harness: ConsulHarness) -> None:
    keep(harness, 30.0)
    value = b64decode(beside(harness)["hold/nightly"]["Value"])
    for name in ("a/b", ".x", "nightly2", ""):
        harness.put_beside(f"hold/{name}", value)
    client = harness.client()
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly", "nightly2"]
    take(client, harness.claim("night"))


def test_a_wait_for_the_end_of_a_hold_asks_seldom(harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(harness, 60.0)
    client, claim = harness.client(), harness.claim()
    asked = requests(client, monkeypatch)
    reading, writing = os.pipe()
    waiting = Background(lambda: client.wait(claim, timeout=30.0, interrupt=reading))
    eventually(lambda: len(asked) == 7)
    time.sleep(1.5)
    assert len(asked) == 7, asked
    os.write(writing, b".")
    waiting.result()
    os.close(reading)
    os.close(writing)


def test_a_lock_that_ends_with_a_hold_under_our_eyes_is_seen_once(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, client = harness.client(), harness.client()
    grant = take(holder, harness.claim())
    original = client._agent.get_in_turn

    def ending(keys: tuple[str, ...], *args: Any) -> Any:
        """The lock is looked at first, as the server does with requests that come together, and then it ends."""
        assert keys[0] == grant.key + "/.lock"
        found = original(keys[:1], *args)
        holder.release(grant, timeout=LIMIT, hold=30.0)
        return [*found, *original(keys[1:], *args)]

    monkeypatch.setattr(client._agent, "get_in_turn", ending)
    lock = client.inspect("nightly", timeout=LIMIT)
    assert (lock.state, [each.owner for each in lock.holders]) == ("held", [grant.claim.owner])
    assert lock.holders[0].ended_at is not None


def test_another_program_does_not_see_a_hold_and_both_are_shown(harness: ConsulHarness) -> None:
    grant = keep(harness, 30.0)
    client = harness.client()
    with harness.foreign_hold("nightly"):
        lock = client.inspect("nightly", timeout=LIMIT)
        assert lock.state == "foreign"
        assert [each.owner for each in lock.holders] == [None, grant.claim.owner]
    assert client.inspect("nightly", timeout=LIMIT).state == "held"
    assert refused(client, harness.claim())


def test_the_time_of_a_grant_is_the_agents_and_stays_when_it_is_found_again(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, claim = harness.client(), harness.claim()
    monkeypatch.setattr("lockctl.clock.time.time", lambda: 1_000_000_000.0)
    grant = take(client, claim)
    monkeypatch.undo()
    assert abs(grant.at - time.time()) < 5
    assert grant.at == int(grant.at)
    time.sleep(1.1)
    assert take(harness.client(), claim) == grant
    assert client.inspect("nightly", timeout=LIMIT).holders[0].acquired_at == grant.at


@pytest.mark.parametrize(
    ("fields", "expected"),
    [(("Date: Sun, 06 Nov 1994 08:49:37 GMT",), 784111777.0), ((), None), (("Date: yesterday",), None)],
)
def test_without_a_date_in_its_answers_an_agents_clock_is_ours(
    answering: Callable[[bytes], str],
    opened: Callable[[str], ConsulBackend],
    fields: tuple[str, ...],
    expected: float | None,
) -> None:
    client = opened(f"consul://{answering(reply('200 OK', b'[]', INDEXED, *fields))}")
    with contextlib.suppress(BackendUnavailable):
        client.last_success("nightly", timeout=2)
    assert abs(client._agent.now() - (expected or time.time())) < 5


def test_a_success_that_cannot_be_read_is_none(harness: ConsulHarness) -> None:
    client = harness.client()
    for value in (*HOSTILE, b"-1", b"1e400", b"true", b'"5"', b"9" * 100, b"9" * 5000, b"NaN"):
        harness.put_beside("success/nightly", value)
        assert client.last_success("nightly", timeout=LIMIT) is None, value
        grant = take(client, harness.claim())
        client.note_success(grant, timeout=LIMIT)
        assert client.last_success("nightly", timeout=LIMIT) == grant.at
        client.release(grant, timeout=LIMIT)


def test_a_run_that_cannot_be_read_is_left_out(harness: ConsulHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(), timeout=LIMIT)
    for value in HOSTILE:
        for key in ("started/999999999999999-x", "started/", "refused/0", "other/x", "x"):
            harness.put_beside(f"runs/nightly/{key}", value)
        assert client.history("nightly", timeout=LIMIT) == (a_run(),), value
        assert client.inspect("nightly", timeout=LIMIT).last_run == a_run()


def test_a_run_with_any_time_of_its_end_is_remembered(harness: ConsulHarness) -> None:
    client = harness.client()
    for count, ended_at in enumerate((None, -5.0, 0.0, 1e300, float(1 << 36)), 1):
        client.remember("nightly", a_run(ended_at=ended_at), timeout=LIMIT)
        assert len(client.history("nightly", timeout=LIMIT)) == count


def test_only_so_many_runs_are_kept_in_consul_and_the_newest_of_them(harness: ConsulHarness) -> None:
    client = harness.client()
    count = history.KEPT + records.SPARE + 5
    for number in range(count):
        client.remember("nightly", a_run(number), timeout=LIMIT)
        client.remember("nightly.other", a_run(number), timeout=LIMIT) if number < 3 else None
    kept = [key for key in beside(harness) if key.startswith("runs/nightly/")]
    assert history.KEPT <= len(kept) <= history.KEPT + records.SPARE
    runs = client.history("nightly", timeout=LIMIT)
    assert [run.token for run in runs] == [41 + number for number in range(count - 1, count - 1 - len(kept), -1)]
    assert len(client.history("nightly.other", timeout=LIMIT)) == 3


def test_a_list_does_not_read_what_is_remembered_of_runs(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.client()
    take(client, harness.claim())
    for number in range(30):
        client.remember("nightly", a_run(number), timeout=LIMIT)
    original, read = client._agent.keys, []

    def counting(*args: Any) -> list[str]:
        read.extend(original(*args))
        return read

    monkeypatch.setattr(client._agent, "keys", counting)
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]
    assert sorted(set(read)) == [f"{harness.prefix}.lockctl/", f"{harness.prefix}nightly/"]


@pytest.fixture
def guarded(start_server: Callable[..., Consul]) -> Iterator[tuple[ConsulHarness, Callable[..., ConsulBackend]]]:
    """A server with ACLs, and how to get a client of it: with what rights to what is beside the locks."""
    server = start_server(Consul, acl=True)
    harness = ConsulHarness(server)
    made: list[ConsulBackend] = []

    def client(**rights: str) -> ConsulBackend:
        rules = f'key_prefix "{harness.prefix}" {{ policy = "write" }} session_prefix "" {{ policy = "write" }}'
        for what, right in rights.items():
            rules += f' key_prefix "{harness.prefix}.lockctl/{what}" {{ policy = "{right}" }}'
        policy = {"Name": f"policy-{len(made)}", "Rules": rules}
        server.request("PUT", "/v1/acl/policy", json.dumps(policy).encode())
        body = json.dumps({"Policies": [{"Name": policy["Name"]}]}).encode()
        token = json.loads(server.request("PUT", "/v1/acl/token", body))["SecretID"]
        made.append(ConsulBackend.from_url(parse_url(f"consul://:{token}@{server.address}/?prefix={harness.prefix}")))
        return made[-1]

    yield harness, client
    for each in made:
        each.close()


def test_who_must_not_write_beside_the_locks_is_told_and_keeps_what_is_held(
    guarded: tuple[ConsulHarness, Callable[..., ConsulBackend]],
) -> None:
    harness, make = guarded
    client = make(success="read", runs="read")
    grant = take(client, harness.claim(ttl=10.0))
    for write in (
        lambda: client.note_success(grant, timeout=LIMIT),
        lambda: client.remember("nightly", a_run(), timeout=LIMIT),
    ):
        with pytest.raises(ConfigError, match='policy = "write"'):
            write()
    assert set(beside(harness)) == ALWAYS
    assert client.last_success("nightly", timeout=LIMIT) is None
    assert client.history("nightly", timeout=LIMIT) == ()
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    client.release(grant, timeout=LIMIT)
    assert harness.below() == []


def test_who_could_not_remove_a_hold_does_not_get_the_lock(
    guarded: tuple[ConsulHarness, Callable[..., ConsulBackend]],
) -> None:
    harness, make = guarded
    client, claim = make(hold="read"), harness.claim(ttl=10.0)
    with pytest.raises(ConfigError, match='policy = "write"'):
        client.try_acquire(claim, timeout=LIMIT)
    client.withdraw(claim, timeout=LIMIT)
    assert harness.below() == []
    assert harness.sessions() == 0


def test_who_must_not_read_beside_the_locks_gets_none_and_sees_no_empty_past(
    guarded: tuple[ConsulHarness, Callable[..., ConsulBackend]],
) -> None:
    harness, make = guarded
    allowed, client = make(), make(domain="deny", hold="deny", success="deny", runs="deny")
    allowed.remember("nightly", a_run(), timeout=LIMIT)
    grant = take(allowed, harness.claim(ttl=10.0))
    allowed.note_success(grant, timeout=LIMIT)
    allowed.release(grant, timeout=LIMIT, hold=30.0)
    for read in (
        lambda: client.try_acquire(harness.claim(ttl=10.0), timeout=LIMIT),
        lambda: client.last_success("nightly", timeout=LIMIT),
        lambda: client.history("nightly", timeout=LIMIT),
        lambda: client.inspect("nightly", timeout=LIMIT),
        lambda: list(client.list("*", timeout=LIMIT)),
    ):
        with pytest.raises(ConfigError):
            read()
    assert harness.below() == []


@pytest.mark.parametrize("late", ["a success", "a holder", "a hold"])
def test_a_use_between_the_look_and_the_removal_keeps_all_of_it(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    client, other = harness.client(), harness.client()
    before = use(harness, other)
    transact = client._agent.transact

    def come(operations: list[dict[str, Any]], *more: Any) -> Any:
        if any(each["Verb"] == "delete-cas" for each in operations):
            if late == "a success":
                other.note_success(replace(before, at=before.at + 1), timeout=LIMIT)
            else:
                grant = take(other, harness.claim(ttl=30.0))
                if late == "a hold":
                    other.release(grant, timeout=LIMIT, hold=60.0)
        return transact(operations, *more)

    monkeypatch.setattr(client._agent, "transact", come)
    assert not forget(client)
    assert other.history("nightly", timeout=LIMIT) == (a_run(),)
    assert other.last_success("nightly", timeout=LIMIT) == before.at + (late == "a success")


def test_a_run_that_is_remembered_while_the_name_is_forgotten_stays(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = harness.client(), harness.client()
    use(harness, other)
    transact = client._agent.transact

    def come(operations: list[dict[str, Any]], *more: Any) -> Any:
        if any(each["Verb"] == "delete-cas" for each in operations):
            other.remember("nightly", a_run(1), timeout=LIMIT)
        return transact(operations, *more)

    monkeypatch.setattr(client._agent, "transact", come)
    assert not forget(client)
    assert other.history("nightly", timeout=LIMIT) == (a_run(1),)
    assert unused(other) == ["nightly"]


def test_of_a_name_with_more_keys_than_one_transaction_takes_nothing_stays(harness: ConsulHarness) -> None:
    client = harness.client()
    use(harness, client)
    for number in range(150):
        harness.put_beside(f"runs/nightly/started/{number:015}-x", b"{}")
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=0.1)
    eventually(lambda: unused(client) == ["nightly"])
    assert forget(client)
    assert set(beside(harness)) == {"domain", "floor"}
    assert harness.below() == []


def test_what_is_left_of_a_lock_goes_too_and_what_is_no_lock_stays(harness: ConsulHarness) -> None:
    client = harness.client()
    use(harness, client)
    harness.write(b"", flags=LOCK_FLAGS)
    assert forget(client)
    assert harness.below() == []
    use(harness, client)
    harness.write(b"theirs", flags=1)
    assert forget(client)
    assert len(harness.below()) == 1


def test_a_slot_of_one_that_vanished_keeps_the_name(harness: ConsulHarness) -> None:
    client, other = harness.client(), harness.client()
    use(harness, other)
    grant = take(client, harness.claim(mode=SLOT, slots=2, ttl=30.0))
    harness.server.request("PUT", f"/v1/session/destroy/{client._claims.sessions[grant.claim.owner]}")
    assert unused(other) == []
    assert not forget(other), "its job may run"


def test_the_clock_of_the_host_that_ran_last_does_not_count(harness: ConsulHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(started_at=1.0, ended_at=2.0), timeout=LIMIT)
    assert unused(client, older_than=3600.0) == []
    assert not forget(client, older_than=3600.0)


def test_a_removal_whose_answer_is_lost_does_no_harm(harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = harness.client(), harness.client()
    use(harness, client)
    transact = client._agent.transact

    def lost(operations: list[dict[str, Any]], *more: Any) -> Any:
        harness.proxy(client).mode = "drop_replies" if operations[0]["Verb"] != "get-tree" else "pass"
        return transact(operations, *more)

    monkeypatch.setattr(client._agent, "transact", lost)
    with pytest.raises(BackendUnavailable):
        client.forget("nightly", older_than=0.0, timeout=1.0)
    eventually(lambda: unused(other) == [])
    use(harness, other)
    assert not forget(client, older_than=3600.0)
    assert other.history("nightly", timeout=LIMIT) == (a_run(),)
