"""Pictures of the screens at several widths, `make screens`: what `lockctl` draws on real terminals, of 200 real locks.

The locks are held in a database by claims with names of hosts as clouds give them; everything else is the program's.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lockctl import registry
from lockctl.model import Claim, Run
from lockctl.url import parse_url
from tests.run.terminal import Screen
from tests.session import FONT

if TYPE_CHECKING:
    from lockctl.backend import Backend

PICTURES = Path(__file__).resolve().parents[1] / "man/screens"
LOCKCTL = str(Path(sys.executable).parent / "lockctl")
LOCKS = 200
JOBS = ("billing-export", "cache-warm", "deploy-web", "log-rotate", "mail-digest", "search-index", "nightly-backup")
REGIONS = ("eu-central-1", "eu-west-3", "us-east-1", "ap-south-1")
LONG = "nightly-" + "a-name-that-somebody-made-of-a-whole-path-and-its-arguments-" * 2 + "end"
WIDTHS = (60, 80, 120, 200)
TTL = 3600.0  # seconds
DAY = 86400.0
BEGAN = 1795000000.0  # when the runs of the history began: 2026-11-18


def host(number: int) -> str:
    """The name of a virtual machine."""
    return f"ip-10-0-{number % 8}-{number % 251}.{REGIONS[number % 4]}.compute.internal"


def claim(name: str, number: int) -> Claim:
    """What a run on that host would ask for."""
    command = (f"/opt/jobs/bin/{name[:20]}", "--target", f"s3://backups-{REGIONS[number % 4]}/{name[:20]}", "--verbose")
    return Claim(name, f"{number:032x}", TTL, host(number), 4000 + 7 * number, "ops", command)


def fill(backend: Backend) -> None:
    """Hold 200 locks, two with waiters, and remember some runs."""
    names = [LONG, *(f"{JOBS[number % len(JOBS)]}-{number // len(JOBS):02}" for number in range(LOCKS - 1))]
    for number, name in enumerate(names):
        assert backend.try_acquire(claim(name, number), timeout=10)
    for number, name in ((301, "nightly-backup-00"), (302, "nightly-backup-00"), (303, "deploy-web-03")):
        waiting = claim(name, number)
        assert backend.try_acquire(waiting, timeout=10) is None
        backend.wait(waiting, timeout=0.01, interrupt=None)
    for number, (outcome, status, detail) in enumerate(
        (("exited", 0, None), ("exited", 2, None), ("revoked", 143, "force-released by ops@bastion: rollback"))
    ):
        began, took = BEGAN + number * DAY, 61.5 * (number + 1)
        words = claim("nightly-backup-00", number).command
        run = Run(host(number), "ops", words, 1794 + number, began, began + took, took, 0.1, outcome, status, detail)
        backend.remember("nightly-backup-00", run, timeout=10)


def draw(name: str, width: int, lines: list[str]) -> None:
    """Write a picture of what is on a terminal."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=False, overflow="ignore")
    drawn = FONT.sub("", console.export_svg(title=f"{name} ({width} columns)", unique_id=f"{name}-{width}"))
    PICTURES.mkdir(exist_ok=True)
    text = "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"
    (PICTURES / f"{name}-{width}.svg").write_text(text, encoding="utf-8")


def printed(width: int, *words: str, env: dict[str, str]) -> list[str]:
    """What a command writes to a terminal, after the line that was typed."""
    screen = Screen(LOCKCTL, *words, env=env, columns=width)
    try:
        screen.wait()
        return [f"$ lockctl {' '.join(words)}", *screen.sent.replace("\r", "").splitlines()]
    finally:
        screen.end()


def watched(width: int, keys: str, pattern: str, env: dict[str, str]) -> list[str]:
    """What `watch` shows after some keys."""
    screen = Screen(LOCKCTL, "watch", env=env, columns=width)
    try:
        screen.until("^NAME")
        screen.type(keys)
        screen.until(pattern)
        return screen.drawn()
    finally:
        screen.end()


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:{directory}/locks.db"
        env = {**os.environ, "LOCKCTL_BACKEND": url, "LANG": "C.UTF-8", "NO_COLOR": ""}
        fill(registry.open_backend(parse_url(url)))
        for width in WIDTHS:
            draw("list", width, printed(width, "list", "nightly*", env=env)[:18])
            draw("watch", width, watched(width, "\x1b[B\x1b[B", "more$", env))
            draw("history", width, printed(width, "history", "nightly-backup-00", env=env))
            draw("inspect", width, printed(width, "inspect", "nightly-backup-00", env=env))
        draw("release", 120, watched(120, "/backup-00\rf", "y/N", env))
        draw("backends", 80, printed(80, "backends", env=env)[:11])
        draw("config", 80, printed(80, "config", "show", env=env)[:12])


if __name__ == "__main__":
    main()
