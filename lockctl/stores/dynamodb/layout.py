"""Items of a table: those of locks are what the lock client of AWS (``AmazonDynamoDBLockClient``) writes and reads.

It has ``recordVersionNumber``, new at each write, ``leaseDuration`` in milliseconds, ``ownerName``, and ``isReleased``
when nobody holds the lock. A record whose version stood still for the length of its lease may be taken.
Ours has the document of the lock in ``lockctl``, which counts while ``lockctlVersion`` is the version of the record.
"""

from __future__ import annotations

import binascii

from lockctl.locks.driver import Seen
from lockctl.locks.lock_cells import LOCK
from lockctl.locks.machine import Lock
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Item = dict[str, Any]

OTHERS = "#"  # what keys of items begin with that are no locks: no name has it
DATA, DATA_VERSION = "lockctl", "lockctlVersion"
VERSION, LEASE, OWNER, RELEASED = "recordVersionNumber", "leaseDuration", "ownerName", "isReleased"
# of another program's record: the version that was there, and since when by the server's clock
SEEN, SEEN_AT = "lockctlSeen", "lockctlSeenAt"


class Version(Value):
    """What a condition compares, and whether the record of another program was noted as it is."""

    number: str | None
    released: bool
    noted: bool


def item_key(key: str) -> str:
    """The key of the item of a cell: of a lock, prefix and name alone."""
    return key[len(LOCK) :] if key.startswith(LOCK) else OTHERS + key


def cell_key(key: str) -> str:
    """The other way round."""
    return key[len(OTHERS) :] if key.startswith(OTHERS) else LOCK + key


def read(item: Item, at: float, clock_error: float) -> Seen:
    """What is in a cell."""
    number, owner = text(item, VERSION), text(item, OWNER)
    noted = number is not None and text(item, SEEN) == number
    version = Version(number, RELEASED in item, noted)
    document = text(item, DATA, "B")
    data = None if document is None else binascii.a2b_base64(document)
    if number is not None and text(item, DATA_VERSION) == number:
        return Seen(data, version, at)
    lease, since = _number(text(item, LEASE)), _number(text(item, SEEN_AT, "N"))
    ended = noted and lease is not None and since is not None and at - since >= lease / 1000 + clock_error
    if RELEASED in item or ended:
        return Seen(data, version, at)  # what it has left of ours
    return Seen(f"another program: {printable(owner or '')}".encode(), version, at)


def written(data: bytes, number: str, at: float, clock_error: float) -> tuple[Item, bool]:
    """The attributes of a cell with *data* and a new version, and whether somebody has the lock that it is of."""
    item: Item = {
        DATA: {"B": binascii.b2a_base64(data, newline=False).decode()},
        VERSION: {"S": number},
        DATA_VERSION: {"S": number},
    }
    lock = Lock.read(data)
    if lock is None:
        return item, True
    lock.expire(at - clock_error)
    holders = list(lock.holders.values())
    until = max([each["until"] for each in holders], default=at)
    item[LEASE] = {"S": str(int((until - at + clock_error) * 1000))}
    item[OWNER] = {"S": str(holders[0].get("host") or "lockctl") if holders else "lockctl"}
    return item, bool(holders)


def text(item: Item, name: str, kind: str = "S") -> str | None:
    """What an attribute of this kind has; ``None``: there is none."""
    attribute = item.get(name)
    content = attribute.get(kind) if isinstance(attribute, dict) else None
    return content if isinstance(content, str) else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text[:20])
    except ValueError:
        return None
