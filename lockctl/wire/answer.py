"""An answer of HTTP/1.1 (RFC 9112), from bytes in any pieces: status, header fields, Content-Length, chunks."""

from __future__ import annotations

import time

from lockctl import json_text
from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST_HEAD = 65536  # bytes of status line and header fields
LONGEST_CHUNK_LINE = 1024
LONGEST_LENGTH = 12  # digits of a Content-Length
LONGEST_SIZE = 8  # digits of the size of a chunk
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Malformed(BackendUnavailable):
    """What came is not HTTP/1.1."""


class Response(Value):
    """A whole answer. Names of header fields are in lower case; of several with one name the last counts."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def date(self) -> float | None:
        """When the server answered by its own clock, in whole seconds since the epoch; ``None``: it did not say."""
        return seconds(self.headers.get("date", ""))

    def json(self) -> Any:
        """The body as JSON; raises ``Malformed``."""
        try:
            return json_text.parse(self.body)
        except ValueError:
            raise Malformed("the answer is not JSON") from None

    def excerpt(self) -> str:
        """The beginning of the body on one printable line, for a message; not that of a page for browsers."""
        if self.body[:200].lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            return "a page in HTML"
        return printable(" ".join(self.body[:300].decode("utf-8", "replace").split())) or "an empty body"


def seconds(date: str) -> float | None:
    """The time of an IMF-fixdate (RFC 9110, 5.6.7) since the epoch; ``None`` for any other text.

    The other two forms of that section are obsolete: no server may write them.
    """
    numbers = (date[5:7], date[12:16], date[17:19], date[20:22], date[23:25])
    marks = date[3:5] + date[7:8] + date[11:12] + date[16:17] + date[19:20] + date[22:23] + date[25:]
    if marks != ",    :: GMT" or date[8:11] not in MONTHS or not all(n.isascii() and n.isdigit() for n in numbers):
        return None
    day, year, hour, minute, second = map(int, numbers)
    month = MONTHS.index(date[8:11]) + 1
    if year < 1970 or hour > 23 or minute > 59 or second > 60:
        return None
    # days of the proleptic Gregorian calendar, as if a year began in March: the leap day is its last
    shifted = year - (month < 3)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468
    real = time.gmtime(days * 86400)
    if (real.tm_mon, real.tm_mday, DAYS[real.tm_wday]) != (month, day, date[:3]):
        return None  # no such day, or another day of the week
    return float(days * 86400 + hour * 3600 + minute * 60 + second)


class Parser:
    """One answer from bytes in any pieces. After ``Malformed`` it is of no more use."""

    def __init__(self, *, has_body: bool = True) -> None:
        """*has_body*: ``False`` for the answer to HEAD."""
        self._data = bytearray()
        self._has_body = has_body
        self._left: int | None = None  # bytes of the body or of the chunk; None: until the connection is closed
        self._chunked = False
        self._trailers = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_complete = False
        self.complete = False

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        return self.complete and self.headers.get("connection", "").lower() != "close"

    def rest(self) -> bytes:
        """What came behind the end of the answer."""
        return bytes(self._data) if self.complete else b""

    def feed(self, data: bytes) -> bytes:
        """Add what was received; the bytes of the body that have become known. Raises ``Malformed``."""
        self._data += data
        if not self.head_complete and not self._head():
            return b""
        body = bytearray()
        while not self.complete and self._step(body):
            pass
        return bytes(body)

    def feed_end(self) -> None:
        """The connection was closed. Raises ``Malformed`` if the answer is not complete."""
        if self.head_complete and not self._chunked and self._left is None:
            self.complete = True
        if not self.complete:
            raise Malformed("the answer was cut off")

    def _head(self) -> bool:
        """Read the status line and the header fields, if they are there in full."""
        while True:
            end = self._data.find(b"\r\n\r\n")
            if end < 0 or end > LARGEST_HEAD:
                if len(self._data) > LARGEST_HEAD:
                    raise Malformed("header fields without end")
                if self._data and not b"HTTP/1.".startswith(self._data[:7]):
                    raise Malformed("not HTTP/1.1")
                return False
            lines = bytes(self._data[:end]).decode("latin-1").split("\r\n")
            del self._data[: end + 4]
            self._status_line(lines[0])
            if self.status >= 200:
                break
            if self.status == 101:
                raise Malformed("the server changed the protocol")
        self._fields(lines[1:])
        self.head_complete = True
        return True

    def _status_line(self, line: str) -> None:
        version, _, rest = line.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()) or len(code) != 3:
            raise Malformed("not HTTP/1.1")
        self.status = int(code)
        if version == "HTTP/1.0":
            self.headers["connection"] = "close"

    def _fields(self, lines: list[str]) -> None:
        for line in lines:
            name, colon, content = line.partition(":")
            if not colon or not name or name != name.strip():
                raise Malformed("a header field without a name")
            name, content = name.lower(), content.strip()
            if name == "content-length" and self.headers.get(name, content) != content:
                raise Malformed("two lengths")
            self.headers[name] = content
        length, coding = self.headers.get("content-length"), self.headers.get("transfer-encoding")
        if not self._has_body or self.status in (204, 304):
            self.complete = True
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise Malformed("an unknown coding of the answer")
            self._chunked, self._left = True, 0
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(length) > LONGEST_LENGTH:
                raise Malformed("an impossible length")
            self._left = int(length)
            self.complete = self._left == 0

    def _step(self, body: bytearray) -> bool:
        """Read one piece of the body; whether there may be more in what was received."""
        if self._left is None or self._left > 0:
            piece = self._data if self._left is None else self._data[: self._left]
            if not piece:
                return False
            body += piece
            if self._left is not None:
                self._left -= len(piece)
                self.complete = self._left == 0 and not self._chunked
                if self._left == 0 and self._chunked:
                    self._left = -1  # the end of a chunk has an empty line
            del self._data[: len(piece)]
            return True
        end = self._data.find(b"\r\n")
        if end < 0:
            if len(self._data) > LONGEST_CHUNK_LINE:
                raise Malformed("a chunk without a length")
            return False
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        self._chunk_line(line)
        return True

    def _chunk_line(self, line: bytes) -> None:
        if self._trailers:
            self.complete = not line
        elif self._left == -1:
            if line:
                raise Malformed("a chunk does not end where it should")
            self._left = 0
        else:
            digits = line.partition(b";")[0].strip()
            try:
                size = int(digits, 16)
            except ValueError:
                size = -1
            if not digits.isalnum() or len(digits) > LONGEST_SIZE or size < 0:
                raise Malformed("a chunk without a length")
            self._left, self._trailers = size, size == 0
