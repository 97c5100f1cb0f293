"""What is read on a narrow terminal: no sentence is cut, no column is missing without a word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lockctl.cli.commands import cli
from tests.run.terminal import Screen
from tests.surface.command_lines import commands

if TYPE_CHECKING:
    from tests.jobs import Lockctl


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", commands())
def test_no_sentence_of_a_help_is_cut_or_too_long(words: str, width: int) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="lockctl", terminal_width=width)
    text, _, _ = done.output.partition("\nExamples:\n")  # those are copied, each as one line
    lines = text.splitlines()
    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if line.endswith(("…", "...")) and not line.endswith(("]...", ",..."))] == []


def shown(lockctl: Lockctl, *words: str, columns: int) -> list[str]:
    screen = Screen(lockctl.command, *words, env=lockctl.environment({"NO_COLOR": "1"}), columns=columns)
    try:
        screen.wait()
        return screen.sent.replace("\r", "").splitlines()
    finally:
        screen.end()


def test_backends_names_the_columns_that_it_leaves_out_and_shows_them_when_asked(lockctl: Lockctl) -> None:
    heading, *rows = shown(lockctl, "backends", columns=80)
    assert heading.split("  ")[0] == "BACKEND"
    assert {"HOSTS", "FENCING"} <= set(heading.split())
    assert rows[-1] == "lockctl: no room for WAITERS, HOLDERS: -o wide shows all columns"
    assert max(map(len, rows)) <= 80
    everything = shown(lockctl, "backends", "-o", "wide", columns=80)
    assert {"WAITERS", "HOLDERS"} <= set(everything[0].split())
    assert "no room" not in everything[-1]


def test_backends_has_the_forms_of_a_list(lockctl: Lockctl) -> None:
    documents = json.loads(lockctl("backends", "--json").stdout)
    assert json.loads(lockctl("backends", "-o", "json").stdout) == documents
    names = [document["backend"] for document in documents]
    assert lockctl("backends", "-o", "name").stdout.split() == names
    assert lockctl("backends", "-o", "yaml").stdout.startswith(f"- backend: {names[0]}\n  schemes:\n")
