r"""What is written in the file of a mark: the same mark in two slots.

A slot is one page: a line of fixed width, the mark as ``DOMAIN;TOKEN`` (nothing, if it was removed), filled up with
blanks, so that ``cat`` shows it and a write never moves the end of the file::

    lockctl-fence1 SEQUENCE LENGTH CHECKSUM\nDOMAIN;TOKEN          \n

A step writes one slot, has it reach the disk, and then does the same with the other. So at any moment one of the two
is whole and has the last mark that was acknowledged, or a later one: neither a write that is cut off nor the
damage of either slot can lower it. Two slots that differ say that a step was cut off, and the newer one counts.
"""

from __future__ import annotations

import os

from lockctl.errors import UsageError
from lockctl.fence.mark import Mark, parse_mark
from lockctl.names import remainder
from lockctl.stores.file.layout import write_at
from lockctl.value import Value

MAGIC = b"lockctl-fence1 "
SLOT = 4096  # bytes: one page, so that a slot is written by one block write
SIZE = 2 * SLOT


class State(Value):
    """The mark of a resource (``None``: it has none), and how often it was written before."""

    sequence: int
    mark: Mark | None


class Slots(Value):
    """Both slots as they were read; ``None`` is one that is not whole."""

    first: State | None
    second: State | None

    @property
    def newest(self) -> State | None:
        """The state that counts; ``None`` if what is there is not to be believed."""
        if self.first is None or self.second is None:
            return self.first or self.second
        if self.first.sequence == self.second.sequence:
            return self.first if self.first == self.second else None
        return max(self.first, self.second, key=lambda state: state.sequence)

    @property
    def settled(self) -> bool:
        """Whether the last step was finished: then its mark is on the disk, too."""
        return self.first is not None and self.first == self.second


def empty() -> bytes:
    """The content of the file of a resource that has no mark yet."""
    return 2 * _encode(State(0, None))


def read(descriptor: int) -> Slots:
    """What is written there. A writer at the same moment never hides the last mark that was acknowledged."""
    data = os.pread(descriptor, SIZE, 0)
    return Slots(_decode(data[:SLOT]), _decode(data[SLOT:]))


def write(descriptor: int, before: Slots, mark: Mark | None) -> None:
    """Replace what was read as *before*; on the disk when this returns. Raises ``OSError``, ``UsageError``."""
    newest = before.newest
    data = _encode(State(0 if newest is None else newest.sequence + 1, mark))
    spare = 1 if newest is not None and before.first == newest else 0  # the slot whose loss loses nothing
    for number in (spare, 1 - spare):
        write_at(descriptor, data, number * SLOT)
        os.fdatasync(descriptor)


def _encode(state: State) -> bytes:
    body = b""
    if state.mark is not None:
        try:
            body = str(parse_mark(str(state.mark))).encode()
        except ValueError as wrong:
            raise UsageError(str(wrong)) from None
    head = b"%020d %05d " % (state.sequence, len(body))
    return (MAGIC + head + b"%08x\n" % remainder(head + body) + body).ljust(SLOT - 1) + b"\n"


def _decode(slot: bytes) -> State | None:
    line, newline, rest = slot.partition(b"\n")
    fields = line[len(MAGIC) :].split(b" ")
    plain = len(fields) == 3 and fields[0].isdigit() and len(fields[0]) == 20 and fields[1].isdigit()
    if not newline or not line.startswith(MAGIC) or not plain or len(slot) != SLOT:
        return None
    body = rest[: int(fields[1])] if len(fields[1]) == 5 else b""
    head = line[len(MAGIC) : -len(fields[2])] if fields[2] else b""
    if b"%08x" % remainder(head + body) != fields[2]:
        return None
    try:
        return State(int(fields[0]), parse_mark(body.decode()) if body else None)
    except ValueError:
        return None
