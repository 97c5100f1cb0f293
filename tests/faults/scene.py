"""Two runs on one lock: a first job that stamps the time while it lives, and a second one that waits."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lockctl.supervise import tree
from tests.faults import canary
from tests.jobs import LIMIT, eventually, guard_of

if TYPE_CHECKING:
    from subprocess import Popen

    from tests.jobs import Lockctl

GRACE = 0.25  # seconds, --kill-after
PYTHON = (sys.executable, "-I", "-S", canary.__file__)


def marked(mark: str) -> list[int]:
    """The living processes that were started with ``SCENE=mark`` in their environment, or by one of them."""
    wanted = b"SCENE=" + mark.encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue  # gone, or another user's
        fields = tree.stat_fields(int(entry))
        if wanted in environment.split(b"\0") and fields is not None and fields[0] not in {b"Z", b"X"}:
            found.append(int(entry))
    return found


class Scene:
    """The first job holds lock *name* and has stamped; the second run has come to the lock."""

    def __init__(
        self,
        lockctl: Lockctl,
        ttl: float,
        directory: Path,
        name: str,
        traits: tuple[str, ...],
        *options: str,
        second_url: str = "",
    ) -> None:
        """*second_url* is the lock's place for the second run, where that is not the first one's."""
        self.directory = directory
        self.name = name
        self.mark = str(directory)
        common = ("-l", name, "-t", f"{ttl}s", "-k", f"{GRACE}s")
        env = {"SCENE": self.mark}
        directory.mkdir()
        self.first: Popen[str]
        with (directory / "said").open("w") as said:
            words = ("-v", *common, *options, "--", *PYTHON, "first", str(directory), *traits)
            self.first = lockctl.start("run", *words, env=env, stderr=said)
        self.guard = guard_of(self.first.pid)
        for process in ("daemon",) * ("daemon" in traits) + ("command",) * ("leaves" not in traits):
            eventually(lambda process=process: self._is_ready(process))  # type: ignore[misc]
        started, told = directory / "started", directory / "said.second"
        note_start = 'set -e; : >"$0"; exec "$@"'
        place = ("-b", second_url or lockctl.url, *common, "--wait", "forever")
        self.second: Popen[str]
        with told.open("w") as errors:
            words = ("-v", *place, "--", "sh", "-c", note_start, str(started), *PYTHON, "second", str(directory))
            self.second = lockctl.start("run", *words, env=env, stderr=errors)
        # it was refused once, or the lock is already free
        eventually(lambda: "waiting for" in told.read_text() or started.exists() or self.second.poll() is not None)

    def _is_ready(self, process: str) -> bool:
        ready = (self.directory / f"ready.{process}").exists()
        ended = self.first.poll() if not ready else None
        assert ended is None, f"the first run ended with {ended}: {(self.directory / 'said').read_text()}"
        return ready

    def command(self) -> int:
        """The pid of the first command."""
        return int((self.directory / "ready.command").read_text())

    def await_second(self) -> None:
        """Wait until the second command has run."""
        eventually((self.directory / "second").exists, LIMIT)

    def overlaps(self) -> list[str]:
        """What of the first job was seen after the start of the second command; empty is right."""
        start, *alive = (self.directory / "second").read_text().split()
        wrong = [f"process {pid} was alive" for pid in alive]
        for file in self.directory.glob("stamps.*"):
            lines = file.read_text().splitlines()
            if "overlap" in lines:
                wrong.append(f"{file.name} saw the second command {lines.count('overlap')} times")
            last = max(int(line) for line in lines if line != "overlap")
            if last >= int(start):
                wrong.append(f"{file.name} goes on for {(last - int(start)) / 1e6} ms")
        return wrong
