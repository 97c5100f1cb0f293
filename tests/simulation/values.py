"""Values of lockctl that are made more quickly: a history makes hundreds, and a run of the product a few dozen.

What a value is stays as it is. Only how its fields are set is replaced, by a function for each class, as of dataclasses.
"""

from __future__ import annotations

from typing import Any

from lockctl.value import Discreet, Value


def install() -> None:
    """Do so for all classes that are there now."""
    for cls in (*Value.__subclasses__(), *Discreet.__subclasses__()):
        if cls.__slots__ and cls.__init__ is Value.__init__:  # type: ignore[attr-defined]
            cls.__init__ = _initializer(cls)  # type: ignore[method-assign]


def _initializer(cls: Any) -> Any:
    fields, defaults = cls.__slots__, cls.__defaults__
    parameters = ["self", *[f"{name}=defaults[{name!r}]" if name in defaults else name for name in fields]]
    lines = [f"set_{name}(self, {name})" for name in fields] or ["pass"]
    known: dict[str, Any] = {f"set_{name}": put for name, put in zip(fields, cls.__setters__, strict=True)}
    made: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}): {'; '.join(lines)}", {**known, "defaults": defaults}, made)
    return made["__init__"]
