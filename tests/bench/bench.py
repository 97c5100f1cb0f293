"""``make bench``: what a lock costs, beside the tools that people use today. One table on stdout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import timing
from tests.jobs import guard_of
from tests.places import local_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROUNDS = 20
LOCKCTL = str(Path(sys.executable).parent / "lockctl")
PYTHON = "python -c pass"
# command lines of other tools, measured where they are installed and their server answers
OTHERS = {
    "etcdctl lock": ("etcdctl", "lock", "lockctl-bench", "true"),
    "consul lock": ("consul", "lock", "lockctl-bench", "true"),
}


def main() -> int:
    """Measure and print."""
    directory = tempfile.mkdtemp(prefix="lockctl-bench-", dir=local_directory())
    env = timing.environment({"LOCKCTL_BACKEND": f"file://{directory}", "XDG_CONFIG_HOME": f"{directory}/.none"})
    try:
        print(f"wall time, median of {ROUNDS}, run in turn on this machine")
        print_times(directory, env)
        print("\nmemory of a holder (PSS: shared pages are divided among those who share them)")
        print_memory(directory, env)
    finally:
        shutil.rmtree(directory)
    return 0


def print_times(directory: str, env: Mapping[str, str]) -> None:
    """One line for each command, with its ratio to an interpreter that does nothing."""
    commands: dict[str, tuple[Sequence[str], int]] = {PYTHON: ((sys.executable, "-c", "pass"), 0)}
    if flock := shutil.which("flock"):
        commands["flock -n FILE true"] = ((flock, "-n", f"{directory}/flock", "true"), 0)
    commands["lockctl run -- true"] = ((LOCKCTL, "run", "--", "true"), 0)
    commands["lockctl run, refused (75)"] = ((LOCKCTL, "run", "-l", "taken", "--", "true"), 75)
    commands.update({name: (words, 0) for name, words in OTHERS.items() if _works(words, env)})
    holder = _holding((LOCKCTL, "run", "-l", "taken", "--"), env)
    try:
        took = timing.medians(commands, env, ROUNDS)
    finally:
        _end(holder)
    for name, measured in took.items():
        print(f"  {name:28}{measured * 1000:8.1f} ms{measured / took[PYTHON]:8.2f} x python")
    for name in OTHERS.keys() - commands.keys():
        print(f"  {name:28}not installed, or no server here")


def print_memory(directory: str, env: Mapping[str, str]) -> None:
    """One line for each process that stays while a command runs."""
    holder = _holding((LOCKCTL, "run", "--"), env)
    parts = {"lockctl, keeper": _pss(holder.pid), "lockctl, guard": _pss(guard_of(holder.pid))}
    parts["lockctl, both"] = sum(parts.values())
    _end(holder)
    if flock := shutil.which("flock"):
        holder = _holding((flock, f"{directory}/flock"), env)
        parts["flock"] = _pss(holder.pid)
        _end(holder)
    for name, kilobytes in parts.items():
        print(f"  {name:28}{kilobytes / 1024:8.1f} MB")


def _works(words: Sequence[str], env: Mapping[str, str]) -> bool:
    if shutil.which(words[0]) is None:
        return False
    try:
        return timing.seconds(words, env) >= 0
    except RuntimeError:
        return False


def _holding(words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A lock that is held by a `cat` until its stdin is closed; back when the `cat` runs."""
    process = subprocess.Popen(
        [*words, "sh", "-c", "echo; exec cat"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=timing.LIMIT)


def _pss(pid: int) -> int:
    """Kilobytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("no Pss line in smaps_rollup")


if __name__ == "__main__":
    sys.exit(main())
