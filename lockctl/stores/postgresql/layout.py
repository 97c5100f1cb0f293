"""Where a lock is in a database: the number of its advisory lock, and the tables beside it.

PostgreSQL has two key spaces that do not overlap: one ``bigint``, or a pair of ``int``. A name becomes the
first eight bytes of the SHA-256 of prefix and name, read as a signed big-endian number; the same in SQL::

    ('x' || left(encode(sha256('lockctl:nightly'), 'hex'), 16))::bit(64)::bigint

Who shares a lock by slots needs more keys, one for each slot: the numbers that follow this one, in SQL::

    ('x' || left(encode(sha256('lockctl:nightly#'), 'hex'), 12) || '0000')::bit(64)::bigint

Who waits for a lock holds a ticket, a pair whose first number is that of the lock's queue, in SQL::

    ('x' || left(encode(sha256('lockctl:nightly?'), 'hex'), 8))::bit(32)::int
"""

from __future__ import annotations

import sys

from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHA256 = "_sha2" if sys.version_info >= (3, 12) else "_sha256"  # has it; hashlib takes long to load
BIGINT, PAIR = 1, 2  # how pg_locks.objsubid tells the two key spaces apart
HALF = 1 << 32
MOST_SLOTS = (1 << 16) - 1  # keys that follow the base of slots
# commits wait for the disk whatever is usual here; a stricter setting stays
DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')"
    " IN ('off', 'local') THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true); "
)
# each statement of several sees what was committed before it, and may write, whatever is usual here
FRESH = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE; "
WRITES = FRESH + DURABLE  # for the writes of a session that was not prepared as that of a lock is
NO_TABLE, NO_COLUMN, FORBIDDEN = "42P01", "42703", "42501"
ANY = -1  # in place of the second number of a pair: whatever it is


class Key(Value):
    """One advisory lock, as ``pg_locks`` shows it and as people write it."""

    text: str  # what stands between the parentheses of pg_advisory_lock(): "42", or "1,2"
    classid: int
    objid: int  # ANY: all pairs with this first number
    objsubid: int


def bigint(number: int) -> Key:
    """The key with this 64-bit number."""
    return Key(str(number), (number >> 32) % HALF, number % HALF, BIGINT)


def of_name(name: str) -> Key:
    """The key of a lock, from its *name* with its prefix."""
    try:
        sha256 = __import__(SHA256).sha256
    except ImportError:
        from hashlib import sha256

    return bigint(int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True))


def slots(name: str) -> Key:
    """The key that is followed by those of the slots of a lock, from its *name* with its prefix.

    No name ends with the character that makes it another one's hash.
    """
    number = of_name(f"{name}#")
    return bigint(_signed((number.classid << 32) | (number.objid & ~MOST_SLOTS), 64))


def queue(name: str) -> Key:
    """The tickets of those who wait for a lock, from its *name* with its prefix; the text is the first number only."""
    number = of_name(f"{name}?").classid
    return Key(str(_signed(number, 32)), number, ANY, PAIR)


def parse(text: str) -> Key | None:
    """The key that ``42`` or ``1,2`` means; ``None`` if it is no number, or too large for its key space."""
    numbers = []
    for word in text.split(","):
        digits = word.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            return None
        numbers.append(int(word))
    if len(numbers) == 1 and -(1 << 63) <= numbers[0] < 1 << 63:
        return bigint(numbers[0])
    if len(numbers) == 2 and all(-(1 << 31) <= number < 1 << 31 for number in numbers):
        first, second = numbers
        return Key(f"{first},{second}", first % HALF, second % HALF, PAIR)
    return None


def seen(classid: int, objid: int, objsubid: int) -> str:
    """The text of the key that ``pg_locks`` shows with these three numbers."""
    if objsubid == BIGINT:
        return str(_signed((classid << 32) | objid, 64))
    return f"{_signed(classid, 32)},{_signed(objid, 32)}"


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number


def quoted(name: str) -> str:
    """The name of a table, schema, role or database as a statement has it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


class Names:
    """The tables of one schema."""

    def __init__(self, schema: str | None) -> None:
        """Those in *schema*, or in the first of the connection's search_path that has one."""
        self.bare_schema = schema  # as a server names it; what follows is for statements
        self.schema = None if schema is None else quoted(schema)
        self.table = self.named("lockctl_fence")
        self.quoted = self.table.replace("%", "%%")

    def named(self, word: str) -> str:
        """The table *word* of the same schema."""
        return word if self.schema is None else f"{self.schema}.{word}"


def raw(data: Any) -> bytes | None:
    """A text as the driver gives it. Raises ``TypeError`` for what is none."""
    if data is None or isinstance(data, bytes):
        return data
    raise TypeError(f"{type(data).__name__} for a text")


def text(data: Any) -> str | None:
    """The same, decoded."""
    found = raw(data)
    return None if found is None else found.decode("utf-8", "replace")
