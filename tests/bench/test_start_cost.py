"""What a start loads and asks of the kernel, counted: a time that rises by a tenth is lost in the noise, a count is not.

Counted is what ``lockctl run`` on files needs beyond ``python -c pass``. A test fails when that is more than a tenth
above what is recorded here. If the rise is worth it, or to record a fall, run

    .venv/bin/python -m pytest tests/bench/test_start_cost.py -rP

which prints the numbers and the modules, and write them down here.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lockctl as package
from lockctl import loading
from lockctl.stores import file
from lockctl.supervise import preload
from tests.bench import timing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.jobs import Lockctl

PACKAGE = Path(package.__file__).parent
MORE = 1.1
TRIES = 5  # half a second after its command has started, a run loads what it may need later: on a busy machine a few do
# beside those that are loaded from the lists, first the script of this name
IMPORTED = "lockctl lockctl lockctl.__main__ lockctl.loading lockctl.stores.file"
LISTED = " ".join((loading.START, loading.GUARD, loading.TAKE, file.PATH, loading.WATCH, file.RECORDS))
REHEARSED = "supervise.rehearsal supervise.contain supervise.namespaces"  # what a guard that waits loads, too
OTHERS = "_ctypes _socket fcntl select"
RECORDED = collections.Counter([*(f"lockctl.{name}" for name in LISTED.split()), *IMPORTED.split(), *OTHERS.split()])
LIBRARIES = {"contextlib", "dataclasses", "enum", "json", "re", "signal", "typing"}  # each costs as much as ten of ours
# writes down each module that a process runs, or has from a library
TELL = """
import os, sys
told = os.open(os.environ["LOADED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
def hook(event, arguments):
    if event == "exec" and arguments[0].co_name == "<module>":
        os.write(told, os.fsencode(arguments[0].co_filename) + b"\\n")
    elif event == "import" and arguments[1]:
        os.write(told, os.fsencode(arguments[1]) + b"\\n")
sys.addaudithook(hook)
"""
# bytes of compiled code, by the version of Python
CODE = {(3, 10): 306_454, (3, 11): 497_359, (3, 12): 450_436, (3, 13): 460_228}
CALLS = 470  # system calls, a few more where a process waited longer for the other one


def environment(lockctl: Lockctl, **more: str) -> dict[str, str]:
    more.update({name: "" for name in os.environ if name.startswith("COV")})
    empty = str(lockctl.directory / ".none")
    return timing.environment({"LOCKCTL_BACKEND": lockctl.url, "XDG_CONFIG_HOME": empty, **more})


def loaded(lockctl: Lockctl, *words: str) -> collections.Counter[str]:
    """How often each module is loaded."""
    folder, told = lockctl.directory / ".told", lockctl.directory / ".loaded"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(TELL)
    told.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))  # of the tree: see conftest.py
    subprocess.run(words, env=environment(lockctl, PYTHONPATH=path, LOADED=str(told)), timeout=30, check=True)
    return collections.Counter(_name(Path(line)) for line in told.read_text().splitlines())


def _name(path: Path) -> str:
    """The module that this file is."""
    if path.is_relative_to(PACKAGE):
        path = path.relative_to(PACKAGE.parent).with_suffix("")
        return ".".join(path.parts).removesuffix(".__init__")
    return path.name.partition(".")[0]


def loaded_by_a_run(lockctl: Lockctl, *options: str) -> collections.Counter[str]:
    run = loaded(lockctl, lockctl.command, "run", *options, "--", "true")
    return run - loaded(lockctl, sys.executable, "-c", "pass")


@functools.cache
def code_of(module: str) -> int:
    """Bytes, wherever the module lies; none for a module in C."""
    spec = importlib.util.find_spec(module)
    read = getattr(spec and spec.loader, "get_source", None)
    source = read(module) if read else None
    return len(marshal.dumps(compile(source, module, "exec", dont_inherit=True))) if source else 0


def least(count: Callable[[], int], limit: float) -> int:
    """The least of a few tries, until one is not above *limit*."""
    counts = [count()]
    while counts[-1] > limit and len(counts) < TRIES:
        counts.append(count())
    return min(counts)


def test_a_run_loads_at_most_a_tenth_more_modules_than_recorded(lockctl: Lockctl) -> None:
    found: list[collections.Counter[str]] = []

    def count() -> int:
        found.append(loaded_by_a_run(lockctl))
        return found[-1].total()

    limit = RECORDED.total() * MORE
    fewest = least(count, RECORDED.total())
    modules = min(found, key=lambda each: each.total())
    new, gone = sorted((modules - RECORDED).elements()), sorted((RECORDED - modules).elements())
    print(f"modules: {fewest}, recorded {RECORDED.total()}; new: {new}; gone: {gone}")
    assert fewest <= limit, new
    assert [name for name in (*new, *gone) if name.startswith("lockctl")] == [], "see the lists in lockctl/loading.py"


def test_a_run_that_lasts_loads_later_what_it_may_need_and_no_large_library(lockctl: Lockctl) -> None:
    until_all_is_there = f'until grep -q /{preload.LATER[-1].replace(".", "/")}.py "$LOADED"; do sleep 0.05; done'
    modules = loaded(lockctl, lockctl.command, "run", "--", "sh", "-c", until_all_is_there)
    assert {"lockctl.stores.file.inspect", "lockctl.stores.file.revoke"} <= modules.keys()
    unneeded = {"lockctl.stores.file.prune", "lockctl.stores.file.doctor", *LIBRARIES}
    assert unneeded & (modules - loaded(lockctl, sys.executable, "-c", "pass")).keys() == set()


def test_a_run_loads_at_most_a_tenth_more_code_than_recorded(lockctl: Lockctl) -> None:
    def count() -> int:
        return sum(code_of(name) * times for name, times in loaded_by_a_run(lockctl).items())

    recorded = CODE.get(sys.version_info[:2])
    size = least(count, (recorded or 0) * MORE)
    print(f"bytes of code: {size}, recorded for this Python: {recorded}")
    if recorded is None:
        pytest.skip("nothing is recorded for this version of Python")
    assert size <= recorded * MORE


def need_tracing(said: str) -> None:
    """Skip the test if that is what strace says where no process may be traced, as in some containers."""
    if "ptrace" in said.lower():
        pytest.skip(f"strace may not trace here: {said.strip()}")


@pytest.fixture
def count_calls(lockctl: Lockctl, tmp_path: Path, need_tool: Callable[[str], str]) -> Callable[[Sequence[str]], int]:
    """How many system calls a command makes."""
    strace = need_tool("strace")
    table = tmp_path / "calls"

    def calls(words: Sequence[str]) -> int:
        traced = [strace, "-f", "-c", "-o", str(table), *words]
        done = subprocess.run(traced, env=environment(lockctl), capture_output=True, text=True, timeout=60, check=False)
        need_tracing(done.stderr)
        assert done.returncode == 0, done.stderr
        total = next(line for line in table.read_text().splitlines() if line.endswith("total"))
        return int(total.split()[3])

    return calls


def test_a_run_makes_at_most_a_tenth_more_system_calls_than_recorded(
    lockctl: Lockctl, count_calls: Callable[[Sequence[str]], int]
) -> None:
    count_calls([lockctl.command, "run", "--", "true"])  # the first run makes the directory ready

    def count() -> int:
        return count_calls([lockctl.command, "run", "--", "true"]) - count_calls([sys.executable, "-c", "pass"])

    fewest = least(count, CALLS * MORE)
    print(f"system calls: {fewest}, recorded {CALLS}")
    assert fewest <= CALLS * MORE


def test_a_refused_run_loads_no_more_than_one_that_runs_and_all_from_lists(lockctl: Lockctl) -> None:
    lockctl.start_holding("a")
    modules = loaded_by_a_run(lockctl, "-l", "a", "-E", "0")
    # the guard is ended as soon as it is not needed: how much of its half it has loaded depends on who was faster
    ours = {name for name in modules if name.startswith("lockctl")} - _full(f"{loading.GUARD} {REHEARSED}")
    asked = (loading.START, loading.TAKE, file.PATH, loading.REFUSED, file.LOOK)
    assert ours == _full(" ".join(asked)) | set(IMPORTED.split())
    of_one_that_runs = loaded_by_a_run(lockctl)
    assert {*modules} - {*of_one_that_runs} - _full(loading.REFUSED) - _full(file.LOOK) <= {"_json"}
    sizes = [sum(code_of(name) * times for name, times in each.items()) for each in (modules, of_one_that_runs)]
    assert sizes[0] <= sizes[1], sizes


def _full(names: str) -> set[str]:
    return {f"lockctl.{name}" for name in names.split()}


@pytest.mark.parametrize("mode", ["alone", "readers", "slots", "hold"])
def test_a_refused_run_does_not_ask_the_kernel_for_the_locks_of_all_files(
    lockctl: Lockctl, need_tool: Callable[[str], str], tmp_path: Path, mode: str
) -> None:
    options: dict[str, tuple[str, ...]] = {"readers": ("--shared",), "slots": ("--slots", "2")}
    if mode == "hold":
        lockctl("run", "-l", "a", "--min-hold", "60s", "--", "true")
    for _ in range({"hold": 0, "slots": 2}.get(mode, 1)):
        lockctl.start_holding("a", *options.get(mode, ()))
    told = tmp_path / "calls"
    words = (lockctl.command, "run", "-l", "a", *(options["slots"] if mode == "slots" else ()), "--", "true")
    traced = (need_tool("strace"), "-f", "-e", "trace=%file", "-o", str(told), *words)
    done = subprocess.run(traced, env=environment(lockctl), capture_output=True, text=True, timeout=60, check=False)
    need_tracing(done.stderr)
    assert done.returncode == 75, done.stderr
    calls = told.read_text()
    assert "/a" in calls
    # that takes 10 ms and longer, in which nobody on the host can take a lock, or free one
    assert "/proc/locks" not in calls


def test_a_refused_run_makes_no_more_system_calls_than_one_that_runs(
    lockctl: Lockctl, count_calls: Callable[[Sequence[str]], int]
) -> None:
    lockctl.start_holding("a")
    refused = [lockctl.command, "run", "-l", "a", "-E", "0", "--", "true"]
    runs = [lockctl.command, "run", "--", "true"]
    for words in (refused, runs):  # the first run makes the directory ready
        count_calls(words)
    most = count_calls(runs)
    assert least(lambda: count_calls(refused), most) <= most


@pytest.mark.parametrize("lock", ["held", "free"])
def test_a_run_that_tells_programs_how_it_went_loads_no_large_library(lockctl: Lockctl, lock: str) -> None:
    lockctl.start_holding("held")
    places = ("--report", str(lockctl.directory / ".report"), "--metrics-dir", str(lockctl.directory))
    modules = loaded_by_a_run(lockctl, "-l", lock, "-E", "0", "--log-format", "json", "-v", *places)
    assert "lockctl.cli.report" in modules
    assert LIBRARIES.isdisjoint(modules)


@pytest.mark.parametrize("words", [("./nightly.sh",), ("curl", "-fsS", "https://example.org/monkey?design=1")])
def test_a_command_without_secrets_is_shown_without_regular_expressions(lockctl: Lockctl, words: Sequence[str]) -> None:
    run = loaded(lockctl, lockctl.command, "run", "--", "true", *words)
    assert LIBRARIES.isdisjoint(run - loaded(lockctl, sys.executable, "-c", "pass"))


def test_who_is_refused_without_a_word_does_not_look_who_has_the_lock(lockctl: Lockctl) -> None:
    lockctl.start_holding("a")
    looks = [
        "lockctl.stores.file.holder" in loaded(lockctl, lockctl.command, "run", "-l", "a", *options, "--", "false")
        for options in (("-E", "0"), ("--skip-ok",), ("--skip-ok", "--report", "/dev/null"))
    ]
    assert looks == [True, False, True]
