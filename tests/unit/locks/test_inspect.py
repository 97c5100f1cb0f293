"""Names and states of locks, as an operator sees them."""

from __future__ import annotations

import pytest

from lockctl.documents import foreign_holder
from lockctl.locks.inspect import lock_info, matching
from lockctl.model import EXCLUSIVE, Holder

OURS = Holder("someone", "web1", 7, "deploy", ("backup",), 33, EXCLUSIVE, 1.0, 2.0)


def test_names_match_once_and_in_order_and_what_cannot_be_a_name_does_not() -> None:
    found = ["b", "a", "b", "", ".hidden", "-x", "with/slash", "x" * 201, "\N{SNOWMAN}"]
    assert matching(found, "*") == ["a", "b"]
    assert matching(["nightly", "night", "Nightly"], "night?*") == ["nightly"]


@pytest.mark.parametrize(
    ("holders", "state"),
    [([], "free"), ([OURS], "held"), ([foreign_holder()], "foreign"), ([OURS, foreign_holder()], "foreign")],
)
def test_a_lock_is_foreign_if_the_owner_of_a_holder_is_not_known(holders: list[Holder], state: str) -> None:
    lock = lock_info("toy", "strict", "nightly", "locks/nightly", holders, None)
    assert (lock.state, lock.holders, lock.waiters, lock.slots) == (state, tuple(holders), None, 1)
