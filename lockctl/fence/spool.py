"""A body of HTTP that is kept before it is passed on: a little in memory, the rest in a temporary file."""

from __future__ import annotations

import io
import tempfile

from lockctl.fence.http import TooLarge
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

MEMORY = 1 << 20  # bytes of one body that stay in memory
BODY_LIMIT = 1 << 30  # bytes of a request; more are refused
RESPONSE_LIMIT = 1 << 30  # bytes of an answer
PIECE = 1 << 16  # bytes that are copied at a time


class Limits(Value):
    """How many bytes a request and its answer may have, and how many of each stay in memory."""

    memory: int
    body: int
    response: int

    def spool_request(self) -> Spool:
        """For the body of a request: one that is longer is refused."""
        return Spool(self.memory, self.body, TooLarge(f"the body has more than {self.body} bytes"))

    def spool_answer(self) -> Spool:
        """For the answer: one that is longer is an error of the application."""
        text = f"the answer to a fenced request has more than response_limit, {self.response} bytes"
        return Spool(self.memory, self.response, RuntimeError(text))


class Spool:
    """Bytes that are written first and then read. What it has in a file is gone when it is closed."""

    def __init__(self, memory: int, limit: int, full: Exception) -> None:
        """*memory*: bytes after which a file is used, *limit*: bytes after which :meth:`write` raises *full*."""
        self.file: IO[bytes] = io.BytesIO()
        self.size = 0
        self.limit = limit
        self.full = full
        self._memory = memory
        self._on_disk = False

    def grows_on_disk(self, size: int) -> bool:
        """Whether to write *size* more bytes may wait for a disk."""
        return self._on_disk or self.size + size > self._memory

    def write(self, data: bytes) -> None:
        """Add *data*. Raises :attr:`full`, and ``OSError`` where there is no room."""
        if self.size + len(data) > self.limit:
            raise self.full
        if not self._on_disk and self.grows_on_disk(len(data)):
            file = tempfile.TemporaryFile(prefix="lockctl-fence-")  # noqa: SIM115 - it lives as long as the request
            file.write(self.file.getvalue())  # type: ignore[attr-defined]
            self.file, self._on_disk = file, True
        self.file.write(data)
        self.size += len(data)

    def rewind(self) -> IO[bytes]:
        """The file, to be read from its beginning."""
        self.file.seek(0)
        return self.file

    def pieces(self) -> Iterator[bytes]:
        """All of it, a piece at a time."""
        file = self.rewind()
        while piece := file.read(PIECE):
            yield piece

    def close(self) -> None:
        """Free memory or disk."""
        self.file.close()
