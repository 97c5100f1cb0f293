"""One direction of imports and no circles, no output below the command line, a short path of `run`."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl

ROOT = Path(lockctl.__file__).parent
BASE = {
    "value",
    "errors",
    "model",
    "clock",
    "events",
    "durations",
    "names",
    "url",
    "commanding",
    "kernel",
    "mounts",
    "umask",
    "toml",
    "backend",
    "json_text",
    "documents",
    "history",
    "extras",
    "finding",
    "loading",
    "slim",
    "lazy",
}
BASE |= {
    "supervise.tree",
    "supervise.signals",
    "supervise.contain",
    "supervise.namespaces",
}  # facts of the kernel about processes and signals
# each layer, and the layers that it may import from; the base is open to all
LAYERS: dict[str, set[str]] = {
    "base": set(),
    "settings": set(),
    "settings_values": {"settings"},
    "shell": {"wire"},  # a command has a deadline, as a request has
    "secret": {"shell", "wire"},
    "registry": {"secret"},  # a backend is loaded by its name
    "wire": set(),
    "locks": {"wire"},
    "stores": {"locks", "wire", "shell", "secret"},
    "fence": {"wire", "locks", "stores", "secret", "registry"},
    "config_file": {"settings", "settings_values"},
    "profiles": {"registry", "config_file"},
    "password": {"settings", "registry"},
    "config": {"settings", "settings_values", "registry", "config_file", "profiles", "password"},
    "lease": set(),
    "supervise": {"lease"},
    "request": {"lease"},
    "doctor": {"registry", "secret", "lease", "wire"},
    "bench": {"registry", "lease", "supervise"},
    "runner": {"request", "registry", "lease", "supervise", "fence"},
    "cli": {
        "settings",
        "settings_values",
        "secret",
        "registry",
        "config",
        "config_file",
        "profiles",
        "password",
        "lease",
        "supervise",
        "request",
        "runner",
        "fence",
        "doctor",
        "bench",
    },
    "__main__": {"cli"},
    "script": {"__main__"},
    "__init__": set(),
}
# the files of a store: what each has is in CONTRIBUTING.md
FILES_OF_A_STORE = {"__init__", "cell", "lock", "address", "protocol", "session", "errors", "layout", "claim", "queue"}
FILES_OF_A_STORE |= {
    "connection",
    "wait",
    "share",
    "hold",
    "revoke",
    "inspect",
    "records",
    "prune",
    "tokens",
    "doctor",
}
FILES_OF_ITS_OWN = {
    "file": {"holder", "lease", "ranges"},
    "redis": {"scripts", "share_scripts", "sentinel", "rights"},
    "redlock": {"nodes", "rounds", "tally"},
    "postgresql": {"driver", "schema", "scope", "pooler"},
    "mysql": {"rights"},
    "consul": {"turn"},
    "etcd": {"turn"},
    "zookeeper": {"node", "grant", "link", "multiread"},  # a node is ZooKeeper's word for a key
    "kubernetes": {"access"},
    "azblob": {"access"},
}
# no other store knows a second one; sqlite: what a file system is good for
USES = {"redlock": {"redis"}, "sqlite": {"file"}}
BELOW_THE_COMMAND_LINE = sorted(
    path
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] != "cli" and path.name not in {"__main__.py", "script.py"}
)
FORBIDDEN = {"print", "input", "exit", "quit", "SystemExit", "sys.exit", "sys.argv", "sys.stdin", "sys.stdout"}
FORBIDDEN |= {"sys.stderr", "os.environ", "os.environb", "os.getenv", "os.putenv"}
SLOW = {"click", "rich", "json", "typing", "dataclasses", "enum", "re"}
SLOW |= {"logging", "subprocess", "threading", "socket", "tomllib", "argparse", "hashlib"}


def layer_of(module: str) -> str:
    """The layer of a module, named as below ``lockctl``."""
    return "base" if module in BASE else module.partition(".")[0]


def name_of(path: Path) -> str:
    """``supervise.loop`` for ``lockctl/supervise/loop.py``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Every module of ours that is imported anywhere, also only for its types."""
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Import) and any(each.name.startswith("lockctl") for each in node.names))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "lockctl":
            for imported in node.names:
                inner = ".".join([*node.module.split(".")[1:], imported.name])
                yield inner if inner in modules() else inner.rpartition(".")[0] or "__init__"


@functools.cache
def modules() -> dict[str, Path]:
    """The file of each module."""
    return {name_of(path): path for path in ROOT.rglob("*.py")}


@functools.cache
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: set(imports_of(tree_of(path))) for name, path in modules().items()}


def test_a_module_imports_only_from_layers_after_its_own() -> None:
    wrong = {}
    for module, imported in imports().items():
        layer = layer_of(module)
        wrong[module] = {layer_of(each) for each in imported} - LAYERS[layer] - {"base", layer, "__init__"}
    assert len(wrong) > len(LAYERS)
    assert {module: layers for module, layers in wrong.items() if layers} == {}


def test_no_import_goes_in_a_circle_also_no_lazy_one_and_none_for_types_alone() -> None:
    left = {module: used & imports().keys() - {module, "__init__"} for module, used in imports().items()}
    while done := [module for module, used in left.items() if not used & left.keys()]:
        for module in done:
            del left[module]
    assert not left, "each of these is in a circle, or before one"


@pytest.mark.parametrize("folder", sorted(ROOT.glob("stores/[a-z]*")), ids=lambda folder: folder.name)
def test_a_store_has_the_files_that_every_store_has_and_knows_no_other_store(folder: Path) -> None:
    technology, files = folder.name, sorted(folder.glob("*.py"))
    assert {file.stem for file in files} - FILES_OF_A_STORE == FILES_OF_ITS_OWN.get(technology, set())
    used = {
        module.split(".")[1] for file in files for module in imports()[name_of(file)] if module.startswith("stores.")
    }
    assert used <= {technology} | USES.get(technology, set())


def test_nothing_below_the_command_line_prints_exits_or_reads_the_environment() -> None:
    assert len(BELOW_THE_COMMAND_LINE) > len(LAYERS)
    assert [found for path in BELOW_THE_COMMAND_LINE for found in of_the_command_line(path)] == []


def of_the_command_line(path: Path) -> Iterator[str]:
    """What a file does that is only for the command line."""
    nodes = list(ast.walk(tree_of(path)))
    in_children: set[int] = set()
    if "os.fork()" in path.read_text():
        forks = [node for node in nodes if isinstance(node, ast.FunctionDef) and "os.fork()" in ast.unparse(node)]
        in_children = {id(inner) for fork in forks for inner in ast.walk(fork)}
    for node in nodes:
        text = ""
        if isinstance(node, ast.Name):
            text = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            text = f"{node.value.id}.{node.attr}"
        if text == "os.environb" and path.name in ("shell.py", "access.py"):
            continue  # handed on, unread, to a command that prints a password; where kubectl, pods and az say who we are
        if text in FORBIDDEN or (text == "os._exit" and id(node) not in in_children):  # a forked child ends so
            yield f"{path}:{getattr(node, 'lineno', 0)}: {text}"


def loaded(lockctl: Lockctl, *words: str) -> set[str]:
    """The modules that Python imports with these words after its name."""
    environment = lockctl.environment({name: "" for name in os.environ if name.startswith("COV")})
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_a_run_on_files_loads_no_module_that_costs_more_than_the_lock(lockctl: Lockctl) -> None:
    by_run = loaded(lockctl, lockctl.command, "run", "-b", lockctl.url, "--", "true") - loaded(lockctl, "-c", "pass")
    assert "lockctl.loading" in by_run
    assert not by_run & SLOW


def test_another_verb_does_not_load_inspect(lockctl: Lockctl) -> None:
    by_list = loaded(lockctl, lockctl.command, "list", "--json")
    assert {"click", "lockctl.cli.query"} <= by_list
    assert by_list.isdisjoint({"inspect", "dis", "tokenize"})  # click has `ast` loaded from Python 3.14 on
