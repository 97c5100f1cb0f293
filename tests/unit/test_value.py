"""lockctl.value: frozen values that cost nothing to import."""

from __future__ import annotations

import copy
import pickle

import pytest

from lockctl.errors import LockctlError
from lockctl.value import Value, as_tuple, replace


class Point(Value):
    x: int
    y: int = 2
    tags: tuple[str, ...] = ()

    @property
    def sum(self) -> int:
        return self.x + self.y


def test_fields_are_given_by_place_by_name_or_by_default() -> None:
    assert as_tuple(Point(1)) == (1, 2, ())
    assert as_tuple(Point(1, 3, tags=("a",))) == (1, 3, ("a",))
    assert Point(y=5, x=4).sum == 9


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, (), 4), {}), ((), {"y": 1}), ((1,), {"z": 1})])
def test_a_missing_a_surplus_or_an_unknown_field_is_refused(arguments: tuple[tuple[int, ...], dict[str, int]]) -> None:
    with pytest.raises(TypeError):
        Point(*arguments[0], **arguments[1])  # type: ignore[arg-type]


def test_a_value_cannot_change_and_takes_no_new_attribute() -> None:
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError):
            setattr(point, name, 5)
    with pytest.raises(AttributeError):
        del point.x
    assert not hasattr(point, "__dict__")


def test_values_are_equal_and_hash_alike_by_their_fields_and_class() -> None:
    class Other(Value):
        x: int
        y: int
        tags: tuple[str, ...]

    assert Point(1) == Point(1, 2)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2
    assert Point(1) != Other(1, 2, ())
    assert Point(1) != (1, 2, ())


def test_a_value_shows_all_its_fields() -> None:
    assert repr(Point(1, tags=("a",))) == "Point(x=1, y=2, tags=('a',))"


def test_replace_copies_with_changes_and_leaves_the_first_alone() -> None:
    first = Point(1, 3)
    assert replace(first, x=7) == Point(7, 3)
    assert first == Point(1, 3)
    with pytest.raises(TypeError):
        replace(first, z=1)


def test_values_without_fields_are_all_the_same() -> None:
    class Nothing(Value):
        """No fields."""

    assert Nothing() == Nothing()
    assert as_tuple(Nothing()) == ()


def test_errors_can_be_copied_and_pickled() -> None:
    error = LockctlError("say so")
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == "say so"
