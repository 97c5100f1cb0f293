"""What would break locks in a NATS bucket: copies, storage, limits that remove keys, and our rights."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import Check, Examination
from lockctl.locks.driver import Seen
from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.cell import KEEP_ALL, NatsCells, forgets, is_set, storage
from lockctl.stores.nats.protocol import NO_STREAM, Bucket, Refused
from lockctl.stores.nats.session import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PATIENCE = 5.0  # seconds for one answer
ROOM = 256 * 1024  # bytes of a message that a history may need

BUCKET = Check(
    "nats.bucket",
    "Each lock is a key of one bucket, which lockctl does not make: its copies are a matter of the cluster.",
    "nats kv add {bucket} --history=1 --storage=file --replicas=3",
)
STORAGE = Check(
    "nats.storage",
    "What is kept in memory is lost with a restart: two jobs can hold a lock then.",
    "nats kv del {bucket}; nats kv add {bucket} --history=1 --storage=file --replicas=3",
)
REPLICAS = Check(
    "nats.replicas",
    "With one copy no lock can be acquired or renewed while its server is away.",
    "nats stream edit KV_{bucket} --replicas=3",
)
LIMITS = Check(
    "nats.limits",
    "A key that the server removes by its age or for want of room is a lock that somebody else may get.",
    f"nats stream edit KV_{{bucket}} {KEEP_ALL}",
)
RIGHTS = Check(
    "nats.rights",
    "Without the right to write a lock cannot be acquired.",
    "allow the user to {rights}",
)
LIMITED = ("max_age", "max_bytes", "max_msgs", "max_msg_size")
CHECKS = (BUCKET, STORAGE, REPLICAS, LIMITS, RIGHTS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the bucket of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    address = read_url(url)
    found.where = str(address)
    found.words.update(bucket=address.bucket, rights=address.rights)
    load(address)
    bucket = Bucket(address)
    try:
        settings, _ = bucket.settings(deadline.sooner(PATIENCE))
        found.judge(BUCKET, "it is there")
        _judge(settings, found)
        _judge_rights(NatsCells(bucket), found, deadline)
        found.measure(lambda: bucket.settings(deadline.sooner(PATIENCE))[1])
    except Refused as refused:
        if refused.code != NO_STREAM:
            raise
        found.judge(BUCKET, "it is not there", fails=True)
    finally:
        bucket.close()


def _judge(settings: dict[str, Any], found: Examination) -> None:
    kept_in, survives = storage(settings)
    found.judge(STORAGE, kept_in, fails=not survives)
    replicas = settings.get("num_replicas")
    found.judge(REPLICAS, f"{replicas} of each key", warns=replicas == 1)
    limits = {name: settings[name] for name in LIMITED if is_set(settings, name)}
    shown = ", ".join(f"{name} {most}" for name, most in limits.items()) or "none"
    found.judge(LIMITS, shown, fails=bool(forgets(settings)), warns=limits.get("max_msg_size", ROOM) < ROOM)


def _judge_rights(cells: NatsCells, found: Examination, deadline: Deadline) -> None:
    """Write what cannot be written: its condition names a message that there will never be."""
    try:
        cells.write("doctor", Seen(b"", (1 << 53) - 1, 0.0), b"", deadline.sooner(PATIENCE))
    except ConfigError as refused:
        found.judge(RIGHTS, str(refused), fails=True)
    else:
        found.judge(RIGHTS, "it may be written")
