"""The counter of a lock, from which its fencing tokens come: a key beside the lock, which every grant raises.

A token is one more than the last one, and never below the clock of the host in microseconds. So it rises as long as
etcd keeps its data, whatever clocks do; and by the clock after the data was lost or put back to an earlier state.

The key is written in the transaction that grants the lock, on condition that it is lower than the new token. etcd
compares values as text, so all have the same number of digits. That needs no look at the counter; only for the first
grant of a lock, where there is none to compare, and for a host whose clock is behind it, it is read first.

Whoever forgets a name removes its counter, and raises the floor of all names above it before: a lock without a counter
begins above the floor, if that is as it was read.
"""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.model import next_token
from lockctl.stores.etcd.layout import Entry, Layout, coded, get, has_value, is_created_at, put
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


DIGITS = 18  # of every counter: the clock has 16 until the year 2286, and what every mark can keep has 18
FLOOR = ".floor"  # instead of a name: a counter that is not below the last token of any name that was forgotten


class Next(Value):
    """The next token of a lock, and what the transaction needs that grants it."""

    token: int
    conditions: list[dict[str, Any]]  # that no grant since had this token or a higher one
    write: dict[str, Any]  # the step that raises the counter


class Counter:
    """The counter of one lock, and the floor, as far as they are known."""

    def __init__(self, places: Layout, name: str) -> None:
        """Nobody has looked."""
        self._key, self._floor = places.counter(name), places.counter(FLOOR)
        self._seen: tuple[list[Entry], list[Entry]] | None = None
        self.looks = [get(self._key), get(self._floor)]  # the steps that read them, for :meth:`see`

    def see(self, counter: list[Entry], floor: list[Entry]) -> None:
        """Know them as they were read."""
        self._seen = counter, floor

    def next(self) -> Next:
        """The token after the last one that is known."""
        counter, floor = self._seen or ([], [])
        token = next_token(last(counter) or last(floor), wall())
        if self._seen is None or (counter and _is_comparable(counter[0].value)):
            conditions = [is_below(self._key, token)]
        else:
            conditions = [is_as_seen(self._key, counter), is_as_seen(self._floor, floor)]
        return Next(token, conditions, put(self._key, written(token), 0))


def is_as_seen(key: bytes, found: list[Entry]) -> dict[str, Any]:
    """The condition that a key has the value that was *found*, or that there is none as there was none."""
    return has_value(key, found[0].value) if found else is_created_at(key, 0)


def is_below(key: bytes, token: int) -> dict[str, Any]:
    """The condition that there is a counter, and it is lower than *token*."""
    return {"key": coded(key), "target": "VALUE", "result": "LESS", "value": coded(written(token))}


def end_with(key: bytes, lease: int) -> dict[str, Any]:
    """The step that has a counter end with *lease*, until the next grant."""
    return {"request_put": {"key": coded(key), "lease": str(lease), "ignore_value": True}}


def last(seen: list[Entry]) -> int:
    """The last token by a counter as it was read; 0: there is none, or it is damaged."""
    text = seen[0].value if seen else b""
    return int(text) if text.isdigit() and len(text) <= DIGITS else 0


def written(token: int) -> bytes:
    """A token as it stands in its counter."""
    return b"%0*d" % (DIGITS, token)


def in_document(document: dict[str, Any] | None) -> int | None:
    """The token that a holder has written down; ``None``: it did not, as lockctl 0.1 does not."""
    token = document.get("token") if document is not None and "acquired_at" in document else None
    return token if isinstance(token, int) and 0 < token < 10**DIGITS and token is not True else None


def _is_comparable(text: bytes) -> bool:
    """Whether the order of this text and of a token as it is written is that of their numbers."""
    return len(text) == DIGITS and text.isdigit()
