"""The children of a lock's node: their names in the layout of other tools, their order, and requests in their data.

Whoever's sequence number is lowest holds the lock. kazoo writes ``<uuid>__lock__<number>``, Curator (and
Go clients) ``_c_<uuid>-lock-<number>``. Every child that ends in such a number counts, in every layout: of a
stranger's lock it is better to wait for too many than for too few. What names say about readers and slots is
in :mod:`lockctl.stores.zookeeper.share`.

The data of a child is the document of the holder or waiter on the first line. Who wants the lock back adds a
second line (:func:`with_revocation`): it is gone with the node, and can hit nobody else.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.model import EXCLUSIVE, SHARED, SLOT

DIGITS = 10  # of a sequence number, as "%010d" writes it
TURN = 1 << 32  # the counter of a parent node is an int32
HALF = 1 << 30  # no queue is that long: numbers that are further apart have the turn of the counter between them
BY_CURATOR = b"__REVOKE__"  # what Curator\'s Revoker writes into the node of a holder


class Vanished(Exception):
    """Our node, or what is above it, is not there any more."""


class Overtaken(Vanished):
    """Somebody else was granted the lock, or a part of it: what is known of it is to be read again."""


ENDINGS = {  # of a layout: what stands before the number of who is alone or has a slot, and of a reader
    "kazoo": ("__lock__", "__rlock__"),
    "curator": ("-lock-", "-read-lock-"),  # InterProcessMutex looks for what follows the last "lock-"
    "curator-rw": ("-__WRIT__", "-__READ__"),
}


def prefix(unique: str, layout: str, mode: str = EXCLUSIVE, slots: int = 1) -> str:
    """The name of a contender's node without its number; *unique* are 32 hexadecimal digits."""
    writing, reading = ENDINGS[layout]
    joint = "_"  # Go clients take what follows the last "-" or "__"
    if layout != "kazoo":
        parts = (unique[:8], unique[8:12], unique[12:16], unique[16:20], unique[20:])
        unique, joint = f"_c_{'-'.join(parts)}", "-"
    if mode == SLOT:
        unique += f"{joint}slots{slots}"
    return unique + (reading if mode == SHARED else writing)


def number(name: str) -> int | None:
    """The sequence number of a contender; ``None``: the node has nothing to do with the queue."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if stem.endswith("-") and (stem.endswith(("__-", "--")) or stem == "-") and len(digits) >= DIGITS - 1:
        return -int(digits[-DIGITS:])
    if len(digits) < DIGITS or not name.isascii():
        return None
    return int(digits[-DIGITS:])


def in_order(names: list[str]) -> list[str]:
    """The contenders among the children of a lock, the holder first."""
    numbered = [(position, name) for name in names if (position := number(name)) is not None]
    if any(position < 0 for position, _ in numbered) and any(position > HALF for position, _ in numbered):
        numbered = [(position + TURN if position < 0 else position, name) for position, name in numbered]
    return [name for _, name in sorted(numbered)]


def mine(queue: list[str], stem: str) -> str | None:
    """The first node of the contender with this prefix."""
    for name in queue:
        if name.startswith(stem):
            return name
    return None


def with_revocation(data: bytes, owner: str, by: str, reason: str) -> bytes:
    """The data of a holder's node with a request to give the lock back."""
    return data.partition(b"\n")[0] + b"\n" + documents.describe_revocation(owner, by, reason)


def revocation(data: bytes, owner: str) -> tuple[str, str] | None:
    """Who wants the lock back from *owner*, and why; ``None``: nobody."""
    if data == BY_CURATOR:
        return "a Curator client", ""
    return documents.read_revocation(data.partition(b"\n")[2], owner)
