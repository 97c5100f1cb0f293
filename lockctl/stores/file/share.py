"""Several holders of one lock file: readers, or so many at once. Loaded when a lock is not for one alone.

Each has a shared flock(2), which keeps exclusive holders and ``flock(1)`` out and lets ``flock -s`` in, and one
of the slots: a byte range that the same open file owns (see ``ranges``), and a page of the lock file that says who
it is. The record says what the slots are good for, and has the counter of tokens; it is changed under a mutex.
Only the kernel's locks decide whether a slot is held; what is written on the page of a free one means nothing.
"""

from __future__ import annotations

import fcntl

from lockctl import documents
from lockctl.errors import ConfigError
from lockctl.kernel import unlock
from lockctl.model import SHARED, SLOT, Claim
from lockctl.names import printable
from lockctl.stores.file import address, hold, layout, queue, ranges
from lockctl.stores.file.layout import NotARecord, Record
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline

MOST = 1000  # holders at once: what their pages may take of the disk is 4 MB
NOBODY = Record(0, 0, b"null")


class Sharing(Value):
    """What the slots are good for, as the record says. Those who hold one have a token not below *first*."""

    mode: str
    slots: int
    first: int

    def document(self) -> bytes:
        """For the record; it begins with ``layout.SHARING``."""
        return layout.SHARING + b'"%s","slots":%d,"first":%d}' % (self.mode.encode(), self.slots, self.first)


class Slot(Value):
    """What a holder that is not alone was granted: a slot, its token, and when, in microseconds since the epoch."""

    number: int
    token: int
    at: int


def state(record: Record | None) -> Sharing | None:
    """What a record says about the slots; ``None`` if its last holder was alone, or there was none."""
    if record is None or not record.document.startswith(layout.SHARING):
        return None
    content = documents.an_object(record.document) or {}
    mode = content.get("sharing")
    slots, first = documents.whole(content.get("slots")), documents.whole(content.get("first"))
    if mode not in (SHARED, SLOT) or slots is None or first is None:
        return None
    return Sharing(mode, slots, first) if 0 < slots <= MOST else None


def slots_taken(descriptor: int) -> list[int]:
    """The numbers of the slots that others hold. Takes nothing, and a descriptor for reading is enough."""
    return [start - ranges.SEATS for start in ranges.taken(descriptor, ranges.SEATS, ranges.SEATS + MOST)]


def find(descriptor: int, owner: str | None, token: int | None) -> int | None:
    """The slot that this owner holds with this token."""
    for number in slots_taken(descriptor):
        page = layout.read_page(descriptor, number)
        if owner is not None and page is not None and page.token == token and (page.holder or {}).get("owner") == owner:
            return number
    return None


def turned_away(descriptor: int) -> bool:
    """Whether somebody waits who came first and could not be let in beside a newcomer, or is next in line.

    Those who are stopped do not count: they would keep everybody out for as long as they are.
    """
    if not ranges.is_taken(descriptor, ranges.TURN, ranges.GATE + 1):
        return False
    pids = queue.in_line(descriptor)
    return not pids or not all(map(queue.is_stopped, pids))


def passed_by(descriptor: int, claim: Claim, helper: int) -> bool:
    """Whether a claim that waits by its *helper* could be granted if it did not wait for processes that are stopped."""
    pids = queue.in_line(descriptor)
    stopped = list(filter(queue.is_stopped, pids))
    if not stopped and not queue.is_stopped(helper):
        return False
    return {helper}.issuperset(set(pids).difference(stopped)) and looks_open(descriptor, claim)


def idle(descriptor: int) -> int | None:
    """By its number, the record of a lock that has no holder of a slot and is not kept after a job; else ``None``."""
    try:
        record = layout.read(descriptor)
    except NotARecord:
        return None
    if slots_taken(descriptor) or hold.left(record) > 0:
        return None
    return record.sequence if record else 0


def looks_open(descriptor: int, claim: Claim) -> bool:
    """Whether :func:`enter` may now give an answer other than ``None``. Takes nothing."""
    try:
        sharing = state(layout.read(descriptor))
    except NotARecord:
        return True
    inside = slots_taken(descriptor)
    if not inside or sharing is None or sharing.slots != claim.slots:
        return True
    if sharing.mode != claim.mode:
        return False
    return claim.mode == SHARED or not set(range(claim.slots)).issubset(inside)


def enter(
    descriptor: int, key: str, claim: Claim, wall_us: Callable[[], int], helper: int | None, deadline: Deadline
) -> Slot | None:
    """Take a slot beside the others; ``None`` if there is none for this claim, and nothing is locked then.

    Raises ``ConfigError``, ``BackendUnavailable``, ``RequestInterrupted``, ``OSError``.
    """
    if claim.slots > MOST:
        raise ConfigError(f"file: a lock file has at most {MOST} slots, not {claim.slots}")
    slot = None
    try:
        ranges.tried_until(lambda: ranges.take(descriptor, ranges.MUTEX), key, deadline)
        # under the mutex: a crowd that waits for it does not keep out who wants the lock alone
        if address.try_flock(descriptor, fcntl.LOCK_SH):
            slot = _enter(descriptor, key, claim, wall_us, helper)
        return slot
    finally:
        if slot is None:
            unlock(descriptor)
        else:
            ranges.free(descriptor, ranges.MUTEX)


def _enter(descriptor: int, key: str, claim: Claim, wall_us: Callable[[], int], helper: int | None) -> Slot | None:
    before = layout.read_ours(descriptor, key)
    if hold.left(before) > 0:
        return None
    inside, sharing = slots_taken(descriptor), state(before)
    if inside:
        if sharing is None:
            return None  # another program wrote over the record: those inside will see it, and leave
        documents.check_agrees(key, sharing.slots, claim)
        if sharing.mode != claim.mode:
            return None
    limit = claim.slots if claim.mode == SLOT else MOST
    number = next((each for each in range(limit) if each not in inside and _take(descriptor, each)), None)
    if number is None:
        if claim.mode == SLOT:
            return None
        raise ConfigError(f"file: {printable(key)} has {MOST} readers, and room for no more")
    now = wall_us()
    token = layout.first_after(before, key, now)
    first = sharing.first if inside and sharing is not None else token
    page = layout.describe(claim, layout.identity(claim.pid) | layout.taken(helper, now / 1e6))
    layout.write_page(descriptor, number, Record(0, token, page))
    document = Sharing(claim.mode, claim.slots, first).document()
    layout.write(descriptor, Record(before.sequence + 1, token, document), durable=True)
    return Slot(number, token, now)


def _take(descriptor: int, number: int) -> bool:
    return ranges.take(descriptor, ranges.SEATS + number)


def still_held(descriptor: int, slot: Slot, owner: str) -> bool:
    """Whether the slot is ours, and has been ever since it was granted."""
    if not address.try_flock(descriptor, fcntl.LOCK_SH) or not _take(descriptor, slot.number):
        return False
    try:
        sharing = state(layout.read(descriptor))
    except NotARecord:
        return False
    if sharing is None or sharing.first > slot.token:
        return False  # freed for us, and others have come since
    page = layout.read_page(descriptor, slot.number)
    return page is not None and layout.is_of(page, owner, slot.token)


def leave(descriptor: int, slot: Slot | None, owner: str) -> None:
    """Give back the slot, if it still is ours, and all else that the open file has locked."""
    try:
        if slot is not None and still_held(descriptor, slot, owner):
            layout.write_page(descriptor, slot.number, NOBODY)
    except OSError:
        pass  # the page of a free slot means nothing, whatever is on it
    finally:
        unlock(descriptor)
