"""Wall time of short commands, measured so that noise hits all of them alike."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT = 15.0  # seconds for one command
WARM_UP = 2  # runs that do not count: bytecode is written, files come into memory


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The present one with compiled bytecode, and without settings of lockctl."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LOCKCTL_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, **extra}


def seconds(command: Sequence[str], env: Mapping[str, str], expected: int = 0) -> float:
    """How long one command takes; it must end with the *expected* status.

    A peer that hangs (as `consul lock` does now and then) is killed, and took ``LIMIT``; lockctl may not hang.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ended = select.poll()
    descriptor = os.pidfd_open(process.pid)  # a wait with a time limit would poll, in steps of milliseconds
    ended.register(descriptor, select.POLLIN)
    if not ended.poll(LIMIT * 1000):
        process.kill()
    took = time.perf_counter() - begun
    os.close(descriptor)
    status = process.wait()
    if took >= LIMIT and not command[0].endswith("lockctl"):
        return LIMIT
    if status != expected:
        message = f"{command} ended with {status}, not {expected}"
        raise RuntimeError(message)
    return took


def samples(
    commands: Mapping[str, tuple[Sequence[str], int]], env: Mapping[str, str], rounds: int = 20
) -> dict[str, list[float]]:
    """The times of each command (words and expected status), run in turn."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(WARM_UP + rounds):
        for name, (words, expected) in commands.items():
            took = seconds(words, env, expected)
            if number >= WARM_UP:
                times[name].append(took)
    return times


def medians(
    commands: Mapping[str, tuple[Sequence[str], int]], env: Mapping[str, str], rounds: int = 20
) -> dict[str, float]:
    """The median time of each command, see ``samples``."""
    return {name: statistics.median(times) for name, times in samples(commands, env, rounds).items()}
