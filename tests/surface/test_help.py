"""Help, version and what is said to somebody who types something else."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl import __version__
from tests.surface.command_lines import commands

if TYPE_CHECKING:
    from tests.jobs import Lockctl


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("words", commands())
def test_every_command_explains_itself(words: str, flag: str, lockctl: Lockctl) -> None:
    done = lockctl(*words.split(), flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: lockctl {words}".rstrip())
    assert list(lockctl.directory.iterdir()) == []


@pytest.mark.parametrize("words", ["--help", "--version", "list --help", "backends"])
def test_what_cannot_be_printed_is_no_bug(words: str, lockctl: Lockctl) -> None:
    with open("/dev/full", "w") as full:
        done = lockctl(*words.split(), stdout=full)
    assert (done.returncode, done.stderr) == (69, "lockctl: cannot write to stdout: No space left on device\n")


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
