"""Loading the modules of lockctl from their compiled files with few system calls.

The import system asks every finder, lists folders, looks for extension modules, and inspects each file through
several layers. For the sixty small modules of ``run`` that takes longer than to load what is in them. Here a module's
place follows from its name. What makes a compiled file valid is as ever (PEP 3147; PEP 552: version of the
interpreter, kind, time and size of the source), and whatever is not as expected is left to Python's own way.

The modules that every run needs are listed below and loaded in their order, each after those that it imports, without
the import system, whose locks and checks for each module are more work than the module. A list that is not complete
costs time and nothing else: what is not in it is imported as ever.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from _imp import _fix_co_filename  # type: ignore[attr-defined]
from marshal import loads

Module = type(sys)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

HEADER = MAGIC_NUMBER + bytes(4)  # of a file that is valid while its source has the time and size that follow
HEADER_SIZE = 16
WORD = 0xFFFFFFFF
LARGEST = 1 << 16  # bytes of a compiled file that is read at once

# what keeper and guard both need, before the fork of the guard
START = (
    "cli names errors cli.writing cli.messages cli.main value settings cli.fastpath supervise clock kernel"
    " supervise.channel supervise.tree lease durations lease.schedule supervise.orders supervise.fork cli.start"
    " supervise.signals"
)
GUARD = "events supervise.child supervise.loop supervise.starting supervise.guard"
# of the keeper, until it has the lock
TAKE = "stores registry settings_values url config model documents lease.attempts lease.acquire runner request cli.run"
# of the keeper, while the guard starts the command
WATCH = "events supervise.liveness supervise.ending supervise.keeper history lease.conclude cli.exit_status"


class Loader(SourceFileLoader):
    """Reads the compiled file of one module at once."""

    def __init__(self, name: str, source: str, compiled: str, found: os.stat_result) -> None:
        """*found* is what was seen at the path *source*."""
        self.name, self.path = name, source  # as the base class has it
        self._compiled = compiled
        self._found = found

    def get_code(self, fullname: str) -> CodeType | None:
        """See ``importlib.abc.InspectLoader``."""
        try:
            descriptor = os.open(self._compiled, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, LARGEST)
            finally:
                os.close(descriptor)
        except OSError:
            return super().get_code(fullname)
        time, size = int(self._found.st_mtime) & WORD, self._found.st_size & WORD
        header = HEADER + time.to_bytes(4, "little") + size.to_bytes(4, "little")
        if data[:HEADER_SIZE] != header or len(data) == LARGEST:
            return super().get_code(fullname)
        code: CodeType = loads(memoryview(data)[HEADER_SIZE:])  # noqa: S302 - Python's own cache
        _fix_co_filename(code, self.path)  # it may have been compiled elsewhere, and a report shows lines of the source
        return code


class Finder:
    """Knows where the modules of a package are."""

    def __init__(self, package: str) -> None:
        """*package* itself is found in the usual way."""
        self._prefix = package + "."
        self._ending = f".{sys.implementation.cache_tag}.pyc"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if not path or not fullname.startswith(self._prefix):
            return None
        parent, name = path[0], fullname.rpartition(".")[2]
        try:
            return self._spec(fullname, parent, name)
        except OSError:
            pass
        folder = f"{parent}/{name}"
        try:
            spec = self._spec(fullname, folder, "__init__")
        except OSError:
            return None
        spec.submodule_search_locations = [folder]
        return spec

    def load(self, name: str) -> None:
        """Load this module of the package, unless it was; raises what it raises, ``ImportError`` if there is none."""
        fullname = self._prefix + name
        if fullname in sys.modules:
            return
        package, _, name = fullname.rpartition(".")
        parent = sys.modules.get(package)
        if parent is None:
            __import__(fullname)
            return
        spec = self.find_spec(fullname, parent.__path__)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        code = spec.loader.get_code(fullname)  # type: ignore[union-attr]
        module = Module(fullname)
        about = module.__dict__
        about["__spec__"], about["__loader__"], about["__package__"] = spec, spec.loader, spec.parent
        about["__file__"], about["__cached__"] = spec.origin, spec.cached
        if spec.submodule_search_locations is not None:
            about["__path__"] = spec.submodule_search_locations
        sys.modules[fullname] = module
        try:
            exec(code, about)  # noqa: S102 - what an import does
        except BaseException:
            del sys.modules[fullname]
            raise
        setattr(parent, name, module)

    def _spec(self, fullname: str, folder: str, name: str) -> ModuleSpec:
        source, compiled = f"{folder}/{name}.py", f"{folder}/__pycache__/{name}{self._ending}"
        spec = ModuleSpec(fullname, Loader(fullname, source, compiled, os.stat(source)), origin=source)
        spec.has_location = True
        spec.cached = compiled
        return spec


def install() -> None:
    """From here on load the modules of this package so, unless compiled files have other names or places."""
    if not (sys.flags.optimize or sys.pycache_prefix):
        sys.meta_path.insert(0, Finder(__name__.partition(".")[0]))


def load(names: str) -> None:
    """Load these modules of this package in this order, as far as they are not there yet."""
    finder = sys.meta_path[0]
    if isinstance(finder, Finder):
        for name in names.split():
            finder.load(name)
