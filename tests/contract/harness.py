"""What the contract suite must be able to do to a backend: one small class for each backend."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import SHARED, SLOT, Claim
from lockctl.value import replace
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from lockctl.model import Capabilities, Grant
    from tests.servers.proxy import Proxy

    AnyBackend = TypeVar("AnyBackend", bound=Backend)

LIMIT = 10.0  # seconds for one request
LONG = 30.0  # seconds
UNHEARD = 2.0  # seconds in which also a busy server has done what was asked, although its answer is lost


def claim(name: str = "nightly", **changes: Any) -> Claim:
    """A new claim of this process, with a lease that no test outlasts on any machine."""
    made = Claim(name, os.urandom(16).hex(), LONG, os.uname().nodename, os.getpid(), "ops", ("./nightly.sh",))
    return replace(made, **changes)


def reader(**changes: Any) -> Claim:
    """One that others of its kind may stand beside."""
    return claim(mode=SHARED, **changes)


def one_of(slots: int, **changes: Any) -> Claim:
    """One for any of so many slots."""
    return claim(mode=SLOT, slots=slots, **changes)


class Harness(ABC):
    """One empty store and every way to harm it. Subclasses close what they opened in :meth:`close`."""

    capabilities: Capabilities
    ttl = 1.0  # seconds: the shortest lease that the backend grants
    freed_after = 1.1  # ttls after the last renewal at which the store has surely freed an abandoned lock
    hold_slack = 0.3  # seconds after the end of a hold at which the lock is surely free
    clock_error = 0.0  # seconds beyond its end for which a lease is left alone: see ``Cells``
    tells_expiry = True  # the store says how long a lease still lives
    foreign_was_ours = False  # lockctl held what :meth:`foreign_hold` holds before, or it would not be known by name
    own_cost = 0.0  # seconds of the processor that the harness itself takes while a client waits for 1.5 s
    crowd = 8  # who contend, and half as often take their turns: enough for a lock that a server keeps in its own way
    histories = 6  # that are compared with the machine
    always_in_reach = False  # to keep or to release a lock, nothing is needed that :meth:`sever` can cut off

    @abstractmethod
    def client(self) -> Backend:
        """A fresh client on the same store."""

    def neighbour(self) -> Backend | None:
        """A client of the same store with another prefix, which has locks of its own; ``None``: there are none."""
        return None

    @abstractmethod
    def expire(self, grant: Grant) -> None:
        """Make the holder vanish as by a crash, and let pass what must pass until its lock is free."""

    @abstractmethod
    def usurp(self, name: str) -> None:
        """Take a held lock away with another tool, as an operator who deletes it; it is free then."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Lose what the store keeps of a free lock. Where the token is not stored data: do nothing."""

    @abstractmethod
    def sever(self, client: Backend) -> None:
        """Cut a client off from its store. Until :meth:`heal`, no other client is used."""

    @abstractmethod
    def heal(self, client: Backend) -> None:
        """End what :meth:`sever` began."""

    @abstractmethod
    def foreign_hold(self, name: str) -> contextlib.AbstractContextManager[object]:
        """Another program holds the lock, in the way that people use without lockctl."""

    @abstractmethod
    def close(self) -> None:
        """End every client, and the store if it was started for this."""

    def proxies(self, _client: Backend) -> tuple[Proxy, ...]:
        """What stands between a client and the servers; nothing: no request can arrive late."""
        return ()

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the store, with nobody renewing anything."""
        time.sleep(seconds)

    @contextlib.contextmanager
    def cut_off(self, client: Backend) -> Iterator[None]:
        """The block runs while *client* cannot reach its store."""
        self.sever(client)
        try:
            yield
        finally:
            self.heal(client)

    def claim(self, name: str = "nightly", **changes: Any) -> Claim:
        """See :func:`claim`."""
        return claim(name, **changes)

    def short(self, **changes: Any) -> Claim:
        """The same with the shortest lease, for tests that wait for its end."""
        return self.claim(ttl=self.ttl, **changes)


class ProxiedHarness(Harness):
    """A store whose clients each stand behind proxies of their own."""

    cut = "blackhole"  # what a proxy does while its client is cut off

    def __init__(self) -> None:
        self.clients: list[tuple[Backend, tuple[Proxy, ...]]] = []

    def keep(self, client: AnyBackend, *proxies: Proxy) -> AnyBackend:
        """*client*, which is closed at the end, and what stands between it and the servers."""
        self.clients.append((client, proxies))
        return client

    def proxies(self, client: Backend) -> tuple[Proxy, ...]:
        return next(proxies for each, proxies in self.clients if each is client)

    def proxy(self, client: Backend) -> Proxy:
        """What stands between a client and the server."""
        (proxy,) = self.proxies(client)
        return proxy

    def sever(self, client: Backend) -> None:
        for proxy in self.proxies(client):
            proxy.mode = self.cut

    def heal(self, client: Backend) -> None:
        for proxy in self.proxies(client):
            proxy.mode = "pass"

    def close(self) -> None:
        for client, proxies in self.clients:
            client.close()
            for proxy in proxies:
                proxy.close()


class Background:
    """A call in a thread of its own; its end is waited for, and its error raised, by :meth:`result`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        """Start at once."""
        self._call = call
        self._answer: Any = None
        self._error: BaseException | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error
        self.ended_at = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether the call has not returned yet."""
        return self._thread.is_alive()

    def result(self, limit: float = 20.0) -> Any:
        """What the call returned."""
        self._thread.join(limit)
        assert not self._thread.is_alive(), f"still running after {limit} s"
        if self._error is not None:
            raise self._error
        return self._answer


def waiters(client: Backend, name: str = "nightly") -> int | None:
    """How many wait for a lock; ``None``: the backend cannot say."""
    seen = client.inspect(name, timeout=LIMIT).waiters
    return None if seen is None else len(seen)


def queue_up(client: Backend, claim: Claim, observer: Backend) -> None:
    """Wait until *observer* sees one waiter more, and no longer: the place in the queue is kept."""
    before = waiters(observer, claim.name)
    assert before is not None, "there is no queue that can be seen"
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        waiting = Background(lambda: client.wait(claim, timeout=LIMIT, interrupt=reading))

        def is_seen() -> bool:
            if not waiting.running:
                waiting.result()
                raise AssertionError("the wait ended at once")
            return (waiters(observer, claim.name) or 0) > before

        eventually(is_seen)
        os.write(writing, b".")
        waiting.result()
    finally:
        os.close(reading)
        os.close(writing)


def take(client: Backend, claim: Claim) -> Grant:
    """Acquire a lock that must be free."""
    grant = client.try_acquire(claim, timeout=LIMIT)
    assert grant is not None, f"{claim.name} was refused"
    return grant


def refused(client: Backend, claim: Claim) -> bool:
    """Whether a lock is refused; nothing is held afterwards."""
    grant = client.try_acquire(claim, timeout=LIMIT)
    if grant is not None:
        client.release(grant, timeout=LIMIT)
    return grant is None


def assert_in_doubt(client: Backend, grant: Grant, said: str) -> None:
    """Nothing that is answered now says anything about the lock that was granted: each step fails, with *said*."""
    for step in (
        lambda: client.renew(grant, timeout=LIMIT),
        lambda: client.try_acquire(claim(), timeout=LIMIT),
        lambda: client.inspect("nightly", timeout=LIMIT),
        lambda: list(client.list("*", timeout=LIMIT)),
    ):
        with pytest.raises(BackendUnavailable, match=said):
            step()


def wait_for_turn(client: Backend, wanted: Claim) -> Grant:
    """What `run --wait` does."""
    while (grant := client.try_acquire(wanted, timeout=LIMIT)) is None:
        client.wait(wanted, timeout=2 * LIMIT, interrupt=None)
    return grant


def departed() -> int:
    """The pid of a process that is no more, as that of a holder that vanished."""
    process = subprocess.Popen(["true"])
    process.wait(timeout=LIMIT)
    return process.pid
