"""Answers that are nearly those of a server: each call ends, well or with an error of ours, and never with a bug.

A real server is recorded once for each store; then its answers are said again with some of their bytes changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Revocation
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim
from tests.contract.remembering import a_run
from tests.faults.backends import PLACES, SERVED, addresses_of, on_backends
from tests.servers.replay import CHUNK, TIMEOUT, changed, each_ends, echo, listening, on_changes, recording, replaying

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.faults.backends import Place
    from tests.jobs import Lockctl
    from tests.servers.replay import Change, Conversation

INTERPRETER = r"[a-z](Error|Exception)|[a-z][A-Z]\w+\("  # an error by its name, or as it is written in Python


def calls(backend: Backend, timeout: float) -> list[Callable[[], Any]]:
    """What is asked of a store, in this order."""
    mine, other = claim(ttl=30.0), claim(ttl=30.0)
    held: list[Any] = []

    def take() -> None:
        grant = backend.try_acquire(mine, timeout=timeout)
        if grant is not None:
            held.append(grant)

    def with_grant(call: Callable[..., Any], **more: Any) -> Callable[[], Any]:
        return lambda: [call(grant, timeout=timeout, **more) for grant in held]

    return [
        take,
        with_grant(backend.renew),
        lambda: backend.inspect("nightly", timeout=timeout),
        lambda: list(backend.list("*", timeout=timeout)),
        lambda: backend.wait(other, timeout=TIMEOUT, interrupt=None),
        lambda: backend.withdraw(other, timeout=timeout),
        with_grant(backend.note_success),
        with_grant(backend.release, hold=5.0),
        lambda: ask_back(backend, timeout),
        lambda: list(backend.unused("*", older_than=0.0, timeout=timeout)),
        lambda: backend.forget("nightly", older_than=0.0, timeout=timeout),
        lambda: backend.remember("nightly", a_run(), timeout=timeout),
        lambda: backend.history("nightly", timeout=timeout),
        lambda: backend.last_success("nightly", timeout=timeout),
        backend.close,
    ]


def ask_back(backend: Backend, timeout: float) -> None:
    """Have who holds the lock, or keeps it, give it up."""
    for holder in backend.inspect("nightly", timeout=timeout).holders:
        backend.revoke("nightly", holder, Revocation(now=True, by="ops", reason="now"), timeout=timeout)


@pytest.mark.parametrize("backend_name", on_backends(*SERVED))
def test_answers_with_changed_bytes_cause_no_bug(place: Place, servers: Any, locks: Path) -> None:
    word = "f" + os.urandom(6).hex()
    heard: list[list[Conversation]] = []
    with contextlib.ExitStack() as ends:
        addresses = []
        for address in addresses_of(servers):
            heard.append([])
            addresses.append(ends.enter_context(recording(address, heard[-1])))
        for call in calls(open_backend(parse_url(place.url(addresses, word, locks))), LIMIT):
            call()
    assert sum(len(said) for conversations in heard for said in conversations) > 5

    @on_changes
    def check(changes: list[Change]) -> None:
        with contextlib.ExitStack() as ends:
            ours = [ends.enter_context(replaying(changed(each, changes))) for each in heard]
            each_ends(calls(open_backend(parse_url(place.url(ours, word, locks))), TIMEOUT))

    check()


def _zeros(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            client.sendall(bytes(CHUNK))


@pytest.mark.parametrize("says", [echo, _zeros])
@pytest.mark.parametrize("name", SERVED)
def test_what_is_no_server_of_locks_is_neither_held_nor_an_error_of_the_interpreter(
    name: str, says: Callable[[socket.socket], None], locks: Path
) -> None:
    with contextlib.ExitStack() as ends:
        addresses = [ends.enter_context(listening(says)) for _ in range(5)]
        backend = open_backend(parse_url(PLACES[name].url(addresses, "w", locks)))
        ends.callback(backend.close)
        with pytest.raises((BackendUnavailable, ConfigError)) as refused:
            backend.try_acquire(claim(), timeout=TIMEOUT)
    assert not re.search(INTERPRETER, str(refused.value))


@pytest.mark.parametrize("says", [echo, _zeros])
@pytest.mark.parametrize("name", SERVED)
def test_doctor_tells_of_what_is_no_server_of_locks_without_an_error_of_the_interpreter(
    name: str, says: Callable[[socket.socket], None], locks: Path, lockctl: Lockctl
) -> None:
    with contextlib.ExitStack() as ends:
        addresses = [ends.enter_context(listening(says)) for _ in range(5)]
        done = lockctl("doctor", "-b", PLACES[name].url(addresses, "w", locks), "--json")
    findings = [each for each in json.loads(done.stdout)["findings"] if not each["id"].startswith("host.")]
    assert [each["level"] for each in findings] == ["fail"], findings
    assert not re.search(INTERPRETER, findings[0]["seen"])
