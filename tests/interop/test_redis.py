"""redis-py's ``Lock``, or redlock-py, and lockctl under the same key keep each other out, each in its own process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import claim, one_of, reader, refused, take, waiters
from tests.contract.keeping import holder_of, revoke
from tests.contract.waiting import start_waiting
from tests.faults.backends import PLACES, on_backends
from tests.jobs import LIMIT, eventually
from tests.run.terminal import Terminal
from tests.stores.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.jobs import Lockctl
    from tests.servers.redis import Redis

    Start = Callable[..., subprocess.Popen[str]]

# each takes the lock (at once, or when it is free), says so, and holds it until its stdin ends
REDIS_PY = """
import sys
import redis
wait, key, host, port = sys.argv[1:]
lock = redis.Redis(host, int(port)).lock(key, timeout=60)
if not lock.acquire(blocking_timeout=float(wait)):
    sys.exit(9)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
REDLOCK_PY = """
import sys
from redlock import Redlock
wait, key, *nodes = sys.argv[1:]
servers = [{"host": host, "port": port} for host, port in zip(nodes[::2], nodes[1::2])]
manager = Redlock(servers, retry_count=1 + int(5 * float(wait)), retry_delay=0.2)
lock = manager.lock(key, 60_000)
if not lock:
    sys.exit(9)
print("held", flush=True)
sys.stdin.read()
manager.unlock(lock)
"""
__all__ = ["opened"]  # a fixture
BOTH = pytest.mark.parametrize("scheme", on_backends("redis", "redlock"))
SEVERAL = pytest.mark.parametrize("wanted", [reader, functools.partial(one_of, 2)], ids=["readers", "slots"])


@pytest.fixture
def scheme() -> str:
    """The backend of lockctl; the other program is that for it."""
    return "redis"


@pytest.fixture
def nodes(scheme: str, request: pytest.FixtureRequest) -> list[Redis]:
    """The server, or the servers of Redlock."""
    found = request.getfixturevalue(PLACES[scheme].servers)
    return found if isinstance(found, list) else [found]


@pytest.fixture
def key() -> str:
    """A key that nobody else uses."""
    return f"interop-{os.urandom(6).hex()}:nightly"


@pytest.fixture
def options(scheme: str, nodes: list[Redis], key: str) -> list[str]:
    """What makes lockctl use that key."""
    addresses = ",".join(node.address for node in nodes)
    return ["-b", f"{scheme}://{addresses}/0?prefix={key.removesuffix('nightly')}"]


@pytest.fixture
def locker(nodes: list[Redis], key: str) -> Iterator[Start]:
    """Start a program that locks with redis-py or redlock-py, waiting some seconds."""
    script = REDIS_PY if len(nodes) == 1 else REDLOCK_PY
    places = [word for node in nodes for word in (node.host, str(node.port))]
    started: list[subprocess.Popen[str]] = []

    def start(wait: float = 0) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", script, str(wait), key, *places]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        let_go(process)


def let_go(process: subprocess.Popen[str]) -> int:
    """End a program that holds the lock or was refused."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return process.wait(LIMIT)


def holds(process: subprocess.Popen[str]) -> bool:
    """Whether the program got the lock; waits until it says so or ends."""
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


@pytest.fixture
def client(options: list[str], opened: Callable[[str], Backend]) -> Backend:
    """Its own view of the lock."""
    return opened(options[1])


@BOTH
def test_another_is_refused_while_lockctl_holds_and_proceeds_when_it_ends(
    lockctl: Lockctl, options: list[str], client: Backend, locker: Start, key: str
) -> None:
    holder = lockctl.start_holding("nightly", *options)
    assert client.inspect("nightly", timeout=LIMIT).key == key
    assert let_go(locker()) == 9
    waiting = locker(LIMIT)
    holder.terminate()
    holder.wait(LIMIT)
    assert holds(waiting)


@BOTH
def test_lockctl_is_refused_while_another_holds_and_shows_it_as_foreign(
    lockctl: Lockctl, options: list[str], client: Backend, locker: Start, tmp_path: Path
) -> None:
    other, mark = locker(), tmp_path / "ran"
    assert holds(other)
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    holder = holder_of(client)
    assert (holder.owner, holder.token) == (None, None)
    assert 0 < (holder.expires_in or 0) <= 60
    assert lockctl("run", "-l", "nightly", *options, "--", "touch", str(mark)).returncode == 75
    assert not mark.exists()
    assert let_go(other) == 0
    assert lockctl("run", "-l", "nightly", *options, "--", "touch", str(mark)).returncode == 0
    assert mark.exists()


@BOTH
def test_lockctl_waits_for_another_and_goes_on_when_it_ends(
    lockctl: Lockctl, options: list[str], client: Backend, locker: Start
) -> None:
    other = locker()
    assert holds(other)
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", *options, "--", "true")
    if "redlock" not in options[1]:  # whose waiters are not listed
        eventually(lambda: waiters(client))
    assert waiter.poll() is None
    assert let_go(other) == 0
    assert waiter.wait(LIMIT) == 0


@SEVERAL
def test_readers_and_slots_wait_for_redis_py(
    client: Backend, options: list[str], opened: Callable[[str], Backend], locker: Start, wanted: Callable[[], Claim]
) -> None:
    other, waiter, mine = locker(), opened(options[1]), wanted()
    assert holds(other)
    assert refused(client, wanted())
    waiting = start_waiting(waiter, mine, client)
    assert waiting.running
    assert let_go(other) == 0
    waiting.result()
    take(waiter, mine)


@BOTH
def test_another_is_refused_as_long_as_a_lock_is_held_after_its_job(client: Backend, locker: Start) -> None:
    client.release(take(client, claim()), timeout=LIMIT, hold=60.0)
    assert let_go(locker()) == 9
    assert revoke(client, holder_of(client), now=True) is not None
    client.release(take(client, claim()), timeout=LIMIT, hold=1.0)
    assert holds(locker(LIMIT))


@BOTH
def test_a_program_that_takes_the_lock_while_the_operator_is_asked_keeps_it(
    lockctl: Lockctl, options: list[str], client: Backend, locker: Start
) -> None:
    first = locker()
    assert holds(first)
    terminal = Terminal(lockctl.command, "force-release", "nightly", "--now", *options, env=lockctl.environment())
    try:
        terminal.expect(r"\[y/N\] ")
        assert let_go(first) == 0
        second = locker(LIMIT)
        assert holds(second)
        terminal.line("y")
        said = terminal.expect("changed.*\n")
        assert "now held by another program" in said
        assert "at least" not in said, "another program has no token that a resource could compare"
        assert terminal.process.wait(LIMIT) == 75
    finally:
        terminal.end()
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert let_go(second) == 0
