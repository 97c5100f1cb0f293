"""Frozen value classes that cost nothing to import.

``dataclasses`` takes longer to import than a lock takes to acquire, so the classes on the path of
``run`` derive from :class:`Value`: to a type checker the same as a frozen dataclass with slots.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar
    from typing import Protocol as Protocol  # noqa: PLC0414 - given on to others

    from typing_extensions import dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        """Do nothing: only type checkers look at this mark."""
        return lambda decorated: decorated

    class Protocol:
        """Stands in for ``typing.Protocol``, which takes long to load and only type checkers need."""


class _Fields(type):
    """Turns the annotations of a class into slots, before the class is made: making one twice is slow."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _Fields:
        fields = tuple(body.get("__annotations__", ()))
        body["__defaults__"] = {field: body.pop(field) for field in fields if field in body}
        body["__slots__"] = fields
        made = super().__new__(cls, name, bases, body)
        made.__setters__ = tuple([made.__dict__[field].__set__ for field in fields])  # type: ignore[attr-defined]
        return made


@dataclass_transform(frozen_default=True)
class Value(metaclass=_Fields):
    """A class whose annotated fields are set once, when an instance is made.

    Fields with a default must follow those without. Equality, hash and repr go by all fields.
    Raises ``TypeError`` when an instance is made with a missing or unknown field.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Set all fields, by position or by name."""
        setters = self.__setters__  # type: ignore[attr-defined]
        if kwargs or len(args) != len(setters):
            args = _all_fields(self, args, kwargs)
        for put_field, content in zip(setters, args, strict=True):
            put_field(self, content)

    def __setattr__(self, name: str, content: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return as_tuple(self) == as_tuple(other)

    def __hash__(self) -> int:
        return hash(as_tuple(self))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in _fields(self))
        return f"{type(self).__name__}({inside})"


class Discreet(Value):
    """A value with a secret, which its ``str`` leaves out: so does its repr, which may be in an error report."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def _fields(item: Value) -> tuple[str, ...]:
    fields: tuple[str, ...] = type(item).__slots__  # type: ignore[attr-defined]
    return fields


def _all_fields(item: Value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What all fields are to be, in their order. Raises ``TypeError``."""
    fields = _fields(item)
    rest = fields[len(args) :]
    given = {**item.__defaults__, **kwargs}  # type: ignore[attr-defined]
    try:
        contents = (*args, *[given[name] for name in rest])
    except KeyError as missing:
        raise TypeError(f"{type(item).__name__} needs {missing.args[0]}") from None
    if len(args) > len(fields) or not kwargs.keys() <= set(rest):
        raise TypeError(f"{type(item).__name__} takes {', '.join(fields)}")
    return contents


def as_tuple(item: Value) -> tuple[Any, ...]:
    """The fields of a value, in the order of their declaration."""
    return tuple([getattr(item, name) for name in _fields(item)])


if TYPE_CHECKING:
    V = TypeVar("V", bound=Value)


def replace(item: V, **changes: Any) -> V:
    """A copy of a value with some fields changed."""
    cls = type(item)
    given = [changes.pop(name) if name in changes else getattr(item, name) for name in _fields(item)]
    return cls(*given, **changes)
