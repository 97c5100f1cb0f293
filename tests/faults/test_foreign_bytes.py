"""Answers that are nearly those of a server: each call ends, well or with an error of ours, and never with a bug.

A real server is recorded once for each store; then its answers are said again with some of their bytes changed.
"""

from __future__ import annotations

import contextlib
import copy
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lockctl.errors import LockctlError
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim
from tests.contract.remembering import a_run
from tests.faults.backends import SERVED, addresses_of, on_backends
from tests.servers.replay import recording, replaying

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.faults.backends import Place
    from tests.servers.replay import Conversation

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "12"))
TIMEOUT = 0.3  # seconds for each call: an answer that is waited for in vain ends with it
LONGEST = 10.0  # seconds in which a call has surely ended, on a busy machine
PIECES = [b"", b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 8, b"-1", b"9" * 30, b"1e999", b"\r\n", b"\r\n\r\n"]
PIECES += [b"null", b"[", b"{}", b'"', b"}", b"<", b"\xc3", b"\\ud800", b"[" * 2000, b"\x1b[2J", b"x" * 5000]

# which connection, answer and byte of it, as parts of all there are; how many bytes go; and what comes instead
CHANGE = some.tuples(
    some.floats(0, 1, exclude_max=True),
    some.floats(0, 1, exclude_max=True),
    some.floats(0, 1),
    some.sampled_from([0, 0, 1, 1, 2, 4, 8, 100_000]),
    some.one_of(some.sampled_from(PIECES), some.binary(max_size=4)),
)


def calls(backend: Backend, timeout: float) -> list[Callable[[], Any]]:
    """What is asked of a store, in this order."""
    mine = claim(ttl=30.0)
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
        with_grant(backend.note_success),
        with_grant(backend.release),
        lambda: backend.remember("nightly", a_run(), timeout=timeout),
        lambda: backend.history("nightly", timeout=timeout),
        lambda: backend.last_success("nightly", timeout=timeout),
        backend.close,
    ]


def changed(conversations: list[Conversation], changes: list[tuple[float, float, float, int, bytes]]) -> Any:
    """The same with some bytes changed."""
    result = copy.deepcopy(conversations)
    for which, answer, at, gone, instead in changes:
        said = result[int(which * len(result))]
        number = int(answer * len(said))
        start = int(at * len(said[number]))
        said[number] = said[number][:start] + instead + said[number][start + gone :]
    return result


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

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(some.lists(CHANGE, min_size=1, max_size=3))
    def check(changes: list[tuple[float, float, float, int, bytes]]) -> None:
        with contextlib.ExitStack() as ends:
            ours = [ends.enter_context(replaying(changed(each, changes))) for each in heard]
            for call in calls(open_backend(parse_url(place.url(ours, word, locks))), TIMEOUT):
                before = time.monotonic()
                with contextlib.suppress(LockctlError):
                    call()
                assert time.monotonic() - before < LONGEST

    check()
