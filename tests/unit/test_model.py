"""lockctl.model, lockctl.errors and lockctl.events: the values that all layers share."""

from __future__ import annotations

import inspect

import pytest

from lockctl import errors, events, model
from lockctl.errors import LeaseRevoked, LockctlError
from lockctl.model import Claim, Holder
from lockctl.value import Value

VALUES = [
    item
    for module in (model, events)
    for item in vars(module).values()
    if isinstance(item, type) and issubclass(item, Value) and item is not Value
]
ERRORS = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_every_word_is_frozen_can_be_compared_and_has_its_meaning_written(kind: type[Value]) -> None:
    fields: tuple[str, ...] = vars(kind)["__slots__"]
    item, same = (kind(*range(len(fields))) for _ in range(2))
    assert item == same
    assert hash(item) == hash(same)
    assert inspect.getdoc(kind)
    for name in fields:
        with pytest.raises(AttributeError):
            setattr(item, name, None)


def test_a_claim_is_exclusive_unless_it_says_otherwise() -> None:
    assert Claim("a", "o", 30.0, "h", 1, "u", ("true",)).mode == "exclusive"


def test_a_holder_may_be_wholly_unknown() -> None:
    holder = Holder(*[None] * 9)
    assert (holder.owner, holder.ttl) == (None, None)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_all_errors_are_one_level_below_one_root(kind: type[Exception]) -> None:
    assert kind is LockctlError or kind.__bases__ == (LockctlError,)


def test_a_revocation_says_who_asked_and_why_if_they_said() -> None:
    assert str(LeaseRevoked("ops@web3", "maintenance")) == "revoked by ops@web3: maintenance"
    assert str(LeaseRevoked("ops@web3", "")) == "revoked by ops@web3"
