r"""What is written in a lock file: two pages, the newer one with a valid checksum counts.

A page is one line of fixed width and a JSON document, filled up with blanks, so that ``cat`` shows it
and a write never moves the end of the file::

    lockctl1 SEQUENCE TOKEN LENGTH CHECKSUM\n{"owner": ...}          \n

Writes alternate between the pages: a torn one leaves the other, and with it the token, intact.

At its end may stand up to which token the grants of this boot need not reach the disk, for which a grant waits longer
than for all else; first with ``reserving``, until that has reached the disk. Another boot goes on above it::

    reserved LAST-TOKEN BOOT-ID CHECKSUM\n

Holders that are not alone have one more page each, of the same form, behind the two (see ``share``).
"""

from __future__ import annotations

import os
import stat

from lockctl import documents
from lockctl.errors import ConfigError
from lockctl.names import printable, remainder
from lockctl.stores.file import address
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim

    Identity = dict[str, int | float | str | None]

MAGIC = b"lockctl1 "
PAGE = 4096  # bytes: what is written by one block write
SIZE = 2 * PAGE
HEAD = len(b"lockctl1 00000000000000000000 00000000000000000000 00000 00000000\n")
RESERVING, RESERVED = b"reserving", b"reserved "
BOOT_ID = len("00000000-0000-0000-0000-000000000000")
TAIL = len(b"reserved  00000000000000000000  00000000") + BOOT_ID
ROOM = PAGE - HEAD - TAIL - 1  # bytes for the JSON document
AHEAD = 60_000_000  # microseconds: so far ahead of a token others are reserved, and tokens may be ahead of the clock
AT_ONCE = 1000  # microseconds: tokens of grants at the same time are no further ahead of the clock
ENDED = b'"ended_at":'  # in the document of a hold; in no other, for JSON escapes the quotes of a command
SHARING = b'{"sharing":'  # how the document begins while holders that are not alone have pages of their own


class Record(Value):
    """One state of a lock: *token* is the last that may have been granted, *document* says who holds it, if anybody."""

    sequence: int
    token: int
    document: bytes
    reserved: int = 0  # up to this token grants need not reach the disk
    written: int = 0  # the token of the document, as it was read

    @property
    def holder(self) -> dict[str, Any] | None:
        """The holder as written, or ``None`` when the lock was released."""
        return documents.read(self.document)


NEVER_HELD = Record(0, 0, b"null")


class NotARecord(Exception):
    """The file has content that lockctl did not write."""


def read(descriptor: int) -> Record | None:
    """The newest valid record; ``None`` for a file that never had one. Raises ``NotARecord``."""
    data = os.pread(descriptor, SIZE, 0)
    pages = (data[:PAGE], data[PAGE:])
    best: Record | None = None
    granted = 0  # up to this token in another boot, perhaps; the page that says so may be torn
    for page in pages:
        found, (reserved, boot, counts) = _parse(page), _reserved(page)
        if boot != boot_id():
            granted, reserved = max(granted, reserved), 0
        if found is not None and (best is None or found.sequence > best.sequence):
            best = Record(found.sequence, found.token, found.document, reserved if counts else 0, found.token)
    if granted > (best or NEVER_HELD).token:
        best = replace(best or NEVER_HELD, token=granted)
    torn_first_write = MAGIC.startswith(data.removeprefix(bytes(PAGE)))
    ours = torn_first_write or any(page.startswith(MAGIC) for page in pages)
    if best is None and data.strip(b"\0") and not ours:
        raise NotARecord
    return best


def read_ours(descriptor: int, key: str) -> Record:
    """The newest valid record, or one of a lock that was never held; raises ``ConfigError`` for what is not ours."""
    try:
        return read(descriptor) or NEVER_HELD
    except NotARecord:
        message = f"file: {printable(key)} has content that is not lockctl's: refusing to write over it"
        raise ConfigError(message) from None


def first_after(before: Record, key: str, now: int) -> int:
    """The token of the next grant: above all before it, and not below *now*, the clock in microseconds.

    The file of a lock that was forgotten is new, and begins after all that its directory ever forgot.
    Raises ``OSError``.
    """
    if before.token:
        return max(before.token + 1, now)
    directory = key[: key.rindex("/") + 1]
    try:
        descriptor = os.open(directory + address.FLOOR, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return max(1, now)
    try:
        found, there = os.fstat(descriptor), os.stat(directory)
        # in a sticky directory anybody could have put it there
        if there.st_mode & stat.S_ISVTX and found.st_uid not in (0, there.st_uid):
            return max(1, now)
        return max(read_ours(descriptor, directory + address.FLOOR).token + 1, now)
    finally:
        os.close(descriptor)


def grant(descriptor: int, before: Record, token: int, document: bytes, *, now: int | None) -> None:
    """Write who is granted the lock after *before*: no token up to this one is given again after a loss of power.

    *now* is the clock in microseconds; ``None``: other hosts write to the file, too, and each grant waits for the disk.
    So does one whose token is ahead of the clock: it would be given again if the file system lost what has not reached
    the disk in this boot. Raises ``OSError``.
    """
    reserves = now is not None and token <= now + AT_ONCE and len(boot_id()) == BOOT_ID
    if reserves and token <= before.reserved:
        write(descriptor, Record(before.sequence + 1, token, document, before.reserved), durable=False)
        return
    record = Record(before.sequence + 1, token, document, token + AHEAD if reserves else 0)
    write(descriptor, record, durable=True, word=RESERVING)
    if reserves:
        write(descriptor, record, durable=False)


def write(descriptor: int, record: Record, *, durable: bool, word: bytes = RESERVED) -> None:
    """Write *record* over the older page; *durable*: it has reached the disk when this returns."""
    _put(descriptor, record, (record.sequence % 2) * PAGE, word)
    if durable:
        os.fdatasync(descriptor)


def read_page(descriptor: int, number: int) -> Record | None:
    """What is written on one of the pages behind the first two; ``None`` if nothing, or nothing whole."""
    return _parse(os.pread(descriptor, PAGE, SIZE + number * PAGE))


def write_page(descriptor: int, number: int, record: Record) -> None:
    """Write one of the pages behind the first two; it reaches the disk with the next durable record."""
    _put(descriptor, record, SIZE + number * PAGE)


def _put(descriptor: int, record: Record, offset: int, word: bytes = RESERVED) -> None:
    head = b"%020d %020d %05d " % (record.sequence, record.token, len(record.document))
    line = MAGIC + head + b"%08x\n" % remainder(head + record.document)
    tail = b"%s %020d %s " % (word, record.reserved, boot_id().encode()) if record.reserved else b""
    tail += b"%08x\n" % remainder(tail) if tail else b"\n"
    write_at(descriptor, (line + record.document).ljust(PAGE - len(tail)) + tail, offset)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of *data*. Raises ``OSError``: of a write that was cut short, only the next one says why."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def owned_by(descriptor: int, owner: str, token: int) -> Record | None:
    """The newest record, if it says that this owner holds the lock with this token."""
    try:
        record = read(descriptor)
    except NotARecord:
        return None
    return record if record is not None and is_of(record, owner, token) else None


def is_of(record: Record, owner: str, token: int) -> bool:
    """Whether a record says that this owner has this token, and its job has not ended."""
    document = record.document
    return record.token == token and b'"owner":"%s"' % owner.encode() in document and ENDED not in document


def describe(claim: Claim, extra: Identity) -> bytes:
    """The document of a holder, which fits into a page."""
    return documents.describe(claim, extra, ROOM)


def identity(pid: int) -> Identity:
    """What tells this process from any other."""
    from lockctl.supervise.tree import pid_namespace, start_time

    started = start_time(pid)
    return {"uid": os.geteuid(), "pid_started": started, "pid_ns": pid_namespace(), "boot_id": boot_id()}


def taken(helper: int | None, acquired_at: float) -> Identity:
    """What tells the process that took the lock from other programs'."""
    return {"taken_by": os.getpid(), "helper": helper, "acquired_at": acquired_at}


def boot_id() -> str:
    """Which boot of this host this is; empty: that cannot be known."""
    global _boot_id  # noqa: PLW0603 - it never changes
    if _boot_id is None:
        try:
            with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
                _boot_id = file.read(64).strip().decode()
        except OSError:
            _boot_id = ""
    return _boot_id


_boot_id: str | None = None


def _reserved(page: bytes) -> tuple[int, str, bool]:
    """Up to which token the end of a page reserves, in which boot, and whether that has reached the disk; 0: nothing.

    It has a checksum of its own and lies in one sector of the disk: in a page that is torn it is whole.
    """
    content, checksum = page[-TAIL - 1 : -9], page[-9:]
    fields = content.split()
    if not content.startswith((RESERVED, RESERVING)) or len(fields) != 3 or b"%08x\n" % remainder(content) != checksum:
        return 0, "", False
    return int(fields[1]), fields[2].decode(), content.startswith(RESERVED)


def _parse(page: bytes) -> Record | None:
    if not page.startswith(MAGIC):
        return None
    line, newline, rest = page.partition(b"\n")
    fields = line[len(MAGIC) :].split(b" ")
    if not newline or len(fields) != 4 or not all(field.isdigit() for field in fields[:3]):
        return None
    document = rest[: int(fields[2])]
    head = line[len(MAGIC) : -len(fields[3])]
    if b"%08x" % remainder(head + document) != fields[3]:
        return None
    return Record(int(fields[0]), int(fields[1]), document)
