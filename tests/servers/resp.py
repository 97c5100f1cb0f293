"""Ask a Redis server, on one connection for each question: enough to set up and look at what lockctl does there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from typing import BinaryIO


class RedisRefused(Exception):
    """The error that the server replied with."""


def encode(*words: str | bytes | float) -> bytes:
    """One command as RESP."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def read(stream: BinaryIO) -> Any:
    """One reply: bytes, int, list or ``None``. Raises ``RedisRefused``, and ``ConnectionError`` at the end."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise RedisRefused(rest.decode(errors="replace"))
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [read(stream) for _ in range(int(rest))]
    return rest


def ask(connection: socket.socket, *commands: tuple[str | bytes | float, ...]) -> Any:
    """The reply to the last of some commands, the others must succeed."""
    with connection.makefile("rb") as stream:
        answer = None
        for words in commands:
            connection.sendall(encode(*words))
            answer = read(stream)
        return answer
