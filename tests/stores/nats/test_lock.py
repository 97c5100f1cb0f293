"""What only NATS does to a lock: logins, TLS, missing buckets, lost messages, other programs in the bucket."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import nkeys
import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.nats import protocol
from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.cell import NatsCells
from lockctl.stores.nats.protocol import Bucket, escaped, unescaped
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.contract.cells import assert_told_and_not_polling
from tests.contract.harness import LIMIT, claim, take
from tests.fleet.hosts import inspect
from tests.jobs import eventually
from tests.promises.rights import check_everything
from tests.servers.nats import AS_KV, BUCKET, Nats, NatsCluster
from tests.stores.test_least_rights import recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

    Open = Callable[[str], Any]

RIGHTS = "\n".join(recipe("NATS"))
ADMIN = '{ user: admin, password: "s3cret-admin" }'


def place(server: Nats, login: str = "", query: str = "") -> str:
    return f"nats://{login}{server.address}/locks/{os.urandom(6).hex()}?{query}"


def subjects(text: str) -> list[set[str]]:
    """Those that a text allows to publish to, and to subscribe to."""
    return [set(re.findall(r"[$_][\w$.>]+", part)) for part in text.split("subscribe")]


def test_an_account_without_jetstream_is_a_wrong_configuration(
    start_server: Callable[..., Any], lockctl: Lockctl
) -> None:
    accounts = f"LOCKS {{ jetstream: enabled, users: [{ADMIN}] }}, BARE {{ users: [{{ user: bare, password: pw }}] }}"
    server = start_server(Nats, login="admin:s3cret-admin@", settings=f"accounts {{ {accounts} }}")
    words = ("-l", "nightly", "--on-unavailable", "run", "--", "echo", "ran")
    done = lockctl("run", "-b", place(server, "bare:pw@"), *words)
    assert (done.returncode, done.stdout) == (78, "")
    assert "enable JetStream for the account of this user" in done.stderr


def test_a_user_needs_the_rights_of_the_manual_and_no_others(
    start_server: Callable[..., Any], lockctl: Lockctl, opened: Open
) -> None:
    reader = RIGHTS.replace('"$KV.locks.>", "$JS', '"$JS', 1)
    users = f"{ADMIN}, {{ user: ops, password: pw, permissions: {{ {RIGHTS} }} }}"
    users += f", {{ user: reader, password: pw, permissions: {{ {reader} }} }}"
    server = start_server(Nats, login="admin:s3cret-admin@", settings=f"authorization {{ users: [{users}] }}")
    check_everything(lockctl, place(server, "ops:pw@"))
    assert opened(place(server, "reader:pw@")).inspect("nightly", timeout=LIMIT).state == "free"
    with pytest.raises(ConfigError, match=r"Permissions Violation.*allow the user to publish to ") as told:
        opened(place(server, "reader:pw@")).try_acquire(claim(), timeout=LIMIT)
    assert subjects(str(told.value).partition("allow ")[2]) == subjects(RIGHTS)
    for wrong in ("", "ops:s3cret-wrong@", ":s3cret-token@"):
        with pytest.raises(ConfigError, match="does not accept the login") as told:
            opened(place(server, wrong)).try_acquire(claim(), timeout=LIMIT)
        assert "s3cret" not in str(told.value)


def test_a_token_logs_in(start_server: Callable[..., Any], opened: Open) -> None:
    server = start_server(Nats, login=":t0ken@", settings="authorization { token: t0ken }")
    take(opened(place(server, ":t0ken@")), claim())


def test_a_seed_in_a_file_logs_in(start_server: Callable[..., Any], opened: Open, tmp_path: Path) -> None:
    seeds = [nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER) for _ in range(2)]
    files = [tmp_path / f"{number}.nk" for number in range(2)]
    for file, seed in zip(files, seeds, strict=True):
        file.write_bytes(seed + b"\n")
    public = nkeys.from_seed(bytearray(seeds[0])).public_key.decode()
    server = start_server(
        Nats, query=f"nkey={files[0]}", settings=f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
    )
    take(opened(place(server, query=f"nkey={files[0]}")), claim())
    (tmp_path / "bad").write_text("SUnothing")
    for wrong, said in ((files[1], "does not accept"), (tmp_path / "bad", "no usable seed"), ("/nowhere", "No such")):
        with pytest.raises(ConfigError, match=said) as told:
            opened(place(server, query=f"nkey={wrong}")).try_acquire(claim(), timeout=LIMIT)
        assert "SUnothing" not in str(told.value)


def test_a_server_that_wants_tls_is_verified(
    start_server: Callable[..., Any], certificates: Certificates, opened: Open
) -> None:
    server = start_server(Nats, tls=certificates, query=f"ca={certificates.ca}")
    take(opened(place(server, query=f"ca={certificates.ca}")), claim())
    take(opened(place(server, query="insecure=yes")), claim())
    for wrong in ("", f"ca={certificates.other_ca}", f"ca={certificates.ca}&tls_name=elsewhere.example"):
        with pytest.raises(ConfigError, match="certificate is not accepted"):
            opened(place(server, query=wrong)).try_acquire(claim(), timeout=LIMIT)


def test_a_bucket_that_is_not_there_is_named_with_the_command_that_makes_it(nats_server: Nats, opened: Open) -> None:
    with pytest.raises(ConfigError, match="nats kv add elsewhere"):
        opened(f"nats://{nats_server.address}/elsewhere").try_acquire(claim(), timeout=LIMIT)


def test_a_server_without_jetstream_is_an_outage(start_server: Callable[..., Any], opened: Open) -> None:
    class Plain(Nats):
        def _configure(self) -> None:
            (self.directory / "nats.conf").write_text(f'listen: "{self.address}"\n')

        def _answers(self) -> bool:
            try:
                Bucket(read_url(parse_url(self.url))).connect(Deadline(1.0)).close()
            except BackendUnavailable:
                return False
            return True

        def _initialise(self) -> None:
            pass

    server = start_server(Plain)
    with pytest.raises(BackendUnavailable, match="JetStream"):
        opened(place(server)).try_acquire(claim(), timeout=LIMIT)


def test_the_second_of_two_servers_is_used_when_the_first_is_away(nats_server: Nats, opened: Open) -> None:
    for _ in range(4):  # which one is asked first is drawn by lot
        take(opened(f"nats://127.0.0.1:1,{nats_server.address}/locks/{os.urandom(6).hex()}"), claim())


def test_a_waiter_is_told_and_does_not_poll(nats_server: Nats) -> None:
    cells, other = (NatsCells(Bucket(read_url(parse_url(nats_server.url)))) for _ in range(2))
    assert_told_and_not_polling(cells, other, (cells, "read"))


def test_a_lock_outlives_the_leader_and_tokens_rise(start_server: Callable[..., Any], opened: Open) -> None:
    cluster = start_server(NatsCluster)
    url = f"nats://{','.join(cluster.addresses)}/locks/x"
    backend, other = opened(url), opened(url)
    grant = take(backend, claim(ttl=60.0))
    cluster.leader().kill()

    def renewed() -> bool:
        try:
            return bool(backend.renew(grant, timeout=2.0).token == grant.token)
        except BackendUnavailable:
            return False

    eventually(renewed, limit=40.0)
    assert other.try_acquire(claim(), timeout=LIMIT) is None
    backend.release(grant, timeout=LIMIT)
    assert take(other, claim()).token > grant.token


@pytest.mark.parametrize("key", ["lock:a", "a.b", "*", ">", "a=b", "=3A", "\N{SNOWMAN}", "a b", "\udcff"])
def test_a_key_is_one_part_of_a_subject_and_comes_back(key: str) -> None:
    assert unescaped(escaped(key)) == key
    assert set(escaped(key)).isdisjoint(".*> \t")


def test_a_waiter_is_not_busy_with_the_message_of_its_own_write(nats_server: Nats, opened: Open) -> None:
    where = place(nats_server)
    take(opened(where), claim())
    waiter, before = opened(where), nats_server.monitored("varz")["in_msgs"]
    waiter.wait(claim(ttl=3.0), timeout=3.5, interrupt=None)  # it writes a few times
    assert nats_server.monitored("varz")["in_msgs"] - before < 60


def test_who_waits_outlasts_a_bucket_that_is_made_anew(start_server: Callable[..., Any], lockctl: Lockctl) -> None:
    server = start_server(Nats)
    lockctl.url = place(server)
    lockctl.start_holding("nightly", "-t", "2s")
    waiter = lockctl.start("run", "-l", "nightly", "-t", "2s", "--wait", "60s", "--", "true")
    eventually(lambda: inspect(lockctl, "nightly")["waiters"])
    server.ask(f"STREAM.DELETE.KV_{BUCKET}", {})
    time.sleep(1.0)  # it is told at once, and asks again
    assert waiter.poll() is None
    server.ask(f"STREAM.CREATE.KV_{BUCKET}", AS_KV)
    assert waiter.wait(60) == 0


def test_a_login_that_came_too_late_is_tried_again(opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            with contextlib.suppress(OSError):  # the test is over
                while True:
                    connection = listening.accept()[0]
                    connection.sendall(b"INFO {}\r\n-ERR 'Authentication Timeout'\r\n")
                    connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        port = listening.getsockname()[1]
        with pytest.raises(BackendUnavailable, match="Authentication Timeout"):
            opened(f"nats://127.0.0.1:{port}/locks").try_acquire(claim(), timeout=LIMIT)


def test_a_request_that_gets_lost_is_sent_again(
    nats_server: Nats, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def swallow() -> None:
            """As a server does while the bucket has no leader."""
            connection = listening.accept()[0]
            with connection, connection.makefile("rb") as stream:
                connection.sendall(b"INFO {}\r\n")
                for line in stream:
                    if line == b"PING\r\n":
                        connection.sendall(b"PONG\r\n")
                    if line.startswith(b"HPUB"):
                        asked.set()

        threading.Thread(target=swallow, daemon=True).start()
        starts = iter(range(2))  # among the servers: each is asked by one of the tries
        monkeypatch.setattr(protocol, "os", SimpleNamespace(urandom=lambda _: bytes([next(starts)])))
        url = place(nats_server).replace("//", f"//127.0.0.1:{listening.getsockname()[1]},")
        take(opened(url), claim())
    assert asked.is_set()


def test_keys_are_found_beyond_those_of_one_answer(start_server: Callable[..., Any]) -> None:
    server = start_server(Nats)
    server.ask("STREAM.CREATE.KV_full", {**AS_KV, "name": "KV_full", "subjects": ["$KV.full.>"], "storage": "memory"})
    bucket = Bucket(read_url(parse_url(f"nats://{server.address}/full/")))
    numbers = range(100_001)  # one more than a server tells at once
    with contextlib.closing(bucket.connect(Deadline(LIMIT))) as connection:
        for start in range(0, len(numbers), 5000):
            part = [(bucket.subject(f"many{number}"), b"", b"1") for number in numbers[start : start + 5000]]
            connection.ask(part, Deadline(4 * LIMIT))
    assert bucket.put("some", None, b"1", Deadline(LIMIT))
    assert [key for key, _ in bucket.scan("some", Deadline(LIMIT))] == ["some"]
    bucket.close()
