"""Readers and slots in the queue of a lock. Names alone tell them apart, so one list of children is enough to judge.

Names of readers end in kazoo's ``__rlock__<number>`` or Curator's ``-__READ__<number>``, or in ``-read-lock-<number>``,
which Curator's InterProcessMutex takes for one of its own. One of N slots has ``slots<N>`` before the ending of an
exclusive contender, and is one to all other tools.

Everybody is served in the order of the queue: a contender holds the lock when all before it are of its kind, and
fewer than may be inside together.
"""

from __future__ import annotations

from itertools import takewhile

from lockctl import documents
from lockctl.model import SHARED, Claim
from lockctl.stores.zookeeper.queue import ENDINGS

READERS = 0  # the kind of those who may be inside in any number; else a kind is how many may be
ALONE = 1
MOST_DIGITS = 6  # of a number of slots
READING = tuple(reading for _, reading in ENDINGS.values())
WRITING = tuple(writing for writing, _ in ENDINGS.values())


def kind(name: str) -> int:
    """How many such contenders may be inside together, by the name of one's node."""
    stem = name.rstrip("0123456789")
    if stem.endswith(("__-", "--")):  # before a negative number
        stem = stem[:-1]
    if stem.endswith(READING):
        return READERS
    for ending in WRITING:
        if stem.endswith(ending):
            before, marker, digits = stem[: -len(ending)].rpartition("slots")
            plain = digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS
            if marker and before.endswith(("_", "-")) and plain:
                return int(digits) or ALONE
    return ALONE


def kind_of(claim: Claim) -> int:
    """The kind of a claim's own node."""
    return READERS if claim.mode == SHARED else claim.slots


def admits(ahead: list[str], claim: Claim) -> bool:
    """Whether *claim* holds the lock with these before it."""
    own = kind_of(claim)
    return (own == READERS or len(ahead) < own) and all(kind(name) == own for name in ahead)


def holders(line: list[str]) -> list[str]:
    """Those of a queue who hold the lock."""
    if not line:
        return []
    first = kind(line[0])
    together = list(takewhile(lambda name: kind(name) == first, line))
    return together if first == READERS else together[:first]


def last_of_others(ahead: list[str], claim: Claim) -> str | None:
    """The last contender of another kind before *claim*: until it has gone, nothing changes for the claim."""
    own = kind_of(claim)
    return next((name for name in reversed(ahead) if kind(name) != own), None)


def check_agrees(key: str, first: str, data: bytes | None, claim: Claim) -> None:
    """Raise ``ConfigError`` if the holder whose node is *first* has another number of slots than *claim*.

    *data* is that of its node; it decides only where the name may be another tool's.
    """
    theirs = max(kind(first), ALONE)
    # who knows no slots cannot disagree
    if theirs != ALONE or claim.slots == ALONE or documents.read((data or b"").partition(b"\n")[0]) is not None:
        documents.check_agrees(key, theirs, claim)
