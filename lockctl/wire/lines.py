"""A streamed answer of HTTP, line by line as it comes: how servers tell of changes."""

from __future__ import annotations

from lockctl.wire.answer import Malformed, Parser
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Stream, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline


class Lines:
    """The lines of a streamed answer; the caller closes it."""

    def __init__(self, stream: Stream) -> None:
        """The request was sent on *stream*."""
        self._stream = stream
        self._parser = Parser()
        self._rest = bytearray()
        self._come = 0  # bytes since the last line was complete

    @property
    def status(self) -> int:
        """Status of the answer."""
        return self._parser.status

    def fileno(self) -> int:
        """The descriptor, for a poll."""
        return self._stream.fileno()

    def read_head(self, deadline: Deadline) -> None:
        """Wait for the status and the header fields."""
        while not self._parser.head_complete:
            self._receive(deadline)

    def buffered(self) -> bytes | None:
        """A line that has come already, without waiting; ``None``: none."""
        end = self._rest.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        self._come = len(self._rest)
        return line

    def next(self, deadline: Deadline) -> bytes | None:
        """The next line without its end; ``None``: the answer has ended. Raises ``BackendUnavailable``."""
        while (line := self.buffered()) is None:
            if self._parser.complete:
                last, self._rest = bytes(self._rest), bytearray()
                return last or None
            self._receive(deadline)
        return line

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._stream.close()

    def _receive(self, deadline: Deadline) -> None:
        try:
            piece = self._stream.receive(deadline)
            self._come += len(piece)
            if self._come > LARGEST_ANSWER:
                raise TooLarge(self._stream.where)
            self._rest += self._parser.feed(piece)
        except Malformed as wrong:
            raise Malformed(f"{self._stream.where}: {wrong}") from None
        except Closed:
            if not self._parser.head_complete:
                raise
            self._parser.feed_end()
