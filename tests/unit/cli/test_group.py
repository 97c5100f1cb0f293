"""lockctl.cli.group: a verb is a file, a command of click and a man page, and is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl
from lockctl.cli import commands, fence, verbs
from lockctl.cli.group import Verbs
from lockctl.cli.verbs import fence as fence_verb

if TYPE_CHECKING:
    import click

ROOT = Path(lockctl.__file__).parent.parent
NO_VERBS = {"__init__", "options"}


def files(package: str | None) -> set[str]:
    """The verbs that have a file in the folder of a package."""
    assert package is not None
    return {path.stem.replace("_", "-") for path in Path(package).parent.glob("*.py") if path.stem not in NO_VERBS}


def test_each_verb_has_a_file_and_each_file_is_a_verb() -> None:
    assert files(verbs.__file__) == set(commands.VERBS)
    assert files(fence.__file__) == set(fence_verb.VERBS)


@pytest.mark.parametrize("group", [commands.cli, fence_verb.command], ids=["lockctl", "fence"])
def test_each_file_has_the_command_of_its_name(group: click.Group) -> None:
    assert [command.name for command in group.commands.values()] == list(group.commands)


@pytest.mark.parametrize("verb", commands.VERBS)
def test_each_verb_has_a_man_page(verb: str) -> None:
    assert (ROOT / f"man/text/lockctl-{verb}.1.txt").is_file()


@pytest.mark.parametrize("verb", commands.VERBS)
def test_a_verb_loads_no_other_and_neither_rich_nor_a_backend(verb: str) -> None:
    script = f"import sys; from lockctl.cli.commands import cli; cli.commands[{verb!r}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    loaded = done.stdout.split()
    inner = [name for name in loaded if name.startswith(("lockctl.cli.verbs.", "lockctl.cli.fence."))]
    assert inner == [f"lockctl.cli.verbs.{verb.replace('-', '_')}"]
    assert not [name for name in loaded if name.startswith(("rich", "lockctl.stores."))]


def test_what_is_no_verb_is_not_loaded() -> None:
    found = Verbs("lockctl.cli.fence", ("show",))
    assert found.get("order") is None
    assert len(found) == 1
