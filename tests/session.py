"""The picture of README.md, `make picture`: a real session of two hosts and a Redis server, as a terminal shows it.

The hosts are two UTS namespaces, so it needs root. Everything that is shown was printed by the commands shown.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tests.jobs import LIMIT, eventually
from tests.scratch import local_directory
from tests.servers.process import descendants
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "man/session.svg"
WIDTH = 84  # columns
JOB = """#!/bin/sh
echo "nightly: runs on $(uname -n) with token $LOCKCTL_TOKEN"
test "$(uname -n)" = web1 || exit 0
setsid ./daemon &
wait
"""
DAEMON = """#!/bin/sh
trap "" TERM HUP
read forever <>fifo
"""
STYLES = {"web1": "bold cyan", "web2": "bold magenta"}
FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # which a browser would fetch from another site


class Host:
    """A host: its name is what `uname` says to its processes."""

    def __init__(self, name: str, directory: Path, url: str, show: Callable[[str, str], None]) -> None:
        self.name, self._directory, self._show = name, directory, show
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = str(directory / name)
        self._environment = {
            "PATH": path,
            "HOME": home,
            "LOCKCTL_BACKEND": url,
            "COLUMNS": str(WIDTH),
            "LANG": "C.UTF-8",
        }
        self.log = directory / f"{name}.log"

    def start(self, line: str) -> subprocess.Popen[bytes]:
        """Show and start a command line, whose output goes to the log."""
        self._show(self.name, f"$ {line} &")
        with self.log.open("wb") as log:
            return self._run(line, stdout=log, stderr=log)

    def says(self, pattern: str) -> None:
        """Show what the log has, as soon as it has this."""
        eventually(lambda: re.search(pattern, self.log.read_text()), limit=LIMIT)
        for line in self.log.read_text().splitlines():
            self._show(self.name, line)

    def type(self, line: str) -> None:
        """Show a command line and what it prints."""
        self._show(self.name, f"$ {line}")
        for said in self.output(line).splitlines():
            self._show(self.name, said)

    def output(self, line: str) -> str:
        """What a command line prints."""
        done = self._run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.communicate()[0].decode()

    def _run(self, line: str, **streams: object) -> subprocess.Popen[bytes]:
        words = ["unshare", "--uts", "sh", "-c", f"hostname {self.name}; {'' if '|' in line else 'exec '}{line}"]
        return subprocess.Popen(words, cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL, **streams)  # type: ignore[call-overload,no-any-return]


def play(directory: Path, url: str, show: Callable[[str, str], None]) -> None:
    """The session: a job on one host, a waiter on the other one, and a SIGKILL."""
    os.mkfifo(directory / "fifo")
    for name, script in (("nightly", JOB), ("daemon", DAEMON)):
        (directory / name).write_text(script)
        (directory / name).chmod(0o755)
    web1, web2 = (Host(name, directory, url, show) for name in ("web1", "web2"))
    first = web1.start("lockctl run -l nightly --ttl 5s -- ./nightly")
    web1.says("token")
    second = web2.start("lockctl run -l nightly --ttl 5s --wait 1h -- ./nightly")
    eventually(lambda: "web2" in web2.output("lockctl inspect nightly"), limit=LIMIT)
    web2.type("lockctl inspect nightly | grep web")
    tree = [first.pid, *descendants(first.pid)]
    pids = ",".join(map(str, sorted(tree)))
    web1.type(f"ps -o pid,comm -p {pids}")
    web1.type(f"kill -KILL {first.pid}")
    first.wait(LIMIT)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tree), limit=LIMIT)
    web1.type(f"ps -o pid,comm -p {pids}")
    web2.says("runs on web2")
    assert second.wait(LIMIT) == 0


def main() -> None:
    """Play it and write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")

    def show(host: str, line: str) -> None:
        style = "bold" if line.startswith("$") else ""
        console.print(Text.assemble((f"{host} │ ", STYLES[host]), (line, style)), soft_wrap=False)

    with tempfile.TemporaryDirectory(dir=local_directory()) as directory, Redis(Path(directory) / "redis") as server:
        play(Path(directory), server.url, show)
    svg = FONT.sub("", console.export_svg(title="two hosts, one lock", unique_id="session"))
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.strip().splitlines()) + "\n", encoding="utf-8")
    print(re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue()))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
