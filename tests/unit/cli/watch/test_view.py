"""What each key does to what is shown: without a terminal."""

from __future__ import annotations

import pytest

from lockctl.cli.places import Place
from lockctl.cli.query import Query
from lockctl.cli.watch import keys, view
from lockctl.cli.watch.view import View
from lockctl.locks.inspect import lock_info
from lockctl.model import Holder, LockInfo
from lockctl.url import parse_url

PLACE = Place(parse_url("file:///locks"))


def lock(name: str, host: str | None = None, token: int = 7) -> LockInfo:
    holder = Holder("0" * 32, host, 4121, "ops", ("job",), token, "exclusive", 1.0, 20.0)
    return lock_info("file", "strict", name, f"/locks/{name}", [holder] if host else [], [])


FOUND = [(PLACE, each) for each in (lock("a", "web1", 1), lock("b", "web2", 3), lock("c", "web3", 2), lock("d"))]
START = View(Query(None, None, sort="name"))


def after(*pressed: str, start: View = START) -> View:
    for key in pressed:
        start = start.pressed(key, FOUND)
    return start


def names(shown: View) -> str:
    return "".join(each[1].name for each in shown.rows(FOUND))


@pytest.mark.parametrize(
    ("pressed", "shown"),
    [
        ([], "abc"),
        (["a"], "abcd"),
        (["a", "a"], "abc"),
        (["/", "W", "E", "B", "2", keys.ENTER], "b"),
        (["/", "x", keys.BACKSPACE, "c"], "c"),
        (["/", "x", keys.ESCAPE], "abc"),
        (["/", "b", keys.ENTER, keys.ESCAPE], "abc"),
        (["s"] * 3, "bca"),  # by token
    ],
)
def test_rows_are_filtered_and_sorted(pressed: list[str], shown: str) -> None:
    assert names(after(*pressed)) == shown


@pytest.mark.parametrize(
    ("pressed", "selected"),
    [
        ([], "a"),
        ([keys.DOWN], "b"),
        ([keys.DOWN] * 9, "c"),
        ([keys.END, keys.UP], "b"),
        ([keys.PAGE_DOWN, keys.HOME], "a"),
        (["j", "s", "s", "s"], "b"),  # moves with its lock
        ([keys.DOWN, keys.DOWN, "/", *"web2"], "b"),  # is not shown any more
    ],
)
def test_the_cursor_stays_on_its_lock(pressed: list[str], selected: str) -> None:
    shown = after(*pressed)
    rows = shown.rows(FOUND)
    assert rows[shown.cursor(rows)][1].name == selected


def test_a_holder_is_asked_only_after_a_yes_and_only_the_one_that_was_seen() -> None:
    asked = after(keys.DOWN, "f")
    assert (asked.mode, asked.asked, asked.released) == (view.CONFIRM, FOUND[1], None)
    for key in ("n", keys.ENTER, keys.ESCAPE, "f", " "):
        assert after(key, start=asked).released is None
    later = [(PLACE, lock("b", "web9", 99))]
    assert asked.pressed("y", later).released == FOUND[1]
    assert after("a", keys.END, "f").message == "d is free: nothing to do"


def test_a_lock_in_full_is_left_by_escape_and_the_end_is_q() -> None:
    full = after(keys.DOWN, keys.ENTER)
    assert (full.mode, full.selected) == (view.LOCK, (PLACE.label, "b"))
    assert after(keys.DOWN, keys.DOWN, keys.UP, start=full).scroll == 1
    assert after(keys.ESCAPE, start=full).mode == view.TABLE
    assert after("q", start=full).ended
    assert not after("/", "q").ended
    assert after("?", "x").mode == view.TABLE
    assert START.pressed(keys.ENTER, []).mode == view.TABLE
