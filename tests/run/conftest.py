"""How tests start `lockctl` in unusual surroundings: other signals, other descriptors, fewer rights, namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.jobs import Lockctl
from tests.run.acquirer import Acquirer
from tests.run.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = """#!{python} -ISB
import ctypes, fcntl, os, resource, signal, sys, termios
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
{code}
os.execvp(sys.argv[1], sys.argv[1:])
"""
DROP_RIGHTS = """
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: even root obeys the mode of a file now
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, fails for those who never had it
"""


@pytest.fixture
def after(locks: Path) -> Iterator[Callable[[str], Lockctl]]:
    """A command that runs a piece of Python and then becomes the program that its words name."""
    made: list[Lockctl] = []

    def make(code: str) -> Lockctl:
        path = locks / f".launch-{len(made)}"
        path.write_text(PROGRAM.format(python=sys.executable, code=code))
        path.chmod(0o755)
        made.append(Lockctl(str(path), locks))
        return made[-1]

    yield make
    for launcher in made:
        launcher.end_all()


@pytest.fixture
def without_rights(after: Callable[[str], Lockctl]) -> Lockctl:
    """Starts programs as a user whom file modes bind: root loses the right to pass over them."""
    return after(DROP_RIGHTS)


@pytest.fixture
def refused(lockctl: Lockctl) -> Refusal:
    """Checks that a run is refused: ``refused(STATUS, *OPTIONS)`` gives the line that was said."""
    return Refusal(lockctl)


@pytest.fixture
def unshare() -> Callable[[str], list[str]]:
    """The words that start a program in new namespaces, with the rights to mount there."""

    def words(flags: str) -> list[str]:
        tool = shutil.which("unshare")
        assert tool, "unshare is part of util-linux, which every Debian has"
        prefix = [tool, flags] if os.geteuid() == 0 else [tool, "-Ur", flags]
        probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, timeout=20, check=False)
        if probe.returncode and os.environ.get("CI"):
            pytest.fail(f"no namespaces in CI: {probe.stderr.strip()}")
        if probe.returncode:
            pytest.skip(f"this user may not make namespaces here: {probe.stderr.strip()}")
        return prefix

    return words


@pytest.fixture
def mounted(
    lockctl: Lockctl, locks: Path, unshare: Callable[[str], list[str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs lockctl with its locks on a file system of their own, which only this one command sees."""
    point = locks / ".mount"
    point.mkdir()

    def run(setup: str, *words: str, query: str = "") -> subprocess.CompletedProcess[str]:
        line = f'set -e; cd "$0"; {setup}; cd /; exec "$@"'
        within = [*unshare("-m"), "sh", "-c", line, str(point)]
        return lockctl(*words, within=within, env={"LOCKCTL_BACKEND": f"file://{point}{query}"})

    return run


@pytest.fixture
def new_acquirer(lockctl: Lockctl) -> Iterator[Callable[[str], Acquirer]]:
    """Acquirers of `lockctl` on the backend of a URL; their daemons are ended afterwards."""
    made: list[Acquirer] = []

    def make(url: str) -> Acquirer:
        made.append(Acquirer(lockctl, url))
        return made[-1]

    yield make
    for acquirer in made:
        acquirer.end()


@pytest.fixture
def acquirer(new_acquirer: Callable[[str], Acquirer], lockctl: Lockctl) -> Acquirer:
    """One on files."""
    return new_acquirer(lockctl.url)
