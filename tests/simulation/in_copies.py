"""Plans of faults, each tried with its fault in a process of its own: python -m tests.simulation.in_copies JSON.

JSON is a list of pairs, a copy of the package that has the fault and the file that begins with the plan. Each process is
forked from one that has loaded all: to load it again takes ten times as long as most histories. The code of the functions
that the copy changes takes the place of the old code. Where the copy changes more, such as a constant, all modules are
loaded anew from it.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.simulation import __main__ as simulation
from tests.simulation.teeth import FILE, ROOT

Place = tuple[str, str, int]  # of a function: its file, its name and the line where it begins


def functions_of_lockctl() -> dict[Place, list[FunctionType]]:
    """All that are loaded, by where they stand."""
    gc.unfreeze()  # what is frozen is not told
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (each.__module__ or "").startswith("lockctl."):
            found.setdefault(_place(each.__code__), []).append(each)
    gc.freeze()
    return found


def put_in(copy: str, names: list[str], functions: dict[Place, list[FunctionType]]) -> bool:
    """Have functions do what they do in the files *names* of a *copy*; False: more than functions differs there."""
    changed: dict[Place, CodeType] = {}
    for name in names:
        found = _changed(*(compile((folder / name).read_text(), ROOT / name, "exec") for folder in (ROOT, Path(copy))))
        if found is None or not found.keys() <= functions.keys():
            return False
        changed |= found
    for place, code in changed.items():
        for function in functions[place]:
            function.__code__ = code
    return True


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_name, code.co_firstlineno


def _changed(old: CodeType, new: CodeType) -> dict[Place, CodeType] | None:
    """The code of the functions that differ, by the place of the old one; ``None``: something else differs, too."""
    if old.co_flags & inspect.CO_OPTIMIZED:  # of a function, not of a module or a class
        return {} if _done(old) == _done(new) else {_place(old): new}
    if (old.co_code, old.co_names, len(old.co_consts)) != (new.co_code, new.co_names, len(new.co_consts)):
        return None
    changed: dict[Place, CodeType] = {}
    for before, after in zip(old.co_consts, new.co_consts, strict=True):
        if not (isinstance(before, CodeType) and isinstance(after, CodeType)):
            if before != after:
                return None
            continue
        found = _changed(before, after) if before.co_name == after.co_name else None
        if found is None:
            return None
        changed |= found
    return changed


def _done(code: CodeType) -> tuple[Any, ...]:
    """What code does, wherever it stands."""
    constants = tuple(_done(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def try_in(copy: str, file: str, functions: dict[Place, list[FunctionType]]) -> int:
    """Try the plan of a *file* with what a *copy* of the package has; 1 if anything is wrong."""
    if put_in(copy, FILE.findall(Path(file).read_text()), functions):
        return simulation.try_plans([file], simulation.CHANCES)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lockctl", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, copy)
    anew = import_module("tests.simulation.__main__")
    anew.prepare()
    status: int = anew.try_plans([file], simulation.CHANCES)
    return status


def main(pairs: list[tuple[str, str]]) -> None:
    """Try each plan with its fault."""
    simulation.prepare()
    functions = functions_of_lockctl()
    for copy, file in pairs:
        if os.fork() == 0:
            status = try_in(copy, file, functions)
            sys.stdout.flush()
            os._exit(status)  # to free all that is loaded takes as long as to try a plan
        os.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
