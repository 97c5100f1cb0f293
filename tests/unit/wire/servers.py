"""A server in a thread that answers with the bytes it is told to, in the pieces and at the pace it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 10.0  # seconds


@contextlib.contextmanager
def serving(behave: Callable[[socket.socket], None], family: int = socket.AF_INET) -> Iterator[tuple[str, int]]:
    """Host and port of a server that does *behave* with each connection, one after the other."""
    listener = socket.socket(family)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen()
    ended = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if ended.is_set():
                connection.close()
                return
            connection.settimeout(LIMIT)
            with connection, contextlib.suppress(OSError):
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            socket.create_connection(listener.getsockname()[:2], timeout=1).close()
        listener.close()
        thread.join(LIMIT)


def answering(
    *pieces: bytes, pause: float = 0.0, stop: threading.Event | None = None
) -> Callable[[socket.socket], None]:
    """Wait for something to come, then send the pieces, with a pause between them, and close."""
    never = stop or threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
            if pause and never.wait(pause):
                return

    return behave


def flooding(*pieces: bytes) -> Callable[[socket.socket], None]:
    """Wait for something to come and send a piece, for each; and the last one as often as the other side takes it."""

    def behave(connection: socket.socket) -> None:
        until = time.monotonic() + LIMIT
        for piece in pieces[:-1]:
            connection.recv(65536)
            connection.sendall(piece)
        while pieces[-1] and time.monotonic() < until:
            connection.sendall(pieces[-1])

    return behave
