"""Help, version and what is said to somebody who types something else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lockctl import __version__
from lockctl.cli.commands import cli
from lockctl.cli.group import Command, Examples
from lockctl.cli.options import GROUPS, OUTPUT
from lockctl.settings import BY_NAME
from tests.surface.command_lines import HELP, calls_in_line, check_call, commands

if TYPE_CHECKING:
    from tests.jobs import Lockctl


def in_80_columns(*words: str) -> str:
    """What `lockctl` prints on a narrow terminal."""
    done = CliRunner().invoke(cli, words, prog_name="lockctl", terminal_width=80)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", commands())
def test_every_command_explains_itself(words: str, lockctl: Lockctl) -> None:
    done = lockctl(*words.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: lockctl {words}".rstrip())
    assert list(lockctl.directory.iterdir()) == []


@pytest.mark.parametrize("words", commands())
def test_the_short_option_is_the_same(words: str) -> None:
    assert in_80_columns(*words.split(), "-h") == in_80_columns(*words.split(), "--help")


@pytest.mark.parametrize("words", ["", "run", "fence", "fence write"])
def test_help_and_a_verb_is_the_help_of_the_verb(words: str) -> None:
    assert in_80_columns("help", *words.split()) == in_80_columns(*words.split(), "--help")


@pytest.mark.parametrize("words", ["", "config", "fence"])
def test_each_verb_has_one_line_which_is_not_cut_off(words: str) -> None:
    listed = in_80_columns(*words.split(), "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    assert len(listed.splitlines()) == len(commands()[words].commands)  # type: ignore[attr-defined]
    assert "..." not in listed


@pytest.mark.parametrize("words", commands())
def test_every_help_ends_with_two_examples_that_lockctl_accepts(words: str) -> None:
    command = commands()[words]
    assert isinstance(command, Examples)
    assert len(command.examples) == 2
    for line in command.examples:
        (call,) = calls_in_line(line)
        check_call(call)
        assert not words or call[: len(words.split())] == words.split() or words == "fence"


@pytest.mark.parametrize("verb", ["run", "acquire"])
def test_many_options_stand_in_groups(verb: str) -> None:
    command = commands()[verb]
    assert isinstance(command, Command)
    own = {"run": [], "acquire": ["Options"]}[verb]
    headings = list(command.groups(command.make_context(verb, ["a"], resilient_parsing=True, help_option_names=HELP)))
    assert headings == own + [heading for heading in (*GROUPS, OUTPUT) if heading in headings]
    assert len(headings) >= 5
    assert {name for names in GROUPS.values() for name in names} < set(BY_NAME)


@pytest.mark.parametrize("words", ["--help", "--version", "list --help", "backends"])
def test_what_cannot_be_printed_is_no_bug(words: str, lockctl: Lockctl) -> None:
    with open("/dev/full", "w") as full:
        done = lockctl(*words.split(), stdout=full)
    assert (done.returncode, done.stderr) == (69, "lockctl: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize("words", ["--help", "--version", "help run", "list --help", "backends"])
def test_a_reader_that_has_gone_away_is_no_failure(words: str, lockctl: Lockctl) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = lockctl(*words.split(), stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_that_of_the_package(lockctl: Lockctl) -> None:
    done = lockctl("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lockctl {__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["config"]])
def test_a_command_that_is_not_finished_shows_the_help_on_stderr(words: list[str], lockctl: Lockctl) -> None:
    done = lockctl(*words)
    assert (done.returncode, done.stdout) == (64, "")
    assert "Commands:" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["banana"],
        ["--banana"],
        ["run"],
        ["run", "--banana", "--", "true"],
        ["list", "a", "b"],
        ["inspect"],
        ["inspect", "../etc"],
        ["force-release"],
        ["force-release", "a", "--token"],
        ["config", "banana"],
        ["config", "show", "-l", "a/b"],
        ["completion"],
        ["completion", "tcsh"],
    ],
    ids=" ".join,
)
def test_wrong_words_are_one_line_and_status_64(words: list[str], lockctl: Lockctl) -> None:
    done = lockctl(*words)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("lockctl: ")
    assert done.stderr.count("\n") == 1


def test_python_m_is_the_same_command(lockctl: Lockctl) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "lockctl", *words],
            env=lockctl.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert run("--version") == (0, f"lockctl {__version__}\n", "")
    assert run("run", "-l", "a", "--", "sh", "-c", "echo $LOCKCTL_LOCK; exit 9") == (9, "a\n", "")
    assert run("run", "-l", "a", "--ttl", "banana", "--", "true")[0] == 64


def test_a_reader_that_has_gone_away_is_no_traceback(lockctl: Lockctl) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" config show | true; "$0" run --help | head -n 1', lockctl.command],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Usage: ")
