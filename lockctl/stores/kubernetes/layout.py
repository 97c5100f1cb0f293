"""Lease objects: those of locks are what client-go's leader election writes and reads.

Their ``spec`` has ``holderIdentity``, ``leaseDurationSeconds``, ``renewTime`` and ``leaseTransitions``. A record that
stood still for the length of its lease may be taken. The document of a cell is in an annotation; that of a lock counts
while the record is the one that was written with it.
"""

from __future__ import annotations

import time

from lockctl import json_text
from lockctl.errors import ConfigError
from lockctl.locks.driver import Seen
from lockctl.locks.lock_cells import LOCK
from lockctl.locks.machine import Lock
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = dict[str, Any]

OURS = "lockctl--"  # what names begin with that are not those of locks, or of locks whose names no object may have
KEY, DATA, RECORD, OBSERVED = "lockctl/key", "lockctl/data", "lockctl/record", "lockctl/observed"
KIND = "lockctl/kind"  # a label of what is no lock
FIELDS = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions")
TENURE = ("holderIdentity", "acquireTime", "leaseTransitions")  # those of them that a renewal leaves as they are
KINDS = ("lock", "past", "floor", "domain", "mark")
LONGEST_PREFIX = 120  # characters
LONGEST = 200  # characters of a name that is like its key
SHOWN = 60  # characters of a key in another name
LONGEST_LEASE = (1 << 31) - 1  # seconds
TEXT, BASE85 = "=", "~"  # what annotations begin with: as it is, or in an alphabet of 85


class Version(Value):
    """What a change is conditional on, the object that it is made to, and whether another's record was noted."""

    number: str
    object: Object
    noted: bool


def prefix(path: str) -> str:
    """What keys begin with for the path of a URL; raises ``ConfigError``."""
    found = path.removeprefix("/")
    if len(found) > LONGEST_PREFIX:
        raise ConfigError(f"kubernetes: a prefix has at most {LONGEST_PREFIX} characters")
    return found if not found or found.endswith("/") else found + "/"


def object_name(key: str) -> str:
    """The name of the object of a cell: of a lock, prefix and name with a dot for each slash, where that is a name."""
    kind, _, rest = key.partition(":")
    if kind not in KINDS:
        kind = "cell"
    elif _is_plain(rest) and len(rest) <= LONGEST:
        if kind != "lock":
            return f"{OURS}{kind}.{rest.replace('/', '.')}"
        if not rest.startswith(OURS):
            return rest.replace("/", ".")
    from hashlib import sha256

    shown = "".join(c if c in _LETTERS else "-" for c in rest[:SHOWN].lower()).strip("-")
    return f"{OURS}{kind}--{shown}-{sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"


def cell_key(found: Object) -> str | None:
    """The key of the cell that an object is; ``None``: it is none."""
    name, written = found["metadata"]["name"], _annotations(found).get(KEY)
    if isinstance(written, str):
        key = _decoded(written).decode("utf-8", "surrogateescape")
        return key if object_name(key) == name else None
    key = LOCK + name.replace(".", "/")
    return None if name.startswith(OURS) else key


def is_object(found: object) -> bool:
    """Whether this is an object as an API server has it; in a list it has no ``kind``."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(metadata, dict):
        return False
    maps = [found.get("spec"), metadata.get("labels"), metadata.get("annotations")]
    texts = [metadata.get("name"), metadata.get("resourceVersion")]
    if not all(isinstance(each or {}, dict) for each in maps):
        return False
    return all(isinstance(each, str) for each in (*texts, *(maps[2] or {}).values()))


def objects(content: Object) -> list[Object] | None:
    """Those of a list; ``None``: it is none."""
    items = content.get("items") or []
    is_list = content.get("kind") == "LeaseList" and isinstance(content.get("metadata") or {}, dict)
    return items if is_list and isinstance(items, list) and all(map(is_object, items)) else None


def read(found: Object, at: float, clock_error: float) -> Seen:
    """What is in a cell."""
    notes, spec = _annotations(found), found.get("spec") or {}
    record, owner = _record(spec), spec.get("holderIdentity")
    since = _since(notes.get(OBSERVED), record)
    version = Version(found["metadata"]["resourceVersion"], found, since is not None)
    document = notes.get(DATA)
    data = None if document is None else _decoded(document)
    if notes.get(RECORD) == record or not owner:
        # without a holder it is free, whoever has written that
        return Seen(data, version, at)
    lease = spec.get("leaseDurationSeconds")
    if since is not None and isinstance(lease, int) and at - since >= lease + clock_error:
        return Seen(data, version, at)  # what it has left of ours
    tenure = json_text.render([spec.get(name) for name in TENURE])
    return Seen(f"another program: {tenure}".encode(), version, at)


def written(key: str, before: Object | None, data: bytes, at: float, clock_error: float) -> Object:
    """The object of a cell with *data*; what others have put into it stays there."""
    made = _copy(before, key)
    notes, spec = made["metadata"]["annotations"], made["spec"]
    notes[DATA] = _encoded(data)
    notes.pop(OBSERVED, None)
    kind = key.partition(":")[0]
    if kind != "lock":
        made["metadata"].setdefault("labels", {})[KIND] = kind if kind in KINDS else "cell"
    else:
        lock = Lock.read(data) or Lock()
        lock.expire(at - clock_error)
        _hold(spec, list(lock.holders.values()), at, clock_error)
    notes[RECORD] = _record(spec)
    return made


def observed(seen: Seen) -> Object:
    """The object with the note that its record was there at that time."""
    assert isinstance(seen.version, Version)
    made = _copy(seen.version.object, None)
    made["metadata"]["annotations"][OBSERVED] = json_text.render([int(seen.at), _record(made["spec"])])
    return made


def _hold(spec: Object, holders: list[Object], at: float, clock_error: float) -> None:
    """Say in the record who has the lock, as leader election says it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(at))
    if not holders:
        spec.pop("holderIdentity", None)
        spec["leaseDurationSeconds"] = 1
        return
    owner = f"{holders[0].get('host') or 'lockctl'}_{holders[0]['owner']}"
    if spec.get("holderIdentity") != owner:
        moves = spec.get("leaseTransitions")
        spec["leaseTransitions"] = (moves if isinstance(moves, int) else 0) + 1
        spec["acquireTime"] = now
    until = max(each["until"] for each in holders)
    spec.update(holderIdentity=owner, renewTime=now)
    spec["leaseDurationSeconds"] = min(max(int(until - at + clock_error) + 1, 1), LONGEST_LEASE)


def _copy(before: Object | None, key: str | None) -> Object:
    before = before or {}
    metadata: Object = dict(before.get("metadata") or {})
    notes = dict(metadata.get("annotations") or {})
    if key is not None:
        metadata["name"] = object_name(key)
        notes[KEY] = _encoded(key.encode("utf-8", "surrogateescape"))
    metadata["annotations"] = notes
    metadata["labels"] = dict(metadata.get("labels") or {})
    metadata.pop("managedFields", None)
    spec = dict(before.get("spec") or {})
    return {**before, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _record(spec: Object) -> str:
    return json_text.render([spec.get(name) for name in FIELDS])


def _since(note: object, record: str) -> float | None:
    """When another program's record was first seen as it is."""
    try:
        at, noted = json_text.parse(note.encode()) if isinstance(note, str) else (None, None)
    except (ValueError, TypeError):
        return None
    return float(at) if noted == record and isinstance(at, int) else None


def _annotations(found: Object) -> Object:
    return found["metadata"].get("annotations") or {}


def _encoded(data: bytes) -> str:
    """As an annotation, which is text: all of one object have 256 KiB together."""
    try:
        return TEXT + data.decode("utf-8")
    except UnicodeDecodeError:
        from base64 import b85encode

        return BASE85 + b85encode(data).decode()


def _decoded(text: str) -> bytes:
    if text.startswith(BASE85):
        from base64 import b85decode

        try:
            return b85decode(text[1:])
        except ValueError:
            return text.encode()
    return text.removeprefix(TEXT).encode("utf-8", "replace")


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def _is_plain(text: str) -> bool:
    """Whether each part between slashes is a label of DNS."""
    return all(
        part and _LETTERS.issuperset(part) and part[0] != "-" and part[-1] != "-" and len(part) <= 63
        for part in text.split("/")
    )
