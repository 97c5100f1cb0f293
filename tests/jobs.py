"""Running the real `lockctl` from outside, and looking at the processes of its jobs."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockctl.supervise import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LIMIT = 30.0  # seconds: nothing in a test may take longer
ATTEMPTS = 3
LONGEST_PAUSE = 0.05  # seconds
NO_STACK = 1 << 47  # bytes: more than a process has addresses
ROUNDS = 200_000  # of a loop that does nothing
ROUNDS_TAKE = 0.0033  # seconds of the processor for which limits of its time are meant


def eventually(condition: Callable[[], Any], limit: float = 10.0, pause: float = 0.005) -> Any:
    """Poll until *condition* is true and give its value; fails after *limit* seconds.

    A condition that takes long, as one that starts programs does, is asked half of the time at most, and one that is
    waited for long is seen a fiftieth of that time late at most.
    """
    begun = time.monotonic()
    until = begun + limit
    while True:
        asked = time.monotonic()
        found = condition()
        if found:
            return found
        answered = time.monotonic()
        if answered > until:
            message = f"did not happen within {limit} s: {condition}"
            raise AssertionError(message)
        time.sleep(max(pause, answered - asked, min((answered - begun) / 50, LONGEST_PAUSE)))


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """This process can start none meanwhile, as if its user had too many processes."""
    before = _thread.stack_size(NO_STACK)
    try:
        yield
    finally:
        _thread.stack_size(before)


def best_of_a_few(attempt: Callable[[], float], limit: float) -> None:
    """Assert that *attempt*, which tells how many seconds it took, stays below *limit* in one of three tries.

    On a busy machine the best of a few is what lockctl itself takes.
    """
    took = [attempt()]
    while took[-1] >= limit and len(took) < ATTEMPTS:
        took.append(attempt())
    assert took[-1] < limit, took


def processor_time(work: Callable[[], object]) -> float:
    """The seconds that *work* takes of the processor, with programs that have ended by then.

    Where that is slower than the one for which limits are meant, by itself or since neighbours use it, they count less.
    """
    before = os.times()
    work()
    after = os.times()
    began = time.process_time()
    for _ in range(ROUNDS):
        pass
    slower = max(1.0, (time.process_time() - began) / ROUNDS_TAKE)
    return (sum(after[:4]) - sum(before[:4])) / slower


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    fields = tree.stat_fields(pid)
    return fields is not None and fields[0] not in {b"Z", b"X"}


def stop(pid: int) -> None:
    """Stop a process (SIGSTOP), but not while it writes to a database file, which nobody else could write then.

    There is no server that would end such a write: see SQLITE in lockctl-backends(7).
    """

    def is_stopped() -> bool:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: (tree.stat_fields(pid) or [b""])[0] not in {b"R", b"S", b"D"})
        locks = [line.split()[1:5] for line in Path("/proc/locks").read_text().splitlines()]
        if ["POSIX", "ADVISORY", "WRITE", str(pid)] not in locks:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    eventually(is_stopped)


def guard_of(keeper: int) -> int:
    """The pid of the guard process of a running `lockctl run`."""

    def find() -> int | None:
        for pid in tree.children(keeper):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            if name == "lease-guard":
                return pid
        return None

    return int(eventually(find))


class Lockctl:
    """`lockctl` with its locks in a directory of the test. The environment is the test's, without LOCKCTL_*."""

    def __init__(self, command: str, directory: Path) -> None:
        self.command = command
        self.directory = directory
        self.url = f"file://{directory}"
        self._started: list[subprocess.Popen[Any]] = []

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """A clean environment whose configuration is empty and whose default backend is the test's."""
        kept = {name: content for name, content in os.environ.items() if not name.startswith("LOCKCTL_")}
        kept.update(LOCKCTL_BACKEND=self.url, XDG_CONFIG_HOME=str(self.directory / ".no-config"))
        kept.update(extra or {})
        if extra and "PYTHONPATH" in extra and "PYTHONPATH" in os.environ:  # see conftest.py
            kept["PYTHONPATH"] = os.pathsep.join((extra["PYTHONPATH"], os.environ["PYTHONPATH"]))
        return kept

    def __call__(
        self,
        *words: str,
        within: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, executed by the words *within*; stdout and stderr as text unless *options* say otherwise."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*within, self.command, *words],
            env=self.environment(env),
            timeout=limit,
            text=True,
            check=False,
            **options,
        )

    def start(self, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start and go on; the keeper is the process given back. Ended with all its processes after the test."""
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([self.command, *words], env=self.environment(env), text=True, **options)
        self._started.append(process)
        return process

    def start_holding(self, name: str, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a run that holds lock *name* (words: options, then `--` and a command; default: sleep)."""
        ready = self.directory / f".ready-{name}-{len(self._started)}"
        options_part, command = list(words), ["sleep", "60"]
        if "--" in words:
            cut = words.index("--")
            options_part, command = list(words[:cut]), list(words[cut + 1 :])
        script = ': >"$0"; exec "$@"'
        process = self.start(
            "run", "-l", name, *options_part, "--", "sh", "-c", script, str(ready), *command, **options
        )
        eventually(ready.exists)
        return process

    def end_all(self) -> None:
        """Kill what is still running: keepers, guards and everything below them."""
        for process in self._started:
            if process.poll() is None:
                family = tree.descendants(process.pid)
                for pid in [process.pid, *family]:
                    tree.send(pid, signal.SIGKILL)
            process.wait(timeout=LIMIT)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
