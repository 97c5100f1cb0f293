"""What is stored under the key of a lock, read with the distrust that a shared database deserves."""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable
from lockctl.model import SLOT, Holder, Waiter
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.resp import Reply

LARGEST_TOKEN = 1 << 53  # exact in the double numbers of the server's scripts
ENDED = b"ended:"  # how the value begins when the lock is only kept for a while after its job


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
    last_run: bytes | None = None  # its document, if it was asked for
    kind: bytes | None = None  # of those who share it: "shared|1", "slot|3"
    sharers: tuple[Holder, ...] = ()

    @property
    def record(self) -> Record | None:
        """What lockctl wrote, if it did."""
        return read(self.value)


def beginning(owner: str, token: int) -> str:
    """How the value of a grant begins: enough to know it by."""
    return f"{owner}|{token}|"


def read(value: bytes | None) -> Record | None:
    """The record in the value of a lock key; ``None``: another program's, or nothing."""
    parts = (value or b"").removeprefix(ENDED).split(b"|", 2)
    if len(parts) != 3 or not parts[1].isdigit() or len(parts[1]) > 16 or int(parts[1]) > LARGEST_TOKEN:
        return None
    document = documents.read(parts[2])
    if document is None or document["owner"].encode("utf-8", "replace") != parts[0]:
        return None
    return Record(document["owner"], int(parts[1]), document)


def slots_of(text: object) -> int:
    """How many may hold a lock whose holders are of this kind."""
    mode, _, number = text.decode("ascii", "replace").partition("|") if isinstance(text, bytes) else ("", "", "")
    return int(number) if mode == SLOT and number.isdigit() and 0 < len(number) < 10 else 1


def token(text: object, where: str) -> int:
    """A token in an answer; raises ``BackendUnavailable``."""
    if not isinstance(text, bytes) or not text.isdigit() or len(text) > 16:
        raise no_answer(where)
    return int(text)


def seconds(text: object, where: str) -> float:
    """A time in microseconds in an answer, as seconds since the epoch; raises ``BackendUnavailable``."""
    return token(text, where) / 1_000_000


def answer(reply: Reply, where: str, length: int) -> list[Reply]:
    """The first *length* elements of an answer; raises ``BackendUnavailable``."""
    if not isinstance(reply, list) or len(reply) < length:
        raise no_answer(where)
    return reply[:length]


def no_answer(where: str) -> BackendUnavailable:
    """The server does not speak as Redis does."""
    return BackendUnavailable(f"{where}: an answer that cannot be understood")
