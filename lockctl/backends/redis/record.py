"""What is stored under the key of a lock, read with the distrust that a shared database deserves."""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Holder, Waiter
    from lockctl.wire.resp import Reply

LARGEST_TOKEN = 1 << 53  # exact in the double numbers of the server's scripts


class Record(Value):
    """The value of a lock key that lockctl wrote."""

    owner: str
    token: int
    document: dict[str, Any]


class Seen(Value):
    """What one server says about one lock."""

    value: bytes | None  # None: free
    left: float | None  # seconds to live; None: for ever
    waiters: tuple[Waiter, ...]

    @property
    def record(self) -> Record | None:
        """What lockctl wrote, if it did."""
        return read(self.value)


def beginning(owner: str, token: int) -> str:
    """How the value of a grant begins: enough to know it by."""
    return f"{owner}|{token}|"


def read(value: bytes | None) -> Record | None:
    """The record in the value of a lock key; ``None``: another program's, or nothing."""
    parts = (value or b"").split(b"|", 2)
    if len(parts) != 3 or not parts[1].isdigit() or len(parts[1]) > 16 or int(parts[1]) > LARGEST_TOKEN:
        return None
    document = documents.read(parts[2])
    if document is None or document["owner"].encode("utf-8", "replace") != parts[0]:
        return None
    return Record(document["owner"], int(parts[1]), document)


def seen(reply: Reply, where: str) -> Seen:
    """The answer of ``INSPECT``; raises ``BackendUnavailable`` if it is none."""
    value, left, waiting = answer(reply, where, 3)
    if not (value is None or isinstance(value, bytes)) or not isinstance(left, int) or not isinstance(waiting, list):
        raise no_answer(where)
    waiters = []
    for text in waiting:
        document = documents.read(text if isinstance(text, bytes) else None)
        if document is not None:
            waiters.append(documents.waiter(document))
    return Seen(value, left / 1000 if left >= 0 else None, tuple(waiters))


def holder(found: Seen) -> Holder | None:
    """Who holds the lock."""
    if found.value is None:
        return None
    record = found.record
    if record is None:
        return documents.foreign_holder(expires_in=found.left)
    return documents.holder(record.document, token=record.token, expires_in=found.left)


def token(text: object, where: str) -> int:
    """A token in an answer; raises ``BackendUnavailable``."""
    if not isinstance(text, bytes) or not text.isdigit() or len(text) > 16:
        raise no_answer(where)
    return int(text)


def answer(reply: Reply, where: str, length: int) -> list[Reply]:
    """The first *length* elements of an answer; raises ``BackendUnavailable``."""
    if not isinstance(reply, list) or len(reply) < length:
        raise no_answer(where)
    return reply[:length]


def no_answer(where: str) -> BackendUnavailable:
    """The server does not speak as Redis does."""
    return BackendUnavailable(f"{where}: an answer that cannot be understood")
