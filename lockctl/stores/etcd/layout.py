"""How etcd's JSON gateway writes keys, numbers and requests, and where in the key space a lock is.

The layout is that of ``etcdctl lock`` and of Go's ``concurrency.Mutex``: everybody who wants the lock has
a key ``<lock>/<lease in hex>`` attached to a lease of its own, and the one that was created first has it.
Readers and semaphores have a group of their own below the lock, ``<lock>/shared/`` and ``<lock>/slots-<N>/``: so a
transaction can tell them from all others by their keys, which, unlike values, nobody can change afterwards.

In answers every field that has its zero value is left out, and 64-bit numbers are strings. What is read
here may have been written by anybody: what is not as it should be counts as absent.
"""

from __future__ import annotations

import binascii

from lockctl.clock import wall
from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE, SHARED
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEEP_ALIVE = "/v3/lease/keepalive"
LARGEST_LEASE = 9223372036854775783  # a prime below 2**63: etcd's ids of leases are positive int64
LONGEST_NUMBER = 20  # digits of 2**64
# below the prefix, where no lock can be: no lock's name begins with a dot
REVOCATIONS, HISTORY, SUCCESSES, TOKENS = ".revoke/", ".history/", ".success/", ".token/"
READERS = b"shared/"  # below a lock


class Entry(Value):
    """One key as it is stored."""

    key: bytes
    value: bytes
    created: int  # the revision in which the key came to be; constant until it is deleted
    lease: int  # 0: attached to none


class Layout(Value):
    """Where locks are kept: everything is below *prefix*."""

    prefix: str

    def lock(self, name: str) -> str:
        """What another tool must be given: ``etcdctl lock`` and ``NewMutex`` put a slash and a lease behind it."""
        return self.prefix + name

    def directory(self, name: str) -> bytes:
        """What all keys of a lock begin with."""
        return as_bytes(self.prefix + name + "/")

    def claim_key(self, name: str, lease: int, group: bytes = b"") -> bytes:
        """The key of one who holds the lock or waits for it, in the *group* of its kind."""
        return self.directory(name) + group + b"%x" % lease

    def revocation(self, name: str, claim_key: bytes) -> bytes:
        """The key of a request to the holder with that key to give the lock back."""
        return as_bytes(f"{self.prefix}{REVOCATIONS}{name}/") + claim_key.rpartition(b"/")[2]

    def records(self, name: str) -> bytes:
        """What all keys of the runs of a lock begin with."""
        return as_bytes(f"{self.prefix}{HISTORY}{name}/")

    def history(self, name: str, *, started: bool) -> bytes:
        """The same, of those that started or of those that did not."""
        return self.records(name) + (b"started/" if started else b"refused/")

    def success(self, name: str) -> bytes:
        """The key of the last success under a lock."""
        return as_bytes(f"{self.prefix}{SUCCESSES}{name}")

    def counter(self, name: str) -> bytes:
        """The key of the last token of a lock."""
        return as_bytes(f"{self.prefix}{TOKENS}{name}")


def as_bytes(text: str) -> bytes:
    """A key or value as etcd stores it."""
    return text.encode("utf-8", "surrogateescape")


def lease_id(owner: str, attempt: int) -> int:
    """The lease of an owner: known beforehand, so that it is found again after a lost answer.

    What was given back may still be on its way to the server, so the next *attempt* of an owner has another.
    """
    return (int.from_bytes(owner.encode("utf-8", "replace"), "big") + attempt) % LARGEST_LEASE + 1


def group(mode: str, slots: int) -> bytes:
    """Where below a lock the keys of a kind of holder are; of a foreign one's nothing is known but that it is alone."""
    return b"" if mode == EXCLUSIVE else READERS if mode == SHARED else b"slots-%d/" % slots


def coded(data: bytes) -> str:
    """Bytes as JSON carries them."""
    return binascii.b2a_base64(data, newline=False).decode()


def decoded(content: object) -> bytes:
    """The bytes of a field."""
    try:
        return binascii.a2b_base64(content) if isinstance(content, str) else b""
    except (binascii.Error, ValueError):
        return b""


def whole(content: object) -> int:
    """The number of a field."""
    if isinstance(content, str) and len(content) <= LONGEST_NUMBER and content.isascii():
        sign, digits = (-1, content[1:]) if content[:1] == "-" else (1, content)
        return sign * int(digits) if digits.isdigit() else 0
    return content if isinstance(content, int) and not isinstance(content, bool) else 0


def after(beginning: bytes) -> bytes:
    """The end of the range of all keys that begin so, as etcd wants it."""
    stem = beginning.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


def is_free(directory: bytes) -> dict[str, Any]:
    """The condition that no key begins so."""
    return {**below(directory), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def is_not_older(directory: bytes, revision: int) -> dict[str, Any]:
    """The condition that no key that begins so was created before *revision*."""
    return {**below(directory), "target": "CREATE", "result": "GREATER", "create_revision": str(revision - 1)}


def is_unchanged_since(among: dict[str, Any], revision: int) -> dict[str, Any]:
    """The condition that no key of a range was written after *revision*."""
    return {**among, "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_created_at(key: bytes, revision: int | None) -> dict[str, Any]:
    """The condition that a key is the one that was created at *revision*; 0: that there is none, ``None``: any one."""
    result = "GREATER" if revision is None else "EQUAL"
    return {"key": coded(key), "target": "CREATE", "result": result, "create_revision": str(revision or 0)}


def has_value(key: bytes, value: bytes) -> dict[str, Any]:
    """The condition that a key has this value."""
    return {"key": coded(key), "target": "VALUE", "result": "EQUAL", "value": coded(value)}


def put(key: bytes, value: bytes, lease: int) -> dict[str, Any]:
    """Write a key, which ends with *lease*, and no more with the one that it had."""
    return {"request_put": {"key": coded(key), "value": coded(value), "lease": str(lease)}}


def delete(key: bytes) -> dict[str, Any]:
    """Delete one key."""
    return {"request_delete_range": {"key": coded(key)}}


def get(key: bytes) -> dict[str, Any]:
    """Read one key."""
    return {"request_range": {"key": coded(key)}}


def newest(directory: bytes, limit: int) -> dict[str, Any]:
    """Read the youngest keys that begin so, the youngest first."""
    order = {"sort_target": "CREATE", "sort_order": "DESCEND", "limit": str(limit)}
    return {"request_range": {**below(directory), **order}}


def oldest(among: dict[str, Any], limit: int) -> dict[str, Any]:
    """Read the oldest keys of a range, the oldest first, without their values."""
    order = {"sort_target": "CREATE", "sort_order": "ASCEND", "limit": str(limit), "keys_only": True}
    return {"request_range": {**among, **order}}


def get_in_order(directory: bytes, limit: int) -> dict[str, Any]:
    """Read the keys that begin so, the oldest first."""
    return {"request_range": in_order(below(directory), limit)}


def in_order(among: dict[str, Any], limit: int) -> dict[str, Any]:
    """The oldest keys of a range, the oldest first; a request for ``/v3/kv/range``."""
    return {**among, "sort_target": "CREATE", "sort_order": "ASCEND", "limit": str(limit)}


def newest_before(among: dict[str, Any], revision: int, limit: int = 1) -> dict[str, Any]:
    """The youngest keys of a range that are older than *revision*, in that order; a request for ``/v3/kv/range``."""
    order = {"sort_target": "CREATE", "sort_order": "DESCEND", "limit": str(limit), "keys_only": True}
    return {**among, **order, "max_create_revision": str(revision - 1)}


def ends_of(among: dict[str, Any]) -> dict[str, Any]:
    """Watch the keys of a range until they are deleted."""
    return {**among, "filters": ["NOPUT"]}


def only(key: bytes) -> dict[str, Any]:
    """The range that is one key."""
    return {"key": coded(key)}


def below(beginning: bytes) -> dict[str, Any]:
    """The range of all keys that begin so."""
    return {"key": coded(beginning), "range_end": coded(after(beginning))}


def entries(answer: object) -> list[Entry]:
    """The keys of one answer to a read."""
    found = []
    listed = answer.get("kvs") if isinstance(answer, dict) else None
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict):
            value, lease = decoded(item.get("value")), whole(item.get("lease"))
            found.append(Entry(decoded(item.get("key")), value, whole(item.get("create_revision")), lease))
    return found


def reads(answer: dict[str, Any]) -> list[list[Entry]]:
    """The keys of each step of a transaction; none for one that did not read."""
    steps = answer.get("responses")
    return [
        entries(step.get("response_range")) if isinstance(step, dict) else []
        for step in (steps if isinstance(steps, list) else ())
    ]


def steps(answer: dict[str, Any], count: int) -> list[list[Entry]]:
    """As :func:`reads`, of exactly so many steps; raises ``BackendUnavailable``."""
    found = reads(answer)
    if len(found) != count:
        raise BackendUnavailable("etcd: an answer without what was asked for")
    return found


def revision(answer: dict[str, Any]) -> int:
    """The revision of the store that an answer is about."""
    return whole(answer["header"].get("revision"))


def moment(answer: dict[str, Any]) -> float:
    """When the member gave an answer, by its clock if it said so, in seconds since the epoch."""
    date: float | None = answer["date"]
    return wall() if date is None else date


def term(answer: dict[str, Any]) -> int:
    """The term of the leader that an answer comes from, as far as the member that gave it knew."""
    return whole(answer["header"].get("raft_term"))
