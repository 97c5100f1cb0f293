"""What a server said, recorded by a relay before it, and a server that says it again, the same or changed."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Conversation = list[bytes]  # of one connection: what the server said at first, and after each time it was asked

CHUNK = 1 << 20  # bytes
LIMIT = 10.0  # seconds without a word after which a connection is given up


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
def recording(address: str, into: list[Conversation]) -> Iterator[str]:
    """The address of a relay before the server at *address* that notes what the server says on each connection."""
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
                        client.sendall(data)
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
