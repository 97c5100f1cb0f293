"""Where a lock and what belongs to it live in Redis, and what is stored there.

The lock itself is the plain key ``prefix`` + name, which any other program can be given. Its companions are
``{that key}:word``: the braces put them into the same slot of a cluster, and no lock's name can have any.
What is remembered of a lock is among them, so that nothing takes it for one.
What is stored is read with the distrust that a shared database deserves.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable
from lockctl.model import SLOT, Holder, Waiter
from lockctl.names import is_name
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.resp import Reply

FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS = "fence", "queue", "live", "who", "revoke", "holders"
COMPANIONS = (FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS)
RUNS, REFUSED, SUCCESS = "runs", "refused", "success"  # companions that no script for the lock itself needs
SHOWN_BY = (FENCE, QUEUE)  # companions that outlive the lock, by which a free lock is known
PREFIX = "lockctl:"  # unless the URL names another
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


def decision(reply: Reply, where: str, length: int = 1) -> list[Reply]:
    """As :func:`answer`, of a script whose answer begins with 1 for yes or 0 for no."""
    elements = answer(reply, where, length)
    if elements[0] not in (0, 1):
        raise no_answer(where)
    return elements


def no_answer(where: str) -> BackendUnavailable:
    """The server does not speak as Redis does."""
    return BackendUnavailable(f"{where}: an answer that cannot be understood")


def keys_of(prefix: str, name: str, owner: str = "") -> tuple[str, ...]:
    """The keys of a lock as the scripts want them; the last one belongs to *owner* alone."""
    key = prefix + name
    return (key, *[f"{{{key}}}:{word}" for word in COMPANIONS], f"{{{key}}}:gone:{owner}")


def remembered(prefix: str, name: str, word: str) -> str:
    """The key under which *word* of what is remembered of a lock stands."""
    return f"{{{prefix}{name}}}:{word}"


def wake_channel(key: str, owner: str) -> str:
    """Where a waiter is told that its turn has come."""
    return f"{{{key}}}:wake:{owner}"


def name_in(key: bytes, prefix: str, words: tuple[str, ...] = SHOWN_BY) -> str | None:
    """The name of the lock that a key of the database belongs to, if it is a lock or one of these companions."""
    text = key.decode("utf-8", "replace")
    if text.startswith("{"):
        text, brace, word = text[1:].rpartition("}:")
        if not brace or word not in words:
            return None
    if not text.startswith(prefix):
        return None
    name = text[len(prefix) :]
    return name if is_name(name) else None


def match_all(prefix: str) -> str:
    """A pattern for SCAN that matches every lock and companion (and maybe more)."""
    return "*" + "".join("\\" + char if char in "*?[]^-\\" else char for char in prefix) + "*"
