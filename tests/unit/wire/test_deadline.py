"""lockctl.wire.deadline and lockctl.wire.stream: a request ends on time, whatever the other side does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, RequestInterrupted
from lockctl.wire.deadline import READABLE, Deadline, NoThread, bounded
from lockctl.wire.stream import Closed, Endpoint, resolve
from tests.jobs import without_threads
from tests.unit.wire.servers import answering, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT = 0.4  # seconds
TOLERANCE = 0.25


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    yield ends
    for end in ends:
        os.close(end)


def on_time(call: Callable[[], object], expected: type[Exception] = BackendUnavailable) -> str:
    """The error of a call that must end at the deadline, neither sooner nor much later."""
    before = time.monotonic()
    with pytest.raises(expected) as failure:
        call()
    assert TIMEOUT - 0.01 <= time.monotonic() - before < TIMEOUT + TOLERANCE
    return str(failure.value)


def test_a_wait_ends_at_the_deadline_and_says_how_long_that_was(pipe: tuple[int, int]) -> None:
    deadline = Deadline(TIMEOUT)
    assert on_time(lambda: deadline.wait(pipe[0], READABLE, "here")) == "here: no answer within 0.4 s"
    assert deadline.left() == 0
    with pytest.raises(BackendUnavailable):
        deadline.check("here")


def test_a_wait_without_time_left_still_sees_what_is_ready(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b".")
    Deadline(0.0).wait(pipe[0], READABLE, "here")


def test_what_is_ready_too_late_counts_once_for_all_steps_of_a_request(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b".")
    deadline = Deadline(0.0)
    deadline.sooner(1.0).wait(pipe[0], READABLE, "here")
    for step in (deadline, deadline.sooner(1.0)):
        with pytest.raises(BackendUnavailable, match="no answer within 0 s"):
            step.wait(pipe[0], READABLE, "here")


def test_an_endless_wait_ends_when_there_is_something(pipe: tuple[int, int]) -> None:
    threading.Timer(0.1, lambda: os.write(pipe[1], b".")).start()
    Deadline(float("inf")).wait(pipe[0], READABLE, "here")


def test_an_interrupt_ends_a_wait_at_once_and_stays_readable(pipe: tuple[int, int]) -> None:
    deadline = Deadline(20.0, pipe[0])
    threading.Timer(0.1, lambda: os.write(pipe[1], b".")).start()
    before = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RequestInterrupted):
        deadline.wait(silent.fileno(), READABLE, "here")
    assert time.monotonic() - before < 5.0
    with pytest.raises(RequestInterrupted):
        deadline.check("here")
    assert os.read(pipe[0], 8) == b"."


def test_a_step_ends_with_the_request_at_the_latest() -> None:
    whole = Deadline(1.0)
    assert whole.sooner(5.0).left() <= 1.0
    assert whole.sooner(0.2).left() <= 0.2


def test_a_call_that_obeys_no_deadline_is_left_behind() -> None:
    released = threading.Event()
    on_time(lambda: bounded(lambda: released.wait(20), Deadline(TIMEOUT), "here"))
    released.set()
    assert bounded(lambda: 7, Deadline(5.0), "here") == 7
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, Deadline(5.0), "here")


def test_a_call_for_which_there_is_no_thread_leaves_nothing_open() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with without_threads(), pytest.raises(NoThread, match="here: no thread"):
        bounded(lambda: 1, Deadline(5.0), "here")
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_call_with_limits_of_its_own_needs_no_thread() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with without_threads():
        assert bounded(lambda: 7, Deadline(5.0), "here", self_limited=True) == 7
        with pytest.raises(ZeroDivisionError):
            bounded(lambda: 1 // 0, Deadline(5.0), "here", self_limited=True)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_name_server_that_is_dead_does_not_stretch_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def resolver_without_servers(*_: object) -> None:
        released.wait(20)

    monkeypatch.setattr("_socket.getaddrinfo", resolver_without_servers)
    endpoint = Endpoint("redis at db.example:6379", "db.example", 6379)
    said = on_time(lambda: endpoint.connect(Deadline(TIMEOUT)))
    assert said == "redis at db.example:6379: resolving db.example: no answer within 0.4 s"
    released.set()


def test_names_and_addresses_are_resolved_and_unknown_ones_are_named() -> None:
    deadline = Deadline(10.0)
    assert resolve("127.0.0.1", 1, deadline, "x") == [(socket.AF_INET, ("127.0.0.1", 1))]
    assert resolve("::1", 1, deadline, "x") == [(socket.AF_INET6, ("::1", 1))]
    assert ("127.0.0.1", 1) in [address for _, address in resolve("localhost", 1, deadline, "x")]
    for name in ("no-such-host.invalid", "x" * 300, "b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher..invalid"):
        with pytest.raises(BackendUnavailable, match="cannot resolve"):
            resolve(name, 1, deadline, "x")


def test_a_full_backlog_ends_on_time() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    address = listener.getsockname()
    filling = []
    try:
        for _ in range(4):  # the kernel answers no more connection requests when these wait to be accepted
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            filling.append(filler)
        time.sleep(0.05)
        on_time(lambda: Endpoint("here", *address).connect(Deadline(TIMEOUT)))
    finally:
        for filler in filling:
            filler.close()
        listener.close()


def test_a_refused_connection_is_an_answer_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    before = time.monotonic()
    with pytest.raises(BackendUnavailable, match="here: cannot connect: Connection refused"):
        Endpoint("here", "127.0.0.1", port).connect(Deadline(20.0))
    assert time.monotonic() - before < 5.0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_bytes_go_both_ways(family: int) -> None:
    with serving(answering(b"answer"), family) as (host, port):
        deadline = Deadline(5.0)
        stream = Endpoint("here", host, port).connect(deadline)
        stream.send(b"question", deadline)
        assert stream.receive(deadline) == b"answer"
        with pytest.raises(Closed):
            stream.receive(deadline)
        stream.close()
        stream.close()


def test_bytes_go_over_a_unix_socket(tmp_path: object) -> None:
    path = f"{tmp_path}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        deadline = Deadline(5.0)
        stream = Endpoint("here", "", unix=path).connect(deadline)
        other, _ = listener.accept()
        with other:
            stream.send(b"question", deadline)
            assert other.recv(10) == b"question"
        stream.close()
    with pytest.raises(BackendUnavailable, match="cannot connect: No such file"):
        Endpoint("here", "", unix=path + ".none").connect(deadline)


def test_the_second_address_of_a_name_is_tried_when_the_first_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    # 192.0.2.1 is for documentation (RFC 5737): nobody answers, or the network says that there is no way
    with serving(answering(b"answer")) as (host, port):
        two = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", port)), (socket.AF_INET, 1, 6, "", (host, port))]
        monkeypatch.setattr("_socket.getaddrinfo", lambda *_: two)
        deadline = Deadline(2.0)
        stream = Endpoint("here", "db.example", port).connect(deadline)
        stream.send(b"question", deadline)
        assert stream.receive(deadline) == b"answer"
        stream.close()


def test_a_name_whose_addresses_all_fail_leaves_time_for_another_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as: one address is dead, and the server at the other one is just starting again."""
    with socket.socket() as starting, socket.socket() as silent:
        starting.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with full(silent):
            ways = [listener.getsockname() for listener in (starting, silent)]
            monkeypatch.setattr(
                "_socket.getaddrinfo", lambda *_: [(socket.AF_INET, 1, 6, "", address) for address in ways]
            )
            deadline = Deadline(1.0)
            with pytest.raises(BackendUnavailable, match=r"no answer|cannot connect"):
                Endpoint("here", "db.example", ways[0][1]).connect(deadline)
            assert deadline.left() > 0


@contextlib.contextmanager
def full(listener: socket.socket) -> Iterator[None]:
    """Its queue takes nobody else: the kernel swallows what asks for a connection."""
    with contextlib.ExitStack() as waiting:
        while True:
            client = waiting.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(listener.getsockname())
            except TimeoutError:
                break
        yield


def test_a_server_that_reads_nothing_does_not_hold_up_a_large_request() -> None:
    released = threading.Event()

    def read_nothing(_: socket.socket) -> None:
        released.wait(10)

    with serving(read_nothing) as (host, port):
        stream = Endpoint("here", host, port).connect(Deadline(5.0))
        on_time(lambda: stream.send(bytes(64 << 20), Deadline(TIMEOUT)))
        stream.close()
        released.set()
