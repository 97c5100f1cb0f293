"""lockctl.supervise.preload: what a run imports late is there before its program may be removed."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl
from lockctl import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(lockctl.__file__).parent
# what a run has loaded before it waits, or as it begins to, if its settings want it
WANTED = (
    *("config_file", "password", "profiles", "secret", "extras", "wire.tls", "fence.registration", "lease.together"),
    *("cli.log", "cli.metrics", "cli.nested", "cli.report", "cli.waiting"),
)
# what it has not loaded, and does not need by then
BEFORE = ("cli.commands", "cli.lazy_inspect")  # of `cli.main`, for other verbs and unusual words
OF_THE_GUARD = ("supervise.guard", "supervise.starting")  # which loads them when it is forked
OF_VERBS = ("fence.stores.objects", "locks.prune")
KEEPER = """
import importlib, sys
from lockctl import loading, registry
for name in (loading.START, loading.TAKE, loading.WATCH, *sys.argv[3:]):
    for word in name.split():
        importlib.import_module(f"lockctl.{word}")
if sys.argv[1] in registry.SCHEMES:
    registry.load(sys.argv[1])
if sys.argv[2] in registry.MARKS:
    registry.load_marks(sys.argv[2])
from lockctl.supervise.preload import load_rest
load_rest()
print(*sys.modules)
"""
GUARD = """
import importlib, sys
from lockctl import loading
from lockctl.supervise import rehearsal, starting
from lockctl.cli.messages import Talk
for word in (*loading.START.split(), *loading.GUARD.split(), "cli.log"):
    importlib.import_module(f"lockctl.{word}")
Talk(as_json=True)  # as the guard is told if its messages are for programs
rehearsal.of_guard(starting.Starting)
print(*sys.modules)
"""


def loaded(program: str, *words: str) -> set[str]:
    """The modules of this package that a process has loaded."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.partition(".")[0] == "lockctl"}


def source_of(module: str) -> Path | None:
    """Where a module of this package is; ``None``: there is none of that name."""
    path = ROOT.parent / module.replace(".", "/")
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.exists()), None)


@functools.cache
def late_imports(module: str) -> frozenset[str]:
    """The modules of this package that the functions of *module* import."""
    return frozenset(_late_imports(module))


def _late_imports(module: str) -> Iterator[str]:
    source = source_of(module)
    assert source is not None
    for function in ast.walk(ast.parse(source.read_text())):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lockctl":
                for name in node.names:
                    whole = f"{node.module}.{name.name}"
                    yield whole if source_of(whole) else str(node.module)
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names if name.name.partition(".")[0] == "lockctl")


def missing(modules: set[str], there: set[str], unneeded: tuple[str, ...]) -> list[str]:
    """What these modules would import late, and is not there: who imports what."""
    known = there | {f"lockctl.{name}" for name in unneeded}
    return sorted(f"{module}: {name}" for module in modules for name in late_imports(module) - known)


def test_the_imports_of_functions_are_found() -> None:
    assert "lockctl.json_text" in late_imports("lockctl.documents")
    assert "lockctl.stores.file.prune" in late_imports("lockctl.stores.file.lock")


@pytest.mark.parametrize("scheme", sorted({classes: scheme for scheme, classes in registry.STORES.items()}.values()))
def test_a_keeper_has_loaded_all_that_it_may_import_later(scheme: str) -> None:
    modules = loaded(KEEPER, scheme, scheme, *WANTED)
    prune = [name.rpartition(".")[0].removeprefix("lockctl.") + ".prune" for name in modules if name.endswith(".lock")]
    assert missing(modules, modules, (*BEFORE, *OF_THE_GUARD, *OF_VERBS, *prune)) == []


def test_a_guard_that_waits_has_loaded_all_that_it_may_import_later() -> None:
    modules = loaded(GUARD)
    of_keeper = {f"lockctl.{name}" for name in ("cli.main", "cli.start")}
    assert missing(modules - of_keeper, modules, ()) == []
