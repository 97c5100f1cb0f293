"""Files and functions that can be read at once, and a short list of those that are longer, each with its reason."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl

if TYPE_CHECKING:
    from collections.abc import Iterator

    Functions = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]

ROOT = Path(lockctl.__file__).parent
LONGEST_FILE = 250  # lines
LONGEST_FUNCTION = 40  # lines without the docstring, which may say as much as it must
MOST_PARAMETERS = 6  # without the object or the class itself

OF_EACH_START = "a start on files loads it, and another module would delay each command"
LONG_FILES = {
    "settings.py": "one table, and nothing else",
    "stores/file/lock.py": OF_EACH_START,
    "stores/postgresql/claim.py": "each step of a claim has to know its session, its position in the queue and its hold",
    "supervise/keeper.py": "one process with one loop, whose steps share what it knows",
}
LONG_FUNCTIONS = {
    "lease/acquire.py: acquire": "the only loop that waits for a lock: nothing may come between its steps",
    "stores/etcd/lock.py: EtcdBackend._take": "one transaction and its outcomes",
    "stores/etcd/share.py: enter": "one transaction and its outcomes",
}
TOLD = "it is told everything it needs when it begins"
OF_ONE_STATEMENT = "each is a value in one statement or script of the server"
MANY_PARAMETERS = {
    "cli/run.py: configured": TOLD,
    "cli/start.py: execute": TOLD,
    "cli/start.py: _execute": TOLD,
    "fence/asgi.py: FenceMiddleware.__init__": "the options of a public class, by name",
    "fence/wsgi.py: FenceMiddleware.__init__": "the options of a public class, by name",
    "lease/acquire.py: acquire": TOLD,
    "locks/inspect.py: lock_info": "each is a field of what it makes",
    "stores/file/revoke.py: replace_file": "the lock file by its names, who had it, and what the new one says",
    "stores/file/wait.py: wait_for": TOLD,
    "stores/postgresql/hold.py: begin": OF_ONE_STATEMENT,
    "stores/postgresql/protocol.py: _parameters": OF_ONE_STATEMENT,
    "stores/postgresql/share.py: join": OF_ONE_STATEMENT,
    "stores/postgresql/tokens.py: Fence.bump": OF_ONE_STATEMENT,
    "stores/redis/hold.py: keep": OF_ONE_STATEMENT,
}

FILES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def functions_in(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its name, which begins with those of the classes and functions around it."""
    for inner in ast.iter_child_nodes(node):
        name = owner
        if isinstance(inner, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{owner}.{inner.name}" if owner else inner.name
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name, inner
        yield from functions_in(inner, name)


@pytest.fixture(scope="module")
def functions() -> Functions:
    """All functions of the product by file and name; not made when tests are collected, which each worker does."""
    return {
        f"{file}: {name}": function for file, text in FILES.items() for name, function in functions_in(ast.parse(text))
    }


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the name to the end, without the docstring."""
    first, said = function.body[0], 0
    if ast.get_docstring(function) is not None:
        said = (first.end_lineno or first.lineno) - first.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - said


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_a_file_has_at_most_250_lines_unless_there_is_a_reason() -> None:
    assert len(FILES) > 100
    assert {file for file, text in FILES.items() if len(text.splitlines()) > LONGEST_FILE} == LONG_FILES.keys()


def test_a_function_has_at_most_40_lines_unless_there_is_a_reason(functions: Functions) -> None:
    assert len(functions) > 1000
    assert {name for name, each in functions.items() if length_of(each) > LONGEST_FUNCTION} == LONG_FUNCTIONS.keys()


def test_a_function_has_at_most_six_parameters_unless_there_is_a_reason(functions: Functions) -> None:
    assert {name for name, each in functions.items() if parameters_of(each) > MOST_PARAMETERS} == MANY_PARAMETERS.keys()
