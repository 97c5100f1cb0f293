"""kazoo's handler of threads and sockets, with time limits and TLS of our own.

See :mod:`lockctl.stores.zookeeper.protocol` for what is replaced, and why.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import SequentialThreadingHandler

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Threads and sockets of one client."""

    def __init__(self, context: Callable[[], SSLContext] | None, tls_name: str | None) -> None:
        """*context* is asked for at each connection; ``None``: no TLS."""
        super().__init__()
        self._context = context
        self._tls_name = tls_name
        self.attempt_until: float | None = None  # on CLOCK_MONOTONIC, while connecting
        self.host = ""  # as the URL names the server that is tried

    def start(self) -> None:
        """As kazoo's, but nothing waits for the threads at exit."""
        super().start()
        atexit.unregister(self.stop)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """A thread that runs *func* and dies silently."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:  # noqa: BLE001, S110 - the client is seen to be closed; a traceback helps nobody
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], timeout: float = 0, **_: object) -> socket.socket:
        """A connection to a server, within what is left of the attempt."""
        left = self._attempt_left(timeout)
        sock = socket.create_connection(address, left)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return sock
            sock.settimeout(self._attempt_left(left))
            return self._context().wrap_socket(sock, server_hostname=self._tls_name or self.host)
        except BaseException:
            sock.close()
            raise

    def select(
        self, reading: list[Any], writing: list[Any], _exceptional: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``, but with any number of descriptors, and with TLS."""
        # what TLS has decrypted already, no poll shows
        pending = [each for each in reading if getattr(each, "pending", None) is not None and each.pending()]
        if pending:
            return pending, [], []
        poll = select.poll()
        wanted = [(each, select.POLLIN) for each in reading] + [(each, select.POLLOUT) for each in writing]
        by_number = {}
        for each, events in wanted:
            descriptor = each.fileno()
            if descriptor < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            by_number[descriptor] = each
            poll.register(descriptor, events)
        if self.attempt_until is not None:
            timeout = self._attempt_left(timeout)
        found = [by_number[descriptor] for descriptor, _ in poll.poll(None if timeout is None else timeout * 1000 + 1)]
        return [each for each in found if each in reading], [each for each in found if each in writing], []

    def _attempt_left(self, timeout: float | None) -> float:
        left = 0.0 if self.attempt_until is None else self.attempt_until - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return left if timeout is None else min(left, timeout)
