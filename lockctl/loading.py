"""Loading the modules of lockctl from their compiled files with few system calls.

The import system asks every finder, lists folders, looks for extension modules, and inspects each file through
several layers. For the forty small modules of ``run`` that takes longer than to load what is in them. Here a module's
place follows from its name. What makes a compiled file valid is as ever (PEP 3147; PEP 552: version of the
interpreter, kind, time and size of the source), and whatever is not as expected is left to Python's own way.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from _imp import _fix_co_filename  # type: ignore[attr-defined]
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

HEADER = MAGIC_NUMBER + bytes(4)  # of a file that is valid while its source has the time and size that follow
HEADER_SIZE = 16
WORD = 0xFFFFFFFF


class Loader(SourceFileLoader):
    """Reads the compiled file of one module at once."""

    def __init__(self, name: str, source: str, compiled: str, found: os.stat_result) -> None:
        """*found* is what was seen at the path *source*."""
        super().__init__(name, source)
        self._compiled = compiled
        self._found = found

    def get_code(self, fullname: str) -> CodeType | None:
        """See ``importlib.abc.InspectLoader``."""
        try:
            descriptor = os.open(self._compiled, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        except OSError:
            return super().get_code(fullname)
        time, size = int(self._found.st_mtime) & WORD, self._found.st_size & WORD
        if data[:HEADER_SIZE] != HEADER + time.to_bytes(4, "little") + size.to_bytes(4, "little"):
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
