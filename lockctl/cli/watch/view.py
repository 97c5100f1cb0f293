"""What a person sees of the locks in ``lockctl watch``, and how each key changes that. Pure: no terminal, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.cli.query import SORTS, Query, ordered
from lockctl.cli.rows import row
from lockctl.cli.watch import keys
from lockctl.value import Value, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockctl.cli.places import Place
    from lockctl.model import LockInfo

    Found = tuple[Place, LockInfo]

TABLE, FILTER, LOCK, CONFIRM, HELP = "table", "filter", "lock", "confirm", "help"
STEPS = {keys.UP: -1, "k": -1, keys.DOWN: 1, "j": 1, keys.PAGE_UP: -10, keys.PAGE_DOWN: 10}
FAR = 1 << 30  # rows: beyond the end of every table
JUMPS = {keys.HOME: -FAR, "g": -FAR, keys.END: FAR, "G": FAR}


class View(Value):
    """What is shown: immutable, each key makes a new one."""

    query: Query
    mode: str = TABLE
    filter: str = ""  # part of a name, a place or a command
    selected: tuple[str, str] | None = None  # label of the place, and name: rows may move under the cursor
    row: int = 0  # where it was
    scroll: int = 0  # lines of the lock in full that are above the screen
    back: str = TABLE  # the mode before a question
    asked: Found | None = None  # the lock that the question is about, as it was seen then
    released: Found | None = None  # whose holder is to be asked now
    message: str = ""
    ended: bool = False

    def rows(self, found: Sequence[Found]) -> list[Found]:
        """The rows of the table, in their order."""
        wanted = [each for each in found if self.query.wants(each[1]) and self._matches(each[1])]
        return ordered(wanted, self.query.sort)

    def _matches(self, lock: LockInfo) -> bool:
        return not self.filter or self.filter.lower() in " ".join(row(lock)).lower()

    def cursor(self, rows: Sequence[Found]) -> int:
        """Which of the *rows* is selected: the same lock as before, or what is there in its place."""
        for number, each in enumerate(rows):
            if _key(each) == self.selected:
                return number
        return max(0, min(self.row, len(rows) - 1))

    def pressed(self, key: str, found: Sequence[Found]) -> View:
        """The view after a key."""
        calm = replace(self, message="", released=None)
        if self.mode == FILTER:
            return _typed(calm, key)
        if self.mode == CONFIRM:
            return replace(calm, mode=self.back, asked=None, released=self.asked if key in ("y", "Y") else None)
        if key == "q":
            return replace(calm, ended=True)
        if self.mode == HELP:
            return replace(calm, mode=TABLE)
        rows = self.rows(found)
        if key == "f" and rows:
            return _ask(calm, rows[self.cursor(rows)])
        if self.mode == LOCK:
            return _in_lock(calm, key)
        return _in_table(calm, key, rows)


def _key(each: Found) -> tuple[str, str]:
    return each[0].label, each[1].name


def _in_table(view: View, key: str, rows: Sequence[Found]) -> View:
    step = STEPS.get(key) or JUMPS.get(key)
    if step and rows:
        number = max(0, min(len(rows) - 1, view.cursor(rows) + step))
        return replace(view, row=number, selected=_key(rows[number]))
    if key == keys.ENTER and rows:
        number = view.cursor(rows)
        return replace(view, mode=LOCK, scroll=0, row=number, selected=_key(rows[number]))
    if key == "s":
        order = list(SORTS)
        sort = order[(order.index(view.query.sort) + 1) % len(order)]
        return replace(view, query=replace(view.query, sort=sort))
    if key == "a":
        return replace(view, query=replace(view.query, everything=not view.query.everything, states=()))
    if key == keys.ESCAPE:
        return replace(view, filter="")
    return replace(view, mode={"/": FILTER, "?": HELP, "h": HELP}.get(key, TABLE))


def _in_lock(view: View, key: str) -> View:
    step = STEPS.get(key) or JUMPS.get(key)
    if step:
        return replace(view, scroll=max(0, view.scroll + step))
    return replace(view, mode=TABLE if key in (keys.ESCAPE, keys.ENTER, keys.BACKSPACE) else LOCK)


def _typed(view: View, key: str) -> View:
    if key == keys.ENTER:
        return replace(view, mode=TABLE)
    if key == keys.ESCAPE:
        return replace(view, mode=TABLE, filter="")
    if key == keys.BACKSPACE:
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if len(key) == 1 else view


def _ask(view: View, chosen: Found) -> View:
    """Ask before a holder is asked."""
    if not chosen[1].holders:
        return replace(view, message=f"{chosen[1].name} is free: nothing to do")
    return replace(view, mode=CONFIRM, back=view.mode, asked=chosen, selected=_key(chosen))
