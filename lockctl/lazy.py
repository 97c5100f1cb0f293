"""Modules that a library imports and hardly ever uses: they are loaded when something of them is asked for."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)  # `types` takes longer to load than all of this


class Lazy(ModuleType):
    """Stands in ``sys.modules`` for a module until more of it is asked for than what a subclass has."""

    def __getattr__(self, name: str) -> Any:
        """Anything else of the module; raises ``AttributeError`` as it does."""
        if name == "__path__":  # none of them is a package, and `from ... import` asks whether it is one
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(__import__(self.__name__), name)


class StandIns:
    """A block in which a library is imported: these modules stand in for those that are not loaded yet."""

    def __init__(self, *modules: Lazy) -> None:
        """Nothing is changed yet."""
        self._modules = modules

    def __enter__(self) -> None:
        """From here on the library gets them."""
        for module in self._modules:
            sys.modules.setdefault(module.__name__, module)

    def __exit__(self, *_: object) -> None:
        """Whoever else imports such a module gets itself."""
        for module in self._modules:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]
