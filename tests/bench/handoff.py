"""The time from the end of a holder's command to the start of the waiter's command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

from tests.bench.timing import LIMIT
from tests.bench.tools import LOCKCTL
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.bench.tools import Tool

# seconds: those who poll do so at their usual pace by then. A peer does not tell whether it waits; on a busy machine a
# script may need longer to begin, which shows in single samples and not in the median
SETTLE = 1.0
WITHOUT_LIST = ("lockctl run, redlock",)  # its waiters are not known to the servers


class TooSlow(Exception):
    """A tool did not pass the lock on within ``LIMIT``."""


def samples(
    tools: Sequence[Tool], stamp: str, env: Mapping[str, str], directory: Path, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each tool in each round, in turn. A peer that hangs took ``LIMIT``; lockctl may not hang."""
    times: dict[str, list[float]] = {tool.name: [] for tool in tools}
    for number in range(rounds):
        for tool in tools:
            place = directory / f"handoff-{number}-{tools.index(tool)}"
            place.mkdir()
            try:
                took = seconds(tool, f"handoff-{number}", stamp, env, place)
            except TooSlow:
                if tool.url:
                    raise
                took = LIMIT
            times[tool.name].append(took)
    return times


def seconds(tool: Tool, lock: str, stamp: str, env: Mapping[str, str], directory: Path) -> float:
    """One hand-off of a lock that nobody has used before. Raises ``TooSlow``."""
    fifo, ended, begun = directory / "fifo", directory / "ended", directory / "begun"
    os.mkfifo(fifo)
    with _running([*tool.words(lock, False), stamp, str(ended), str(fifo)], env) as holder:
        gate = eventually(lambda: _opened(fifo, holder), LIMIT)
        try:
            with _running([*tool.words(lock, True), stamp, str(begun)], env) as waiter:
                if tool.url and tool.name not in WITHOUT_LIST:
                    eventually(lambda: _waiters(tool.url, lock, env), LIMIT)
                time.sleep(SETTLE)
                if waiter.poll() is not None or begun.exists():
                    raise RuntimeError(f"{tool.name} did not wait for the lock")
                os.close(gate)
                gate = None
                _end(tool, waiter)
                _end(tool, holder)
        finally:
            if gate is not None:
                os.close(gate)
    return float(begun.read_text()) - float(ended.read_text())


@contextlib.contextmanager
def _running(words: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _opened(fifo: Path, holder: subprocess.Popen[bytes]) -> int | None:
    """The other end of the FIFO, as soon as the holder's command has opened it."""
    if holder.poll() is not None:
        raise RuntimeError(f"the holder ended with {holder.returncode}: {holder.args!r}")
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def _waiters(url: str, lock: str, env: Mapping[str, str]) -> bool:
    words = [LOCKCTL, "inspect", "-b", url, "--json", lock]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=LIMIT)
    return bool(json.loads(done.stdout)["waiters"])


def _end(tool: Tool, process: subprocess.Popen[bytes]) -> None:
    try:
        status = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        raise TooSlow(f"{tool.name} did not end within {LIMIT:g} s") from None
    if status != 0:
        raise RuntimeError(f"{tool.name} ended with {status}")
