"""Whatever others write into a key of Consul, and servers that are not Consul, do no harm."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.model import Claim
from lockctl.stores.consul.layout import LOCK_FLAGS, SEMAPHORE_FLAGS
from tests.contract.harness import LIMIT, refused, take
from tests.contract.keeping import holder_of, revoke

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.consul.lock import ConsulBackend
    from tests.contract.test_consul import ConsulHarness


HOSTILE = [
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"null",
    b"[" * 20_000,
    b'{"owner": 1}',
    b'{"owner": "x", "session": ["SESSION"]}',
    b'{"owner": "x", "session": "SESSION", "pid": "1", "command": 5, "acquired_at": 1e400, "ttl": -1, "host": {}}',
    b'{"owner": "x", "session": "SESSION"}\n99999999999999999999999\n{"owner": "x", "by": 5}',
    b'{"owner": "x", "session": "SESSION"}\n-1\n\xff',
    b'{"owner": "\\u001b[2J", "session": "SESSION", "user": "\\ud800"}',
    b"\n\n\n",
    b"A" * 500_000,
]


@pytest.mark.parametrize("flags", [LOCK_FLAGS, SEMAPHORE_FLAGS, 0, (1 << 64) - 1])
def test_no_value_of_a_held_key_is_more_than_another_holder(harness: ConsulHarness, flags: int) -> None:
    client, session = harness.client(), harness.session()
    for value in HOSTILE:
        harness.write(value.replace(b"SESSION", session.encode()), acquire=session, flags=flags)
        assert refused(client, harness.claim()), value
        lock = client.inspect("nightly", timeout=LIMIT)
        assert lock.state in {"held", "foreign"}
        assert [each.name for each in client.list("*", timeout=LIMIT)] == ["nightly"]
        try:
            revoke(client, lock.holders[0])
        except LockctlError:
            assert lock.state == "foreign"
        assert revoke(client, holder_of(client), now=True) is not None
        client.release(take(client, harness.claim()), timeout=LIMIT)


def test_a_holder_keeps_its_lock_whatever_is_written_over_its_document(harness: ConsulHarness) -> None:
    client = harness.client()
    for value in HOSTILE:
        grant = take(client, harness.claim())
        harness.write(value.replace(b"SESSION", harness.entry()["Session"].encode()))
        assert client.renew(grant, timeout=LIMIT).token == grant.token, value
        client.release(grant, timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).state == "free"


@pytest.mark.parametrize("flags", [LOCK_FLAGS, SEMAPHORE_FLAGS, 0])
def test_a_key_that_no_session_has_is_free_whatever_is_in_it(harness: ConsulHarness, flags: int) -> None:
    client = harness.client()
    for value in HOSTILE:
        harness.write(value, flags=flags)
        assert client.inspect("nightly", timeout=LIMIT).state == "free", value
        grant = take(client, harness.claim())
        assert harness.entry()["Flags"] == LOCK_FLAGS
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        client.release(grant, timeout=LIMIT)


def test_a_semaphore_is_anothers_lock_as_long_as_one_of_its_holders_lives(harness: ConsulHarness) -> None:
    client, alive, dead, claim = harness.client(), harness.session(), harness.session(), harness.claim()
    harness.write(json.dumps({"Limit": 2, "Holders": {alive: True, dead: True}}).encode(), flags=SEMAPHORE_FLAGS)
    path = f"/v1/kv/{harness.prefix}nightly/{alive}"
    harness.server.request("PUT", path, acquire=alive, flags=SEMAPHORE_FLAGS)
    assert refused(client, claim)
    assert len(client.inspect("nightly", timeout=LIMIT).holders) == 1
    threading.Timer(0.5, harness.server.request, ("PUT", f"/v1/session/destroy/{alive}")).start()
    while client.try_acquire(claim, timeout=LIMIT) is None:
        client.wait(claim, timeout=LIMIT, interrupt=None)
    assert holder_of(client).owner == claim.owner


def test_keys_of_others_below_the_prefix_are_not_listed(harness: ConsulHarness) -> None:
    client = harness.client()
    take(client, harness.claim())
    for key in ("nightly/x/.lock", ".x/.lock", "a b/.lock", "nightly/.lockx", "plain", ".lock", f"{'x' * 201}/.lock"):
        harness.server.request("PUT", f"/v1/kv/{harness.prefix}{key.replace(' ', '%20')}", b"x")
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]


@pytest.mark.parametrize("value", [b"", b"a b", b"x" * 100, b"\xff", "\N{SNOWMAN}".encode()])
def test_a_name_of_the_cluster_that_is_not_ours_is_refused_and_nothing_is_held(
    harness: ConsulHarness, value: bytes
) -> None:
    harness.server.request("PUT", f"/v1/kv/{harness.prefix}.lockctl/domain", value)
    client, claim = harness.client(), harness.claim()
    with pytest.raises(ConfigError, match="is not lockctl's"):
        client.try_acquire(claim, timeout=LIMIT)
    client.withdraw(claim, timeout=LIMIT)
    assert client.inspect("nightly", timeout=LIMIT).state == "free"


def reply(status: str, body: bytes = b"", *fields: str) -> bytes:
    head = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


INDEXED = "X-Consul-Index: 5"
STRANGE = [
    reply("404 Not Found", b"<html>no such page</html>"),
    reply("200 OK", b"<html>welcome</html>"),
    reply("200 OK", b"{}", INDEXED),
    reply("200 OK", b"[]", INDEXED),
    reply("200 OK", b"[5]", INDEXED),
    reply("200 OK", b'[{"Key": 1}]', INDEXED),
    reply("200 OK", b'[{"Key": "k", "Flags": 0, "ModifyIndex": 1' + b"0" * 5000 + b"}]", INDEXED),
    reply("200 OK", b'[{"Key": "k", "Flags": 0, "ModifyIndex": 1, "Value": "%%"}]', INDEXED),
    reply("301 Moved Permanently", b"", "Location: /ui/"),
    reply("429 Too Many Requests", b"Your IP is issuing too many concurrent connections"),
    reply("500 Internal Server Error", b"No cluster leader"),
    reply("500 Internal Server Error", b"rpc error: \x1b[2J"),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"",
]


@pytest.mark.parametrize("answer", STRANGE, ids=range(len(STRANGE)))
def test_an_answer_that_is_not_consuls_means_that_nothing_is_known(
    answering: Callable[[bytes], str], opened: Callable[[str], ConsulBackend], answer: bytes
) -> None:
    address = answering(answer)
    client = opened(f"consul://{address}")
    claim = Claim("nightly", "0" * 32, 10.0, "web3", 1, "ops", ("true",))
    calls: list[Callable[[], object]] = [
        lambda: client.try_acquire(claim, timeout=2),
        lambda: client.wait(claim, timeout=2, interrupt=None),
        lambda: client.inspect("nightly", timeout=2),
        lambda: list(client.list("*", timeout=2)),
    ]
    for call in calls:
        client._claims.sessions[claim.owner] = "11111111-2222-3333-4444-555555555555"
        with contextlib.suppress(BackendUnavailable):
            call()
            assert b"[" in answer, "only a list of nothing may be read as nothing"
        with pytest.raises(BackendUnavailable) as unknown:
            client.withdraw(claim, timeout=2)
        assert str(unknown.value).startswith(f"consul at {address}: ")
        assert str(unknown.value).isprintable()


@pytest.mark.parametrize(
    ("body", "limit"),
    [(b"Your IP is issuing too many concurrent connections", "http_max_conns_per_client"), (b"", "rpc_rate")],
)
def test_which_limit_of_the_agent_is_reached_is_named(
    answering: Callable[[bytes], str], opened: Callable[[str], ConsulBackend], body: bytes, limit: str
) -> None:
    client = opened(f"consul://{answering(reply('429 Too Many Requests', body))}")
    with pytest.raises(BackendUnavailable) as told:
        client.inspect("nightly", timeout=2)
    assert [word for word in ("http_max_conns_per_client", "rpc_rate") if word in str(told.value)] == [limit]


@pytest.mark.parametrize("answer", STRANGE, ids=range(len(STRANGE)))
def test_a_renewal_is_not_lost_for_an_answer_that_is_not_consuls(
    answering: Callable[[bytes], str], opened: Callable[[str], ConsulBackend], harness: ConsulHarness, answer: bytes
) -> None:
    grant = take(harness.client(), harness.claim())
    client = opened(f"consul://{answering(answer)}")
    client._claims.sessions[grant.claim.owner] = harness.entry()["Session"]
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            client.renew(grant, timeout=2)
        with pytest.raises(BackendUnavailable):
            client.release(grant, timeout=2)


def test_locks_with_large_values_of_others_are_listed_in_smaller_pieces(harness: ConsulHarness) -> None:
    names = [f"job-{number:02}" for number in range(24)]
    for name in names:
        harness.write(b"x" * 400_000, name)
    client = harness.client()
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == names
    for number in range(24):
        path = f"/v1/kv/{harness.prefix}.lockctl/runs/{names[0]}/started/{number}"
        harness.server.request("PUT", path, b"x" * 400_000)
    assert client.inspect(names[0], timeout=LIMIT).last_run is None
    with pytest.raises(BackendUnavailable, match="the answer is larger than 8 MiB"):
        client.history(names[0], timeout=LIMIT)
    harness.server.request("DELETE", f"/v1/kv/{harness.prefix}", recurse="true")
