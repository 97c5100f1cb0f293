"""What a process costs while it holds a lock."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lockctl.supervise import tree
from tests.bench import timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATIENCE = 5.0  # seconds for a tool to end after its command


@contextlib.contextmanager
def holding(
    words: Sequence[str], env: Mapping[str, str], life: int = 60, *, quiet: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A lock that is held for as long as the block lasts, at most *life* seconds; the process that was started.

    *quiet*: what it writes to stderr is not shown, such as a complaint about the end of its command.
    """
    # not a program that reads stdin: consul lock gives its command none
    command = [*words, "sh", "-c", f"echo; exec sleep {life}"]
    errors = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        # its command and not the tool: etcdctl lock waits for its command even when it is told to end
        *_, command_pid = tree.descendants(process.pid)
        tree.send(command_pid, signal.SIGTERM)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=timing.LIMIT)
        process.stdout.close()


def pss(pid: int) -> int:
    """Kilobytes; pages that are shared are divided among those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("no Pss line in smaps_rollup")


def let_it_renew(seconds: float) -> None:
    """What renewing needs is loaded at the first renewal."""
    time.sleep(seconds)
