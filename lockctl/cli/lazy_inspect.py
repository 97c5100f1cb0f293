"""A module of Python that is loaded when it is needed: ``inspect``, of which click needs a line for most verbs.

With the compiler's and the disassembler's modules behind it, ``inspect`` takes a seventh of the start of a verb.
"""

from __future__ import annotations

import sys

from lockctl.lazy import Lazy


class Inspect(Lazy):
    """Stands in ``sys.modules`` for ``inspect`` until more of it is asked for than how a help is indented."""

    def cleandoc(self, doc: str) -> str:
        """As ``inspect.cleandoc``, which has nothing more to do for a single line."""
        cleaned: str = self.__getattr__("cleandoc")(doc) if "\n" in doc else doc.expandtabs().lstrip()
        return cleaned


def install() -> None:
    """Before click is imported. Nothing is changed where ``inspect`` is loaded already."""
    sys.modules.setdefault("inspect", Inspect("inspect"))
