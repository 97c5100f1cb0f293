"""A TCP proxy before a server, which can be told to fail in every way that networks do.

One thread serves all connections. Modes:

``pass``           forwards both ways
``blackhole``      accepts, and swallows what comes from both sides; nothing is closed
``drop_replies``   forwards requests and swallows replies, but for the next ``answered`` pieces of them
``lose_a_reply``   the first piece of a reply behind the next ``answered`` ones is lost, and its connection reset
``trickle``        forwards requests, and replies one byte each 0.3 s
``delay=SECONDS``  forwards what comes that much later, both ways
``late=SECONDS``   the same for requests alone, but for the next ``on_time`` pieces of them
``refuse``         resets what is connected and listens no more
``reset``          resets what is connected, and each new connection

A server is not told before a while that a client has hung up whose requests come late: one that is busy would not see
it in time, and does what was asked for.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from tests.servers.process import HOST, Server, free_port

if TYPE_CHECKING:
    from typing_extensions import Self

MODES = {"pass", "blackhole", "drop_replies", "lose_a_reply", "trickle", "refuse", "reset"}
DELAYING = {"delay", "late"}
TRICKLE = 0.3  # seconds between two bytes
LINGER = 0.2  # seconds from a request that came late to the end of its connection
CHUNK = 65536  # bytes
FULL = 2**20  # bytes that wait for their time in one direction: more are left to the kernel
APPLY_LIMIT = 5.0  # seconds until the thread has taken a new mode
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close means RST


class _Direction:
    """Bytes on their way from one socket to the other."""

    def __init__(self, source: socket.socket, sink: socket.socket, *, replies: bool) -> None:
        self.source = source
        self.sink = sink
        self.replies = replies
        self.waiting: collections.deque[tuple[float, bytes]] = collections.deque()  # due time of each chunk
        self.size = 0
        self.source_ended = False
        self.ends = 0.0  # when the sink is told
        self.sink_ended = False
        self.blocked = False

    def push(self, due: float, data: bytes) -> None:
        self.waiting.append((due, data))
        self.size += len(data)

    def forget(self) -> None:
        self.waiting.clear()
        self.size = 0

    def flush(self, now: float, *, one_byte: bool) -> None:
        """Send what is due; a byte at a time when it trickles. Raises ``OSError`` when the sink is gone."""
        self.blocked = False
        while self.waiting and self.waiting[0][0] <= now:
            data = self.waiting[0][1]
            try:
                sent = self.sink.send(data[:1] if one_byte else data)
            except BlockingIOError:
                self.blocked = True
                return
            self.size -= sent
            self.waiting.popleft()
            if sent < len(data):
                self.waiting.appendleft((now + TRICKLE if one_byte else now, data[sent:]))
            if one_byte:
                # what came together also leaves byte by byte
                self.waiting = collections.deque((max(due, now + TRICKLE), rest) for due, rest in self.waiting)
        if self.source_ended and not self.waiting and not self.sink_ended and self.ends <= now:
            self.sink_ended = True
            self.sink.shutdown(socket.SHUT_WR)


class _Connection:
    """A client and its connection to the target."""

    def __init__(self, client: socket.socket, target: tuple[str, int]) -> None:
        self.client = client
        self.server = socket.socket()
        for end in (self.client, self.server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.connect_ex(target)
        self.requests = _Direction(self.client, self.server, replies=False)
        self.replies = _Direction(self.server, self.client, replies=True)
        self.directions = (self.requests, self.replies)
        self.connecting = True

    def lingers(self, now: float) -> bool:
        """Whether the client has gone, and the server is not told yet."""
        return self.requests.source_ended and now < self.requests.ends

    def close(self, *, reset: bool) -> None:
        for end in (self.client, self.server):
            if reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()


class Proxy:
    """Listens on a free port of 127.0.0.1 as soon as it is made, until it is closed."""

    def __init__(
        self, target: Server | str | tuple[str, int], mode: str = "pass", said: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        """*target*: a server, ``HOST:PORT``, or both as a pair; *said*: words in replies, and as many in their place."""
        assert len(said[0]) == len(said[1]), "lengths are told before what is so long"
        self._said = said
        if isinstance(target, Server):
            target = target.address
        if isinstance(target, str):
            host, _, port = target.rpartition(":")
            target = (host, int(port))
        self._target = target
        self.host = HOST
        self.port = free_port()
        self.accepted = 0
        self.on_time = 0  # pieces of requests that ``late`` lets pass at once: one is what a client sends at a time
        self.answered = 0  # pieces of replies that pass before any is lost
        self.lost = 0  # pieces of replies that were lost
        self._mode, self._delay = _parsed(mode)
        self._wanted = (self._mode, self._delay)
        self._applied = threading.Event()
        self._closing = False
        self._listener: socket.socket | None = None
        self._connections: list[_Connection] = []
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        if self._mode != "refuse":
            self._listen()
        self._thread = threading.Thread(target=self._serve, name=f"proxy to {target}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""
        return f"{self.host}:{self.port}"

    @property
    def mode(self) -> str:
        """How it treats what passes."""
        return f"{self._mode}={self._delay:g}" if self._mode in DELAYING else self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._wanted = _parsed(mode)
        self._ring()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        now, connections = time.monotonic(), list(self._connections)
        return not any(each.size for connection in connections for each in connection.directions) and not any(
            connection.lingers(now) for connection in connections
        )

    def close(self) -> None:
        """End all connections. May be called again."""
        if not self._closing:
            self._closing = True
            self._ring()
            self._thread.join(APPLY_LIMIT)
            self._bell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _ring(self) -> None:
        """Have the thread look at what is wanted, and wait until it did."""
        self._applied.clear()
        self._bell.send(b"!")
        if not self._applied.wait(APPLY_LIMIT):
            raise TimeoutError(f"the proxy on {self.address} hangs")

    # All below runs in the thread of the proxy.

    def _serve(self) -> None:
        with self._selector, self._ear:
            while True:
                ready: set[object] = {key.fileobj for key, _ in self._watch().select(self._until_due())}
                if self._ear in ready:
                    with contextlib.suppress(BlockingIOError):
                        self._ear.recv(CHUNK)
                    if self._closing:
                        break
                    self._apply()
                    self._applied.set()
                    continue  # what was ready may be closed
                if self._listener is not None and self._listener in ready:
                    self._accept()
                for connection in list(self._connections):
                    self._move(connection, ready)
            self._drop_all(reset=False)
            self._stop_listening()
            self._applied.set()

    def _watch(self) -> selectors.BaseSelector:
        """Wait for exactly what can be handled now: anything else would wake the thread again and again."""
        wanted: dict[socket.socket, int] = {self._ear: selectors.EVENT_READ}
        if self._listener is not None:
            wanted[self._listener] = selectors.EVENT_READ
        for connection in self._connections:
            if connection.connecting:
                wanted[connection.server] = selectors.EVENT_WRITE
                continue
            for each in connection.directions:
                if not each.source_ended and (each.size < FULL or self._swallows(each)):
                    wanted[each.source] = wanted.get(each.source, 0) | selectors.EVENT_READ
                if each.blocked:
                    wanted[each.sink] = wanted.get(each.sink, 0) | selectors.EVENT_WRITE
        for key in list(self._selector.get_map().values()):
            if key.fileobj not in wanted:
                self._selector.unregister(key.fileobj)
        known = {key.fileobj: key.events for key in self._selector.get_map().values()}
        for end, events in wanted.items():
            if end not in known:
                self._selector.register(end, events)
            elif known[end] != events:
                self._selector.modify(end, events)
        return self._selector

    def _until_due(self) -> float | None:
        due = [
            each.waiting[0][0] if each.waiting else each.ends
            for connection in self._connections
            for each in connection.directions
            if (each.waiting or (each.ends and not each.sink_ended and not self._swallows(each)))
            and not each.blocked
            and not connection.connecting
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _swallows(self, direction: _Direction) -> bool:
        if self._mode == "drop_replies":
            return direction.replies and self.answered <= 0
        return self._mode == "blackhole"

    def _apply(self) -> None:
        self._mode, self._delay = self._wanted
        if self._mode in {"refuse", "reset"}:
            self._drop_all(reset=True)
        if self._mode == "refuse":
            self._stop_listening()
        elif self._listener is None:
            self._listen()
        for connection in list(self._connections):
            for each in connection.directions:
                if self._swallows(each):
                    each.forget()
            self._move(connection, set())  # an end that was swallowed is passed on now

    def _listen(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        give_up = time.monotonic() + APPLY_LIMIT / 2
        while True:
            try:
                self._listener.bind((self.host, self.port))
                break
            except OSError as error:
                # a process that is just being started may still have a copy of the listener that was closed
                if error.errno != errno.EADDRINUSE or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
        self._listener.listen(128)
        self._listener.setblocking(False)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        self.accepted += 1
        if self._mode == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        else:
            self._connections.append(_Connection(client, self._target))

    def _move(self, connection: _Connection, ready: set[object]) -> None:
        now = time.monotonic()
        if connection.connecting:
            if connection.server not in ready:
                return
            connection.connecting = False
        for each in connection.directions:
            swallowed = self._swallows(each) or (each.replies and connection.lingers(now))
            try:
                if each.source in ready and not each.source_ended:
                    self._read(each, now, swallowed=swallowed)
                if not swallowed:
                    each.flush(now, one_byte=self._mode == "trickle" and each.replies)
            except BlockingIOError:
                continue
            except OSError:
                if not swallowed:
                    self._drop(connection, reset=True)
                    return
                each.source_ended = True
        if all(each.sink_ended for each in connection.directions):
            self._drop(connection, reset=False)

    def _read(self, direction: _Direction, now: float, *, swallowed: bool) -> None:
        data = direction.source.recv(CHUNK)
        if not data:
            direction.source_ended = True
            if direction.waiting and not direction.replies:
                direction.ends = direction.waiting[-1][0] + LINGER
        elif not swallowed:
            if direction.replies:
                if self._mode == "lose_a_reply" and self.answered <= 0 and not self.lost:
                    self.lost += 1
                    raise ConnectionResetError
                self.answered -= 1
            if direction.replies and self._said[0]:
                data = data.replace(*self._said)
            direction.push(now + self._delay_of(direction), data)
        elif direction.replies:
            self.lost += 1

    def _delay_of(self, direction: _Direction) -> float:
        """Seconds that what was just read is on its way."""
        if self._mode == "late" and direction.replies:
            return 0.0
        if self._mode == "late" and self.on_time > 0:
            self.on_time -= 1
            return 0.0
        return self._delay

    def _drop(self, connection: _Connection, *, reset: bool) -> None:
        for end in (connection.client, connection.server):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
        connection.close(reset=reset)
        self._connections.remove(connection)

    def _drop_all(self, *, reset: bool) -> None:
        for connection in list(self._connections):
            self._drop(connection, reset=reset)


def _parsed(mode: str) -> tuple[str, float]:
    kind, _, seconds = mode.partition("=")
    if kind in DELAYING:
        return kind, float(seconds)
    if mode not in MODES:
        raise ValueError(f"no mode of a proxy: {mode}")
    return mode, 0.0
