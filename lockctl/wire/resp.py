"""RESP2, the protocol of Redis: https://redis.io/docs/latest/develop/reference/protocol-spec/ .

A reply is ``bytes`` (simple and bulk strings), ``int``, ``None``, a list of replies, or a
:class:`ReplyError`, which is a value: what an error means is for the caller to say.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.value import Value
from lockctl.wire.deadline import READABLE
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Stream, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline, Steps

    Reply = Any  # the kinds above: a recursive union helps nobody who has to look at what came

LONGEST_LINE = 65536  # bytes
MOST_ELEMENTS = 1 << 17  # of the replies to one request, in all arrays together
DEEPEST = 16
LONGEST_TEXT = 500  # characters of an error
LONGEST_AT_ONCE = 8192  # bytes: so much the kernel takes while the answer to nothing is awaited


class ReplyError(Value):
    """An error that the server answered with: ``WRONGTYPE Operation against ...``."""

    code: str
    text: str


class Malformed(BackendUnavailable):
    """What came is not RESP2."""


def encode(words: tuple[bytes | str | int, ...]) -> bytes:
    """One command, as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Parser:
    """Bytes in, replies out, in any pieces. After ``Malformed`` it is of no more use."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._data = bytearray()
        self._at = 0  # what is before it has been read
        self._bulk: int | None = None  # length of the bulk string whose bytes are awaited
        self._open: list[tuple[int, list[Reply]]] = []  # arrays that are not complete, with their lengths
        self._elements = 0  # of all arrays since the request

    def expect(self) -> None:
        """The replies to another request come now."""
        self._elements = 0

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        if self._at > LONGEST_LINE:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def next(self) -> tuple[Reply] | None:
        """The next complete reply, or ``None`` until more is fed. Raises ``Malformed``."""
        while True:
            item = self._item()
            if item is None:
                return None
            reply: Reply = item[0]
            while self._open:
                length, elements = self._open[-1]
                if elements is not reply:
                    elements.append(reply)
                if len(elements) < length:
                    break
                self._open.pop()
                reply = elements
            else:
                return (reply,)

    def _item(self) -> tuple[Reply] | None:
        """The next string, number or begun array; ``None``: it is not complete."""
        if self._bulk is not None:
            return self._bulk_string(self._bulk)
        end = self._data.find(b"\r\n", self._at)
        if end < 0 or end - self._at > LONGEST_LINE:
            if len(self._data) - self._at > LONGEST_LINE:
                raise Malformed("a line without end")
            return None
        kind, line = bytes(self._data[self._at : self._at + 1]), bytes(self._data[self._at + 1 : end])
        self._at = end + 2
        if kind == b"+":
            return (line,)
        if kind == b"-":
            code, _, text = line.decode("utf-8", "replace").partition(" ")
            return (ReplyError(printable(code[:LONGEST_TEXT]), printable(text[:LONGEST_TEXT])),)
        if kind not in (b":", b"$", b"*"):
            raise Malformed(f"not RESP2: a reply begins with {printable(kind.decode('latin-1'))!r}")
        number = _number(line)
        if kind == b":":
            return (number,)
        if kind == b"$":
            if number == -1:
                return (None,)
            if not 0 <= number <= LARGEST_ANSWER:
                raise Malformed("a string that is too large")
            self._bulk = number
            return self._bulk_string(number)
        return self._array(number)

    def _bulk_string(self, length: int) -> tuple[Reply] | None:
        end = self._at + length
        if len(self._data) < end + 2:
            return None
        if self._data[end : end + 2] != b"\r\n":
            raise Malformed("not RESP2: a string does not end where it should")
        data = bytes(self._data[self._at : end])
        self._at, self._bulk = end + 2, None
        return (data,)

    def _array(self, length: int) -> tuple[Reply]:
        if length == -1:
            return (None,)
        self._elements += max(length, 0)
        if length < 0 or self._elements > MOST_ELEMENTS or len(self._open) >= DEEPEST:
            raise Malformed("arrays that are too large or too deep")
        elements: list[Reply] = []
        if length:
            self._open.append((length, elements))
        return (elements,)


def _number(line: bytes) -> int:
    digits = line[1:] if line[:1] in (b"-", b"+") else line
    if not digits.isdigit() or len(digits) > 19:
        raise Malformed("not RESP2: a number was expected")
    return int(line)


class Connection:
    """Commands and their replies on one stream. After any error it is of no more use."""

    def __init__(self, stream: Stream) -> None:
        """Use a fresh stream."""
        self._stream = stream
        self._parser = Parser()
        self._come = 0  # bytes since the request

    def fileno(self) -> int:
        """The descriptor, for a poll."""
        return self._stream.fileno()

    def call(self, *words: bytes | str | int, deadline: Deadline) -> Reply:
        """One command and its reply. Raises ``BackendUnavailable``, ``RequestInterrupted``."""
        return self.pipeline([words], deadline=deadline)[0]

    def pipeline(self, commands: list[tuple[bytes | str | int, ...]], *, deadline: Deadline) -> list[Reply]:
        """Several commands in one packet, and their replies."""
        return deadline.drive(self.exchange(commands, deadline), self._stream.where)

    def exchange(self, commands: list[tuple[bytes | str | int, ...]], deadline: Deadline) -> Steps[list[Reply]]:
        """The steps of :meth:`pipeline`, see ``Deadline.drive``."""
        data = b"".join([encode(words) for words in commands])
        if self._stream.secured is not None or len(data) > LONGEST_AT_ONCE:
            yield None
        self._stream.send(data, deadline)
        self._expect()
        replies: list[Reply] = []
        while len(replies) < len(commands):
            try:
                replies.append((yield from self._next(deadline)))
            except Closed:
                said = [reply for reply in replies if isinstance(reply, ReplyError)]
                if not said:
                    raise
                # it does not close without a reason then: long commands before a login are not even read
                return replies + said[-1:] * (len(commands) - len(replies))
        return replies

    def send(self, commands: list[tuple[bytes | str | int, ...]], *, deadline: Deadline) -> None:
        """Commands whose replies are asked for later."""
        self._stream.send(b"".join([encode(words) for words in commands]), deadline)

    def receive(self, deadline: Deadline) -> Reply:
        """The next reply, or message of a subscription."""
        self._expect()
        return deadline.drive(self._next(deadline), self._stream.where)

    def _expect(self) -> None:
        self._come = 0
        self._parser.expect()

    def _next(self, deadline: Deadline) -> Steps[Reply]:
        try:
            while (found := self._parser.next()) is None:
                if self._stream.secured is None:
                    yield self._stream.fileno(), READABLE
                    piece = self._stream.take()
                else:
                    piece = self._stream.receive(deadline)  # may have more than the descriptor shows
                self._come += len(piece)
                if self._come > LARGEST_ANSWER:
                    raise TooLarge(self._stream.where)
                self._parser.feed(piece)
        except Malformed as wrong:
            raise Malformed(f"{self._stream.where}: {wrong}") from None
        return found[0]

    def close(self) -> None:
        """Close; idempotent."""
        self._stream.close()
