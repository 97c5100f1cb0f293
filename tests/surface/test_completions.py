"""Completion in the shells themselves: the words that they offer are the words that lockctl knows."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.settings import SETTINGS
from lockctl.url import parse_url
from tests.contract.harness import claim, take
from tests.run.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl

    Complete = Callable[..., set[str]]
    Press = Callable[..., list[str]]

LIMIT = 10.0  # seconds
NAMES = ("nightly", "deploy:prod", "ops@web", "a+b")
BEGINNING_OF_LINE, TAB = "\x01", "\t"

IN_BASH = """
source "$1"; shift
complete -p lockctl >/dev/null || exit 1
COMP_WORDS=(lockctl "$@"); COMP_CWORD=$#; COMPREPLY=()
_lockctl_completion lockctl "${@: -1}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _output(lockctl: Lockctl, words: list[str]) -> set[str]:
    """What a shell prints, in an environment where `lockctl` is the one that is tested."""
    done = subprocess.run(
        words,
        env=lockctl.environment({"PATH": _path(lockctl), "HOME": str(lockctl.directory)}),
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


def use(lockctl: Lockctl, *names: str) -> None:
    """Let these locks have been held once."""
    with contextlib.closing(open_backend(parse_url(lockctl.url))) as backend:
        for name in names:
            backend.release(take(backend, claim(name)), timeout=LIMIT)


def _path(lockctl: Lockctl) -> str:
    return f"{Path(lockctl.command).parent}:{os.environ['PATH']}"


@pytest.fixture(scope="session")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where zsh keeps what it found in its functions, for all tests: to look takes it a third of a second."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "functions.zsh"


@pytest.fixture(params=["bash", "zsh"])
def press(
    request: pytest.FixtureRequest, lockctl: Lockctl, root: Path, need_tool: Callable[[str], str], functions: Path
) -> Iterator[Press]:
    """The words of a line of the shell on a terminal, when TAB was pressed once at its end."""
    words = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[request.param]
    variables = {"PATH": _path(lockctl), "HOME": str(lockctl.directory), "TERM": "dumb", "INPUTRC": "/dev/null"}
    terminal = Terminal(need_tool(request.param), *words, env=lockctl.environment(variables))
    script = root / f"completions/lockctl.{request.param}"
    if request.param == "zsh":
        terminal.line(f"bindkey -e; autoload -U compinit; compinit -u -d '{functions}'")
    terminal.line(f"source '{script}'; echo re''ady")
    terminal.expect("ready")

    def in_shell(line: str, prepared: dict[str, str] | None = None) -> list[str]:
        if prepared:
            terminal.line(f"{prepared[request.param]}; echo prep''ared")
            terminal.expect("prepared")
        terminal.type(line + TAB)
        # the keys wait until the completion is there; then the shell itself says what it has as words
        terminal.line(BEGINNING_OF_LINE + "printf '[%s]' ")
        terminal.type("echo do''ne\n")
        shown = terminal.expect("done", limit=20.0)
        return re.findall(r"\[([^][%\r\n]*)\]", re.findall(r"\[lockctl\][^\r\n]*", shown)[-1])

    yield in_shell
    terminal.end()
    terminal.hang_up()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_no_mistake_of_syntax(shell: str, root: Path, need_tool: Callable[[str], str]) -> None:
    script = root / f"completions/lockctl.{shell}"
    done = subprocess.run([need_tool(shell), "-n", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        *((f"{shell}_complete", {}) for shell in ("bash", "zsh", "fish")),
        *((f"{shell}_complete", {"COMP_WORDS": "lockctl li"}) for shell in ("bash", "zsh", "fish")),
        *((f"{shell}_complete", {"COMP_WORDS": "lockctl li", "COMP_CWORD": "li"}) for shell in ("bash", "zsh")),
        ("fish_complete", {"COMP_WORDS": "lockctl li", "COMP_CWORD": " "}),
        *((asked, {}) for asked in ("1", "ksh_complete", "bash_nothing")),
    ],
)
def test_what_no_script_asks_is_refused_in_one_line(lockctl: Lockctl, asked: str, words: dict[str, str]) -> None:
    done = lockctl("list", env={"_LOCKCTL_COMPLETE": asked, **words})
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("lockctl: $_LOCKCTL_COMPLETE is for the scripts of `lockctl completion`")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("shell", "last"), [("bash", "3"), ("zsh", "3"), ("fish", "\udcff")])
def test_a_file_whose_name_is_no_text_is_completed(lockctl: Lockctl, shell: str, last: str) -> None:
    words = {"COMP_WORDS": "lockctl list --config \udcff", "COMP_CWORD": last}
    done = lockctl("list", env={"_LOCKCTL_COMPLETE": f"{shell}_complete", **words})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("file")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_that_does_not_read_what_it_asked_for_sees_no_mistake(lockctl: Lockctl, shell: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = {"_LOCKCTL_COMPLETE": f"{shell}_complete", "COMP_WORDS": "lockctl li", "COMP_CWORD": "1"}
    try:
        done = lockctl("list", env=words, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_that_is_installed(shell: str, root: Path, lockctl: Lockctl) -> None:
    done = lockctl("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (root / f"completions/lockctl.{shell}").read_text(encoding="utf-8")


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("fo") == {"force-release"}
    assert complete("run", "--tt") == {"--ttl"}
    assert complete("help", "fence", "a") == {"advance"}
    assert {"--leftover", "--max-runtime", "--wait"} <= complete("run", "--")


def test_words_of_an_option_are_completed(complete: Complete) -> None:
    assert complete("run", "--leftover", "") == {"kill", "wait", "leave"}
    assert complete("run", "--on-lost", "te") == {"term"}


def test_names_of_locks_are_completed(complete: Complete, lockctl: Lockctl) -> None:
    use(lockctl, "nightly", "nine", "other")
    assert complete("inspect", "ni") == {"nightly", "nine"}
    assert complete("run", "-l", "o") == {"other"}


def test_the_command_to_run_is_completed_from_the_path(complete: Complete) -> None:
    assert "lockctl" in complete("run", "--wait", "5s", "--", "lockc")


def test_behind_its_time_a_crontab_completes_what_a_run_does(complete: Complete) -> None:
    assert complete("config", "crontab", "TIME", "--tt") == {"--ttl"}
    assert complete("config", "crontab", "TIME", "-l", "a", "--leftover", "") == {"kill", "wait", "leave"}
    assert "lockctl" in complete("config", "crontab", "TIME", "-l", "a", "--", "lockc")
    assert complete("config", "crontab", "--") == {"--help"}


def test_a_wrong_configuration_offers_nothing_and_says_nothing(complete: Complete, lockctl: Lockctl) -> None:
    config = lockctl.directory / ".no-config/lockctl/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[defaults]\nbanana = 1\n")
    assert complete("inspect", "ni") == set()


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("run --leftover=k", "--leftover=kill"),
        ("run --leftover k", "kill"),
        ("run --signal=US", "--signal=USR"),
        ("config crontab @daily --leftover k", "kill"),
        ("inspect deploy:p", "deploy:prod"),
        ("inspect dep", "deploy:prod"),
        ("run -l ops@", "ops@web"),
        ("run --lock=deploy:", "--lock=deploy:prod"),
        ("run --lock=ops@w", "--lock=ops@web"),
        ("force-release a+", "a+b"),
        ("run --report=/etc/hostn", "--report=/etc/hostname"),
        ("fence check /etc/hostn", "/etc/hostname"),
    ],
)
def test_tab_completes_a_word_whatever_the_shell_takes_for_one(
    press: Press, lockctl: Lockctl, line: str, completed: str
) -> None:
    use(lockctl, *NAMES)
    assert press(f"lockctl {line}") == ["lockctl", *line.split()[:-1], completed]


def test_values_are_completed_in_fish_behind_an_equals_sign(
    lockctl: Lockctl, root: Path, need_tool: Callable[[str], str]
) -> None:
    use(lockctl, "deploy:prod")
    script = root / "completions/lockctl.fish"

    def offered(line: str) -> set[str]:
        return _output(lockctl, [need_tool("fish"), "--no-config", "-c", f"source '{script}'; complete -C '{line}'"])

    assert offered("lockctl run --leftover=k") == {"--leftover=kill"}
    assert offered("lockctl run --lock=deploy:p") == {"--lock=deploy:prod"}
    assert offered("lockctl run --report=/etc/hostn") == {"--report=/etc/hostname"}


PREPARED = {
    "bash": "source /usr/share/bash-completion/bash_completion; complete -W '--alpha beta=one' stock-job",
    "zsh": "_stock_job() { compadd -- --alpha beta=one }; compdef _stock_job stock-job",
}
OF_THE_COMMAND = [
    ("run -l x stock-job --", "--alpha"),
    ("run -l x -- stock-job --lock -- be", "beta=one"),
    ("run -l ops@web --wait=5s -- stock-job --al", "--alpha"),
    ("run -l x -- lockctl run --tt", "--ttl"),
    ("run -l x -- lockctl run -l y stock-job --al", "--alpha"),
    ("config crontab @daily -l x -- stock-job --al", "--alpha"),
    ("fence exec /srv/stock -- stock-job --al", "--alpha"),
]


@pytest.mark.parametrize(("line", "completed"), OF_THE_COMMAND)
def test_words_of_the_command_are_completed_as_without_lockctl(press: Press, line: str, completed: str) -> None:
    assert press(f"lockctl {line}", PREPARED) == ["lockctl", *line.split()[:-1], completed]


def test_without_a_completion_of_its_own_a_command_gets_files(press: Press) -> None:
    assert press("lockctl run -l x -- stock-job /etc/hostn") == [
        *("lockctl", "run", "-l", "x", "--", "stock-job", "/etc/hostname")
    ]


@pytest.mark.parametrize(("line", "completed"), OF_THE_COMMAND)
def test_words_of_the_command_are_completed_in_fish(
    lockctl: Lockctl, root: Path, need_tool: Callable[[str], str], line: str, completed: str
) -> None:
    job = 'complete -c stock-job -f -a "--alpha beta=one"'
    source = f"source '{root}/completions/lockctl.fish'; {job}; complete -C 'lockctl {line}'"
    assert _output(lockctl, [need_tool("fish"), "--no-config", "-c", source]) == {completed}


def test_names_of_signals_are_completed(complete: Complete) -> None:
    assert complete("run", "--signal", "US") == {"USR1", "USR2"}
    assert {"TERM", "INT", "HUP", "QUIT"} <= complete("run", "--signal", "")


def test_profiles_are_completed(complete: Complete, lockctl: Lockctl) -> None:
    config = lockctl.directory / ".no-config/lockctl/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[backends.fleet]\nurl = "file:///one"\n[backends.flat]\nurl = "file:///two"\n')
    assert complete("run", "-b", "fle") == {"fleet"}
    assert complete("list", "--backend", "") == {"flat", "fleet"}


def test_every_option_with_a_few_values_offers_them(complete: Complete) -> None:
    for setting in SETTINGS:
        if setting.choices:
            assert complete("run", setting.flags[-1], "") == set(setting.choices)
    assert complete("run", "--log", "s") == {"syslog"}
    assert complete("run", "--fence", "n") == {"none"}
