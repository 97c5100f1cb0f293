"""Completion in the shells themselves: the words that they offer are the words that lockctl knows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl

    Complete = Callable[..., set[str]]

IN_BASH = """
source "$1"; shift
complete -p lockctl >/dev/null || exit 1
COMP_WORDS=(lockctl "$@"); COMP_CWORD=$#; COMPREPLY=()
_lockctl_completion lockctl "${@: -1}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _output(lockctl: Lockctl, words: list[str]) -> set[str]:
    """What a shell prints, in an environment where `lockctl` is the one that is tested."""
    path = f"{Path(lockctl.command).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        words,
        env=lockctl.environment({"PATH": path, "HOME": str(lockctl.directory)}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}


@pytest.fixture(params=["bash", "fish"])
def complete(request: pytest.FixtureRequest, lockctl: Lockctl, root: Path, need_tool: Callable[[str], str]) -> Complete:
    """What a shell offers for the last of some words after `lockctl`."""
    shell = need_tool(request.param)
    script = str(root / f"completions/lockctl.{request.param}")

    def in_bash(*words: str) -> set[str]:
        return _output(lockctl, [shell, "--norc", "--noprofile", "-c", IN_BASH, "bash", script, *words])

    def in_fish(*words: str) -> set[str]:
        line = " ".join(("lockctl", *words))
        return _output(lockctl, [shell, "--no-config", "-c", f"source '{script}'; complete -C '{line}'"])

    return in_bash if request.param == "bash" else in_fish


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_no_mistake_of_syntax(shell: str, root: Path, need_tool: Callable[[str], str]) -> None:
    script = root / f"completions/lockctl.{shell}"
    done = subprocess.run([need_tool(shell), "-n", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_that_is_installed(shell: str, root: Path, lockctl: Lockctl) -> None:
    done = lockctl("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (root / f"completions/lockctl.{shell}").read_text(encoding="utf-8")


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("fo") == {"force-release"}
    assert complete("run", "--tt") == {"--ttl"}
    assert {"--leftover", "--max-runtime", "--wait"} <= complete("run", "--")


def test_words_of_an_option_are_completed(complete: Complete) -> None:
    assert complete("run", "--leftover", "") == {"kill", "wait", "leave"}
    assert complete("run", "--on-lost", "te") == {"term"}


def test_names_of_locks_are_completed(complete: Complete, lockctl: Lockctl) -> None:
    for name in ("nightly", "nine", "other"):
        assert lockctl("run", "-l", name, "--", "true").returncode == 0
    assert complete("inspect", "ni") == {"nightly", "nine"}
    assert complete("run", "-l", "o") == {"other"}


def test_the_command_to_run_is_completed_from_the_path(complete: Complete) -> None:
    assert "lockctl" in complete("run", "--wait", "5s", "--", "lockc")


def test_a_wrong_configuration_offers_nothing_and_says_nothing(complete: Complete, lockctl: Lockctl) -> None:
    config = lockctl.directory / ".no-config/lockctl/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[defaults]\nbanana = 1\n")
    assert complete("inspect", "ni") == set()
