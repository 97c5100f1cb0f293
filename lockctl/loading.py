"""Loading the modules of ``run`` from a few compiled files.

The import system asks every finder, lists folders, looks for extension modules, and inspects each file through
several layers; and to open and check sixty small files takes as long as to run what is in them. The modules that
every run needs are listed, below and by each store, and loaded in their order, each after those that it imports. A
list that is not complete costs time and nothing else: what is not in it is imported as ever.

The code of all modules of a list lies in one file beside the compiled files of Python, named after the last of them.
It is believed as those are (PEP 3147; PEP 552): while the interpreter, the directory, and time and size of each source
are what they were when it was written. Else the modules come from their own compiled files, and at its end the run
writes the file anew, as ``slim`` makes it, if it may write there: the first one after an installation does.
"""

# without `from __future__`, which would be one more module to load, as in `__main__`

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, ExtensionFileLoader, SourceFileLoader
from _imp import _fix_co_filename, create_dynamic, exec_dynamic, extension_suffixes  # type: ignore[attr-defined]
from marshal import dumps, loads

Module = type(sys)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

    Entry = tuple[str, str, int, int, CodeType]  # name, path of the source, its time in ns and its size, code

PACKAGE = __name__.rpartition(".")[0]
DIRECTORY = os.path.dirname(__file__)
ENDING = f".{sys.implementation.cache_tag}.pyc"
HEADER = MAGIC_NUMBER + bytes(4)  # of a compiled file that is valid while its source has the time and size that follow
HEADER_SIZE = 16
WORD = 0xFFFFFFFF
PACKAGE_SOURCE = "/__init__.py"
LIBRARIES = "/lib-dynload"  # the end of the folder in which Python has its modules in C

IN_C = "_socket _ctypes select"  # of Python, for keeper and guard
# what keeper and guard both need, before the fork of the guard
START = (
    "cli names errors cli.writing cli.messages cli.main value settings cli.fastpath supervise clock kernel"
    " supervise.channel supervise.tree lease durations lease.schedule supervise.orders supervise.fork cli.start"
    " supervise.signals"
)
GUARD = "events supervise.job_events supervise.child supervise.loop supervise.starting supervise.guard"
# of the keeper, until it has the lock
TAKE = "stores registry settings_values url config model documents lease.attempts lease.acquire runner request cli.run"
# of the keeper, while the guard starts the command
WATCH = (
    "events lease.lease_events supervise.liveness supervise.ending supervise.keeper history lease.conclude"
    " cli.exit_status"
)
# of the keeper, when it was refused
REFUSED = "cli.exit_status cli.output cli.outcome_messages"

_missing: "list[str] | None" = None  # lists whose file was not valid; None: this process leaves all to Python


def begin() -> None:
    """From here on :func:`load` does what it says, unless compiled files have other names or places, or are none.

    Without sources they are in the places of these, and in an archive there are no files: that is left to Python.
    """
    global _missing  # noqa: PLW0603 - of the process
    by_source = __file__.endswith(".py") and os.path.exists(__file__)
    if by_source and not (sys.flags.optimize or sys.pycache_prefix):
        _missing = []
        load_in_c(IN_C)
        load(START)


def load(names: str) -> None:
    """Load these modules of this package in this order, as far as they are not there yet. Raises what they raise."""
    if _missing is None:
        return
    wanted = [name for name in names.split() if f"{PACKAGE}.{name}" not in sys.modules]
    if not wanted:
        return  # who has waited has loaded all, and its program may have been removed meanwhile
    kept = _kept(names)
    if kept is None:
        _missing.append(names)
    for name, source, _, _, code in kept or map(_compiled, wanted):
        if name in wanted:
            _execute(f"{PACKAGE}.{name}", source, code)


def load_in_c(names: str) -> None:
    """Load these modules in C of Python from its folder, which is one of the last places that an import looks at.

    What is not there, or cannot be loaded, is left to the import system.
    """
    if _missing is None:
        return
    for folder in [place for place in sys.path if place.endswith(LIBRARIES)]:
        for name in names.split():
            if name not in sys.modules and name not in sys.builtin_module_names:
                file = f"{folder}/{name}{extension_suffixes()[0]}"
                spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
                spec.has_location = True
                try:
                    module = create_dynamic(spec)
                    exec_dynamic(module)
                except ImportError:
                    continue
                module.__spec__, module.__loader__, module.__package__, module.__file__ = spec, spec.loader, "", file
                sys.modules[name] = module


def keep() -> None:
    """Write the files that were not valid, as far as that is allowed: it takes a tenth of a second, once.

    That of the guard is written with the others: it is killed, and writes nothing.
    """
    if not _missing or sys.dont_write_bytecode or not os.access(f"{DIRECTORY}/__pycache__", os.W_OK):
        return
    for names in (*_missing, GUARD):
        try:
            entries = list(map(_slim, names.split()))
            source = entries[-1][1]
            data = MAGIC_NUMBER + dumps((names, DIRECTORY, entries))
            loader = SourceFileLoader(PACKAGE, source)
            loader._cache_bytecode(source, _file(names), data)  # type: ignore[attr-defined] # noqa: SLF001
        except Exception:  # noqa: BLE001 - such as while it is replaced, or for want of memory; what the run came to counts
            return


def _file(names: str) -> str:
    return f"{DIRECTORY}/__pycache__/run-{names.rpartition(' ')[2]}{ENDING}"


def _kept(names: str) -> "list[Entry] | None":
    """What the file of a list has; ``None``: it is not there, or not valid."""
    data = _read(_file(names))
    if not data.startswith(MAGIC_NUMBER):
        return None
    try:
        kept, directory, entries = loads(memoryview(data)[len(MAGIC_NUMBER) :])  # noqa: S302 - believed as Python's own
        if (kept, directory) != (names, DIRECTORY):
            return None
        for _, source, time, size, _ in entries:
            found = os.stat(source)
            if found.st_mtime_ns != time or found.st_size != size:
                return None
    except (OSError, EOFError, ValueError, TypeError):
        return None
    return entries  # type: ignore[no-any-return]


def _read(file: str) -> bytes:
    """All that is in a compiled file; nothing if it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _source(name: str) -> "tuple[str, os.stat_result]":
    """Where the source of a module is, and what is seen there. Raises ``OSError``."""
    path = f"{DIRECTORY}/{name.replace('.', '/')}"
    try:
        return f"{path}.py", os.stat(f"{path}.py")
    except OSError:
        return path + PACKAGE_SOURCE, os.stat(path + PACKAGE_SOURCE)


def _compiled(name: str) -> "Entry":
    """One module, from its own compiled file if that is valid. Raises ``OSError``, ``SyntaxError``."""
    source, found = _source(name)
    folder, _, file = source.rpartition("/")
    data = _read(f"{folder}/__pycache__/{file.removesuffix('.py')}{ENDING}")
    times = (int(found.st_mtime) & WORD).to_bytes(4, "little") + (found.st_size & WORD).to_bytes(4, "little")
    if data[:HEADER_SIZE] == HEADER + times:
        try:
            code = loads(memoryview(data)[HEADER_SIZE:])  # noqa: S302 - Python's own cache
        except EOFError:  # a full disk cut it short, which Python did not see when it wrote it
            return _slim(name)
        _fix_co_filename(code, source)  # it may have been compiled elsewhere, and a report shows lines of the source
    else:
        fullname = f"{PACKAGE}.{name}"
        code = SourceFileLoader(fullname, source).get_code(fullname)
    return name, source, found.st_mtime_ns, found.st_size, code


def _slim(name: str) -> "Entry":
    """One module, compiled anew. Raises ``OSError``, ``SyntaxError``, ``ValueError``."""
    from . import slim  # once after an installation

    source, found = _source(name)
    code = slim.compiled(SourceFileLoader(PACKAGE, source).get_data(source), source)
    return name, source, found.st_mtime_ns, found.st_size, code


def _execute(fullname: str, source: str, code: "CodeType") -> None:
    """Make the module as an import would."""
    spec = ModuleSpec(fullname, SourceFileLoader(fullname, source), origin=source)
    spec.has_location = True
    module = Module(fullname)
    about = module.__dict__
    if source.endswith(PACKAGE_SOURCE):
        about["__path__"] = spec.submodule_search_locations = [source[: -len(PACKAGE_SOURCE)]]
    about["__spec__"], about["__loader__"], about["__package__"] = spec, spec.loader, spec.parent
    about["__file__"] = source
    sys.modules[fullname] = module
    try:
        exec(code, about)  # noqa: S102 - what an import does
    except BaseException:
        del sys.modules[fullname]
        raise
    parent, _, name = fullname.rpartition(".")
    setattr(sys.modules[parent], name, module)
