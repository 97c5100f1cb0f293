"""The full experiment, `make lostupdate`: how many acknowledged updates a paused holder destroys.

Redis, etcd and PostgreSQL are started, all variants run side by side on each, and the results are written beside this
file: ``RESULTS.md`` and ``results.svg``. The status is 1 if the variant without a fence did not lose enough for the
experiment to mean something, or if a registered token lost an update.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lockctl import __version__
from tests.faults.backends import PLACES
from tests.lostupdate import picture
from tests.lostupdate.plan import SAFE, VARIANTS, Order, Pace, Result
from tests.scratch import local_directory
from tests.servers import programs
from tests.servers.etcd import Etcd
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers.process import Server

HERE = Path(__file__).resolve().parent
PROGRAMS = {"redis": "redis-server", "etcd": "etcd", "postgresql": "postgres"}
TEETH = 5.0  # percent that must be lost without a fence
ENOUGH = 100  # acknowledged updates in each cell
ENDING = 120.0  # seconds for starting and ending the workers
NOTES = """\
Five workers share a list. Each takes the lock, reads the list, thinks for up to {section:g} s, writes the list with its
own update appended, and notes that the update was acknowledged. The lease is {ttl:g} s and is renewed all the time. About
every {every:g} s the worker that has read and not yet written is stopped (SIGSTOP, with all its threads) for
{shortest_pause:g} to {longest_pause:g} s, as a hypervisor, a laptop's lid or a full swap do it. Lost is what was
acknowledged and is not in the list at the end. Each variant has {groups} such lists, all at the same time.

- "Deadline checked before the write": the worker looks at its clock, and does not write when the lease has ended. That
  works as long as the pause falls before the look. It cannot be told that it does: in the next row the same pause falls
  between look and write.
- "Token checked at the write only": the list refuses a token that is lower than that of the last *write*. A holder that
  was paused can come back after its successor has read and before that has written: it is let in, and then overwritten.
  In the next row it comes back always then.
- "Token registered before the read": every holder shows its token before it reads, and again with its write.
"""


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(
        prog="make lostupdate", description="Count the updates that a paused holder loses."
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the workers run")
    parser.add_argument("--groups", type=int, default=2, help="independent lists for each variant")
    parser.add_argument("--into", type=Path, default=HERE, help="where RESULTS.md and results.svg go")
    asked = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lockctl-lostupdate-", dir=local_directory()))
    os.chmod(directory, 0o755)  # a server that refuses root runs as another user
    try:
        with contextlib.ExitStack() as ends:
            servers: dict[str, Server] = {
                "redis": Redis(directory / "redis"),
                "etcd": Etcd(directory / "etcd"),
                "postgresql": Postgres(directory / "postgresql", extra=["max_connections = 400"]),
            }
            urls = {}
            for name, server in servers.items():
                ends.callback(server.stop)
                server.start()
                urls[name] = PLACES[name].url([server.address], "race", directory)
            orders = [Order(variant, groups=asked.groups, updates=10**9) for variant in VARIANTS]
            results = dict(run_all(urls, directory, Pace(), orders, asked.seconds))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = as_text(results, asked.seconds, asked.groups)
    print(text)
    (asked.into / "RESULTS.md").write_text(text, encoding="utf-8")
    (asked.into / "results.svg").write_text(
        picture.svg(results, "Acknowledged updates that were lost"), encoding="utf-8"
    )
    wrong = list(failures(results))
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


def run_all(
    urls: dict[str, str], directory: Path, pace: Pace, orders: Sequence[Order], seconds: float
) -> Iterator[tuple[str, list[Result]]]:
    """The results of each backend; all run beside each other."""
    with contextlib.ExitStack() as ends:
        racing = {}
        for name, url in urls.items():
            (directory / f"{name}-lists").mkdir()
            racing[name] = ends.enter_context(start_race(url, directory / f"{name}-lists", pace, orders, seconds))
        for name, process in racing.items():
            yield name, results_of(process, seconds + ENDING)


@contextlib.contextmanager
def start_race(
    url: str, directory: Path, pace: Pace, orders: Sequence[Order], seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """One backend in a process of its own, which is told what to do; it does not outlive the block."""
    words = [sys.executable, "-m", "tests.lostupdate.race", url, str(directory), str(seconds)]
    root = HERE.parent.parent
    process = subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        json.dump({"pace": pace._asdict(), "orders": [order._asdict() for order in orders]}, process.stdin)
        process.stdin.close()
        process.stdin = None
        yield process
    finally:
        process.kill()
        process.communicate()


def results_of(process: subprocess.Popen[str], limit: float) -> list[Result]:
    """What a race has found, in the order of its orders."""
    answer, _ = process.communicate(timeout=limit)
    if process.returncode:
        raise RuntimeError(f"the race ended with {process.returncode}")
    return [Result(**each) for each in json.loads(answer)]


def failures(results: dict[str, list[Result]]) -> Iterator[str]:
    """What must not be; empty is right."""
    for backend, row in results.items():
        for each in row:
            where = f"{backend}, {VARIANTS[each.variant].label}"
            if each.acknowledged < ENOUGH:
                yield f"{where}: only {each.acknowledged} updates were acknowledged: let it run longer"
            if each.variant == "none" and each.percent < TEETH:
                yield f"{where}: lost {each.percent:.1f} %: the pauses do not hit"
            if each.variant in SAFE and each.lost:
                yield f"{where}: lost {each.lost}"
            if each.wrong:
                yield f"{where}: {each.wrong} updates are in the list that should not be"


def as_text(results: dict[str, list[Result]], seconds: float, groups: int) -> str:
    """The page RESULTS.md."""
    today = dt.datetime.now(dt.timezone.utc).date()
    kernel = ".".join(platform.release().split(".")[:2])
    made = f"{today}, lockctl {__version__}, Python {platform.python_version()}, Linux {kernel},"
    versions = ", ".join(version(PROGRAMS[name]) for name in results)
    return "\n\n".join(
        [
            "# How many acknowledged updates a paused holder destroys",
            f"{made}\n{versions}; {seconds:g} s for all. `make lostupdate` runs it again and writes this page.",
            NOTES.format(groups=groups, **Pace()._asdict()).strip(),
            "## Lost of acknowledged",
            picture.table(results),
            "![bars](results.svg)",
            "```\n" + picture.bars(results) + "\n```",
            "## How often it was tried",
            "Refused: the update was not written, and its worker knows.",
            picture.details(results) + "\n",
        ]
    )


def version(program: str) -> str:
    """What a server says about its version, in short."""
    said = subprocess.run([programs.find(program), "--version"], capture_output=True, text=True, check=True, timeout=30)
    first = said.stdout.splitlines()[0]
    return " ".join(
        word for word in first.replace("v=", "").split() if not word.startswith(("sha=", "malloc=", "bits=", "build="))
    )


if __name__ == "__main__":
    sys.exit(main())
