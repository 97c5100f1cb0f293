"""What stands in the key of a lock, and what it says about who holds it.

The key is the one of ``consul lock`` (``PREFIX/.lock``, with its flags); its value is ours to choose. It has up to
three lines: the holder's document with its token and the session that it holds the lock by; and, after a revocation,
which writes the key and so changes its index, the token again, and the request. The value goes with the lock: nothing
that was asked of one holder can reach the next. One of several holders (``--slots``) has a key of its own,
``PREFIX/SESSION``, with the same content. Where a document has no token, as lockctl 0.1.0 wrote it, the index is the
token.

What is remembered of locks is below ``.lockctl/`` beside them, which no lock's name begins with. There is the counter
of each lock, too: the last token that was given.
"""

from __future__ import annotations

import binascii

from lockctl import documents
from lockctl.names import ALLOWED, LONGEST
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim

LOCK_FLAGS = 3304740253564472344  # api.LockFlagValue: `consul lock` refuses a key with others, for good
SEMAPHORE_FLAGS = 16210313421097356768  # api.SemaphoreFlagValue: of `consul lock -n`
SUFFIX = "/.lock"  # api.DefaultSemaphoreKey: the key below the prefix that `consul lock` is given
DOMAIN = ".lockctl/domain"  # below the prefix, the name of the cluster: no lock's name begins with a dot
QUEUE = ".lockctl/queue/"  # below it, by the name of a lock, those who wait for it
HOLDS = ".lockctl/hold/"  # below it, by the name of a lock, who keeps it although its job has ended
COUNTERS = ".lockctl/token/"  # below it, NAME/last, the last token of a lock
FLOOR = ".lockctl/floor"  # not below the last token of any counter that was removed with its name
LARGEST_TOKEN = (1 << 62) - 1  # what is more was written by no clock
UNRESERVED = ALLOWED - frozenset("+") | frozenset("/~")


class Entry(Value):
    """A key as Consul has it. *index* is the Raft index of its last change, *taken* how often it was taken."""

    key: str
    flags: int
    value: bytes
    session: str | None  # that holds it
    index: int
    taken: int | None


class HolderRecord(Value):
    """What a holder of ours wrote about itself, and what was asked of it."""

    document: dict[str, Any]
    owner: str
    token: int
    request: bytes  # empty: nothing

    @property
    def granted_at(self) -> float | None:
        """When, by the clock of the agent that was asked."""
        return documents.seconds(self.document.get("acquired_at"))


class Counter(Value):
    """The last token of a lock, read before its next one is given."""

    key: str
    entry: Entry | None  # of that key
    floor_key: str
    floor: Entry | None  # of that key

    @property
    def last(self) -> int:
        """The greatest token that can have been given; 0: none is known."""
        return max(read_token(self.entry), read_token(self.floor))

    def raised(self, token: int) -> list[dict[str, Any]]:
        """The operations that note *token* as the last one; refused when another was given since this was read."""
        index = 0 if self.entry is None else self.entry.index
        value = encoded(b"%d" % token)
        operations: list[dict[str, Any]] = [
            {"Verb": "cas", "Key": self.key, "Index": index, "Value": value, "Flags": 0}
        ]
        if self.entry is None:  # it may have come and have been removed since, which raises the floor
            operations.append(unchanged(self.floor_key, self.floor))
        return operations


def read_entry(content: object) -> Entry | None:
    """The entry in a piece of an answer; ``None`` for what is none."""
    if not isinstance(content, dict):
        return None
    key, flags, index = content.get("Key"), content.get("Flags"), content.get("ModifyIndex")
    if not isinstance(key, str) or not isinstance(flags, int) or not isinstance(index, int) or not 0 < index < 1 << 63:
        return None
    session = content.get("Session")
    try:
        value = binascii.a2b_base64(content.get("Value") or "")
    except (ValueError, TypeError):
        return None
    holding = session if isinstance(session, str) and session else None
    return Entry(key, flags, value, holding, index, documents.whole(content.get("LockIndex")))


def read_holder(entry: Entry) -> HolderRecord | None:
    """Who of ours holds the lock by the session that has the key; ``None``: another program, or nobody."""
    first, _, rest = entry.value.partition(b"\n")
    document = documents.read(first)
    if document is None or entry.session is None or document.get("session") != entry.session:
        return None
    digits, _, request = rest.partition(b"\n")
    token = documents.whole(document.get("token"))
    if token is None or not 0 < token <= LARGEST_TOKEN:  # lockctl 0.1.0 wrote it
        token = int(digits) if digits.isdigit() and len(digits) < 20 else entry.index
        token = token if 0 < token <= entry.index else entry.index
    return HolderRecord(document, document["owner"], token, request)


def describe(claim: Claim, token: int, session: str, acquired_at: float) -> bytes:
    """The value of a lock that is held by *claim* with *session*, granted at *acquired_at* by the agent's clock."""
    return documents.describe(claim, {"token": token, "acquired_at": acquired_at, "session": session})


def describe_revoked(entry: Entry, record: HolderRecord, by: str, reason: str) -> bytes:
    """The value of the same lock with a request to give it back."""
    first, _, _ = entry.value.partition(b"\n")
    return b"\n".join([first, b"%d" % record.token, documents.describe_revocation(record.owner, by, reason)])


def unchanged(key: str, entry: Entry | None) -> dict[str, Any]:
    """The operation that refuses a transaction unless *key* is still as it was seen."""
    if entry is None:
        return {"Verb": "check-not-exists", "Key": key}
    return {"Verb": "check-index", "Key": key, "Index": entry.index}


def lock(key: str, value: bytes, flags: int, session: str) -> dict[str, Any]:
    """The operation that takes a key that nobody has."""
    return {"Verb": "lock", "Key": key, "Value": encoded(value), "Flags": flags, "Session": session}


def written(key: str, value: bytes) -> dict[str, Any]:
    """The operation that writes a key."""
    return {"Verb": "set", "Key": key, "Value": encoded(value), "Flags": 0}


def counter_keys(prefix: str, name: str) -> tuple[str, str]:
    """The keys of a :class:`Counter`: its own, and that of the floor. No key of another lock begins with them."""
    return f"{prefix}{COUNTERS}{name}/last", prefix + FLOOR


def read_counter(prefix: str, name: str, found: list[Entry]) -> Counter:
    """The counter of a lock, in the entries that were found of its keys."""
    there = {entry.key: entry for entry in found}
    key, floor_key = counter_keys(prefix, name)
    return Counter(key, there.get(key), floor_key, there.get(floor_key))


def read_token(entry: Entry | None) -> int:
    """The token in a key; 0 for anything else."""
    digits = b"" if entry is None else entry.value
    token = int(digits) if digits.isdigit() and len(digits) < 20 else 0
    return token if token <= LARGEST_TOKEN else 0


def encoded(value: bytes) -> str:
    """A value as Consul's JSON has it."""
    return binascii.b2a_base64(value, newline=False).decode()


def queue_of(prefix: str, name: str) -> str:
    """What the keys of those who wait for a lock begin with."""
    return f"{prefix}{QUEUE}{name}/"


def is_session(text: object) -> bool:
    """Whether this can be the id of a session."""
    return isinstance(text, str) and len(text) <= LONGEST and text.isascii() and text.replace("-", "").isalnum()


def quoted(text: str) -> str:
    """*text* for the path or the query of a URL, with its slashes."""
    if UNRESERVED.issuperset(text):
        return text
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if chr(byte) in UNRESERVED else f"%{byte:02X}" for byte in data)
