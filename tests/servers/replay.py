"""What a server said, recorded by a relay before it, and a server that says it again, the same or changed."""

from __future__ import annotations

import contextlib
import copy
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from hypothesis import Phase, given, settings
from hypothesis import strategies as some

from lockctl.errors import LockctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    # which connection, answer and byte of it, as parts of all there are; how many bytes go; and what comes instead
    Change = tuple[float, float, float, int, bytes]
    Conversation = list[bytes]  # of one connection: what the server said at first, and after each time it was asked

CHUNK = 1 << 20  # bytes
TIMEOUT = 0.3  # seconds for each call: an answer that is waited for in vain ends with it
LONGEST = 15.0  # seconds in which a call has surely ended, on a busy machine: the end of a hold takes up to 10 s
LIMIT = 10.0  # seconds without a word after which a connection is given up
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "12"))
PIECES = [b"", b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 8, b"-1", b"9" * 30, b"1e999", b"\r\n", b"\r\n\r\n"]
PIECES += [b"null", b"[", b"{}", b'"', b"}", b"<", b"\xc3", b"\\ud800", b"[" * 2000, b"\x1b[2J", b"x" * 5000]

CHANGE = some.tuples(
    some.floats(0, 1, exclude_max=True),
    some.floats(0, 1, exclude_max=True),
    some.floats(0, 1),
    some.sampled_from([0, 0, 1, 1, 2, 4, 8, 100_000]),
    some.one_of(some.sampled_from(PIECES), some.binary(max_size=4)),
)


def on_changes(check: Callable[[list[Change]], None]) -> Callable[[], None]:
    """Have a check made of many lists of changes; of how many, FUZZ_EXAMPLES says."""
    plain = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])  # calls take long
    return plain(given(some.lists(CHANGE, min_size=1, max_size=3))(check))


def each_ends(calls: Iterable[Callable[[], object]]) -> None:
    """Make calls: each ends in time, well or with an error of ours, and never with a bug."""
    for call in calls:
        before = time.monotonic()
        with contextlib.suppress(LockctlError):
            call()
        assert time.monotonic() - before < LONGEST


def echo(client: socket.socket) -> None:
    """Serve a client that gets back what it sends."""
    while data := client.recv(CHUNK):
        client.sendall(data)


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that has a thread for each connection. All have ended afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    open_ones: list[socket.socket] = []

    def handle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(LIMIT)
            open_ones.append(connection)
            threads.append(threading.Thread(target=handle, args=(connection,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(LIMIT)
        for connection in open_ones:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(LIMIT)


@contextlib.contextmanager
def recording(address: str, into: list[Conversation], change: Callable[[bytes], bytes] = bytes) -> Iterator[str]:
    """The address of a relay before the server at *address* that notes what the server says on each connection.

    *change* makes of what the server says what the client gets.
    """
    host, _, port = address.rpartition(":")

    def relay(client: socket.socket) -> None:
        said: Conversation = [b""]
        into.append(said)
        with socket.create_connection((host, int(port)), LIMIT) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [], LIMIT)
                for source in ready:
                    data = source.recv(CHUNK)
                    if not data:
                        return
                    if source is server:
                        said[-1] += data
                        client.sendall(change(data))
                    else:
                        said.append(b"")
                        server.sendall(data)

    with listening(relay) as here:
        yield here


@contextlib.contextmanager
def replaying(conversations: list[Conversation]) -> Iterator[str]:
    """The address of a server that says the same on its connections, in their order, whatever it is asked."""
    left = iter(conversations)

    def say(client: socket.socket) -> None:
        said = next(left, [b""])
        for number, reply in enumerate(said):
            if number and not client.recv(CHUNK):
                return
            client.sendall(reply)

    with listening(say) as here:
        yield here


def changed(conversations: list[Conversation], changes: list[Change]) -> list[Conversation]:
    """The same with some bytes changed."""
    result = copy.deepcopy(conversations)
    for which, answer, at, gone, instead in changes:
        said = result[int(which * len(result))]
        number = int(answer * len(said))
        start = int(at * len(said[number]))
        said[number] = said[number][:start] + instead + said[number][start + gone :]
    return result
