"""The whole suite as `make test` runs it, and the part of pytest that tells what each test took.

Most tests wait for leases to end, so they run beside each other; what measures a time runs alone. A test that fails
is run once more, by itself: one that passes then is unstable, and is shown with both outputs. The suite is green
when nothing failed twice and at most ``MOST_UNSTABLE`` were unstable.

    python -m tests.suite          the whole suite
    python -m tests.suite quick    the units, and the contract in memory: no program is started, no long wait
    python -m tests.suite soak 5   the whole suite that often, beside a program that takes a core
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKERS = "12"  # for two cores: most of the time most tests wait, but each worker collects all tests and starts servers
ALONE = (
    "tests/times",
    "tests/bench/test_start_up.py::test_a_run_is_not_slower_than_consul_lock",
    "tests/faults/test_overlap.py::test_so_it_does_when_a_daemon_hops_from_pid_to_pid",
    "tests/faults/test_contention.py",
    "tests/faults/test_hiccup.py::test_the_end_of_the_connection_that_holds_the_lock_ends_the_job_at_once",
    "tests/faults/test_signal_storm.py",
)
SLOWEST = 10  # tests that are named at the end
MOST_UNSTABLE = 2  # in one run that is still green
MOST_REPEATED = 20  # with more failures than these it is no accident
MEMORY = Path("/dev/shm")
ENOUGH = 6 << 30  # bytes of it: the servers of all workers need two at most
GREEN, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
A_CORE = """
import os
parent = os.getppid()
while os.getppid() == parent:  # also when the suite is killed
    for _ in range(100_000): pass
"""


class Recorder:
    """Keeps, in the process that collects all reports, what each test took and how it failed."""

    def __init__(self, path: str) -> None:
        """Written to *path* when the session ends."""
        self._path = Path(path)
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        test = self._tests.setdefault(report.nodeid, {"seconds": 0.0, "passed": False, "failed": False, "output": ""})
        test["seconds"] += report.duration
        test["passed"] |= report.when == "call" and report.passed
        if report.failed:
            test["failed"] = True
            captured = [f"{title}\n{text}" for title, text in report.sections]
            test["output"] += "\n".join([report.longreprtext, *captured, ""])

    def pytest_sessionfinish(self) -> None:
        """Everything is known."""
        self._path.write_text(json.dumps(self._tests))


def pytest_addoption(parser: pytest.Parser) -> None:
    """For ``-p tests.suite``."""
    parser.addoption("--record", help="write what each test took and how it failed to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that the user started records; the workers report to it."""
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path))


class Part(NamedTuple):
    """Tests that run in one process of pytest, or in several beside each other."""

    name: str
    options: tuple[str, ...]


class Ran(NamedTuple):
    """How a part, or a test that was repeated, ended."""

    status: int
    seconds: float
    tests: dict[str, dict[str, Any]]

    def failures(self) -> list[str]:
        """The names of the tests that failed."""
        return [name for name, test in self.tests.items() if test["failed"]]

    def is_broken(self) -> bool:
        """Whether tests were not collected, or not run to the end."""
        return self.status != GREEN and (self.status != FAILED or not self.failures())


WHOLE = (
    Part("side by side", ("-n", WORKERS, *(f"--deselect={name}" for name in ALONE))),
    # in a worker too: a test that hangs ends its worker, and not the part
    Part("alone", ("-n", "1", *ALONE)),
)
QUICK = (Part("quick", ("-n", "3", "-m", "quick", "tests/unit", "tests/contract/test_memory.py")),)


def fast_directory() -> Path | None:
    """Where servers that flush all that they write lose no time by it; ``None``: not on this machine."""
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return None
    usable = os.access(MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC
    return MEMORY if usable and found.f_bavail * found.f_frsize >= ENOUGH else None


def environment(directory: Path) -> dict[str, str]:
    """That of this process, with all files of the tests below *directory*.

    What is compiled of the tests is kept: each worker and each part reads all of them.
    """
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "TMPDIR": str(directory)}


def command_line(options: Sequence[str], record: Path) -> list[str]:
    """The command for one process of pytest. Its directory has a short name, for sockets of servers."""
    where = ("--rootdir=.", f"--basetemp={record.parent / 'files'}")
    return [sys.executable, "-m", "pytest", *where, "-p", "tests.suite", "--record", str(record), *options]


def run_part(part: Part, directory: Path) -> Ran:
    """Run the tests of a part; what pytest prints is shown."""
    record = directory / "record"
    record.unlink(missing_ok=True)
    began = time.monotonic()
    status = subprocess.run(command_line(part.options, record), check=False, env=environment(directory)).returncode
    tests = json.loads(record.read_text()) if record.exists() else {}
    return Ran(status, time.monotonic() - began, tests)


def repeat(name: str, directory: Path) -> tuple[bool, str]:
    """Run one test by itself: whether it passed, and what pytest printed."""
    done = subprocess.run(
        command_line(("-rP", name), directory / "repeated"),
        check=False,
        env=environment(directory),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode == GREEN, done.stdout


def run_suite(parts: Sequence[Part]) -> tuple[bool, list[str]]:
    """Run all parts, print the end of it, and tell whether it is green and which tests were unstable."""
    with tempfile.TemporaryDirectory(prefix="lockctl-", dir=fast_directory(), ignore_cleanup_errors=True) as made:
        directory = Path(made)
        directory.chmod(0o755)  # tests have other users, too
        ran = {part.name: run_part(part, directory) for part in parts}
        tests = {name: test for each in ran.values() for name, test in each.tests.items()}
        failures = [name for each in ran.values() for name in each.failures()]
        broken = [name for name, each in ran.items() if each.is_broken()]
        again = {}
        if len(failures) <= MOST_REPEATED:
            for name in failures:
                print(f"\nonce more, alone: {name}", flush=True)
                again[name] = repeat(name, directory)
    unstable = [name for name, (passed, _) in again.items() if passed]
    for name in unstable:
        print(f"\n== unstable: {name}\n-- it failed\n{tests[name]['output']}\n-- it passed\n{again[name][1]}")
    failed_twice = [name for name in failures if name not in unstable]
    for name in failed_twice:
        print(f"\n== failed: {name}\n{again.get(name, (False, tests[name]['output']))[1]}")
    print(f"\nthe {SLOWEST} slowest tests:")
    for name in sorted(tests, key=lambda name: tests[name]["seconds"], reverse=True)[:SLOWEST]:
        print(f"{tests[name]['seconds']:8.1f} s  {name}")
    print("the parts:")
    for name, each in ran.items():
        print(f"{each.seconds:8.1f} s  {name}: {len(each.tests)} tests")
    for title, names in (("unstable", unstable), ("failed", failed_twice), ("broken", broken)):
        print(f"{title}: {', '.join(names) or 'none'}")
    green = not failed_twice and not broken and len(unstable) <= MOST_UNSTABLE
    passed = sum(test["passed"] and not test["failed"] for test in tests.values()) + len(unstable)
    print(f"{passed} passed, {len(failed_twice)} failed", flush=True)
    return green, unstable


@contextlib.contextmanager
def core_taken() -> Iterator[None]:
    """A program takes a core meanwhile."""
    program = subprocess.Popen([sys.executable, "-I", "-S", "-c", A_CORE])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def soak(times: int) -> bool:
    """Run the whole suite so often beside a program that takes a core; print what was ever unstable."""
    rounds = []
    for number in range(1, times + 1):
        print(f"\n==== run {number} of {times}, beside a program that takes a core", flush=True)
        with core_taken():
            rounds.append(run_suite(WHOLE))
    print(f"\n{sum(green for green, _ in rounds)} of {times} runs were green")
    print("ever unstable:", *sorted({name for _, unstable in rounds for name in unstable}) or ["nothing"], sep="\n    ")
    return all(green for green, _ in rounds)


def main(words: Sequence[str]) -> int:
    """The status for the shell."""
    os.chdir(Path(__file__).parent.parent)
    if words[:1] == ["soak"]:
        return 0 if soak(int(words[1]) if len(words) > 1 else 5) else 1
    green, _ = run_suite(QUICK if words[:1] == ["quick"] else WHOLE)
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
