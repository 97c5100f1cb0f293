"""``make bench``: what a lock costs, beside the tools that people use today on the same servers.

Everything is measured in turn, so that noise hits all alike, and what counts are the ratios: another machine has other
times. Without a compiler, a server or a peer, the rest is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import commands, handoff, machine, memory, plot, timing
from tests.bench.report import Row, Table, as_json, as_text
from tests.bench.tools import BACKENDS, LOCKCTL, started
from tests.jobs import guard_of
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.commands import Commands
    from tests.bench.tools import Measured, Tool

PYTHON = "python -c pass"
WAITING_PYTHON = "python, os.spawnv"  # what an interpreter takes that does nothing but wait for a command
SPAWN = "import os, sys; sys.exit(os.spawnvp(os.P_WAIT, sys.argv[1], sys.argv[1:]))"
TABLES = ("start", "hand-off", "memory")
ROUNDS = 20
LONG_ROUNDS = 10  # at most: a hand-off takes seconds, since the waiter must wait
MEMORY_ROUNDS = 3  # at most: it varies little
RENEWED = 2.5  # seconds: with a lease of 10 s the first renewal is over, and has loaded what it needs
MEGABYTE = 1024  # kilobytes


class Bench(NamedTuple):
    """What all tables are measured with."""

    tools: Measured
    programs: Commands
    env: Mapping[str, str]
    directory: Path
    rounds: int

    @property
    def all_tools(self) -> list[Tool]:
        """Peers first."""
        return [*self.tools.peers.values(), *self.tools.backends.values()]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and write the files that are asked for."""
    options = _parser().parse_args(words)
    tables = [name for name in TABLES if name in options.only] or TABLES
    backends = [name for name in BACKENDS if name in options.only] or BACKENDS
    directory = Path(tempfile.mkdtemp(prefix="lockctl-bench-", dir=local_directory()))
    try:
        with contextlib.ExitStack() as ends:
            tools = started(directory, backends, ends)
            programs = commands.made(directory)
            env = timing.environment(tools.variables)
            bench = Bench(tools, programs, env, directory, options.rounds)
            about = machine.about(tools.backends, options.rounds, programs.kind)
            print(machine.as_text(about), flush=True)
            measured = []
            for name in tables:
                measured.append(MEASURE[name](bench))
                print("", *as_text(measured[-1]), sep="\n", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        _write(options.json, json.dumps(as_json(measured, about), indent=1) + "\n")
    if options.svg:
        place = about["machine"]
        _write(options.svg, plot.as_svg(measured, f"{about['date']}, {place['cpu']}, {place['cores']} cores"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure lockctl beside other tools.")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"how often each tool is measured (default {ROUNDS})"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        choices=[*TABLES, *BACKENDS],
        help="a table or a backend, repeatable: %(choices)s",
    )
    parser.add_argument("--json", metavar="FILE", help="write all samples to this file")
    parser.add_argument("--svg", metavar="FILE", help="draw the ratios into this file")
    return parser


def start(bench: Bench) -> Table:
    """The whole of a run whose command ends at once."""
    nothing = bench.programs.nothing
    measured: dict[str, tuple[Sequence[str], int]] = {PYTHON: ((sys.executable, "-c", "pass"), 0)}
    for tool in bench.all_tools:
        measured[tool.name] = ((*tool.words("start", False), nothing), 0)
    with contextlib.ExitStack() as ends:
        if file := bench.tools.backends.get("file"):
            words = file.words("taken", False)
            ends.enter_context(memory.holding(words, bench.env, life=3600))
            measured[f"{file.name}, refused"] = ((*words, nothing), 75)
        times = timing.samples(measured, bench.env, bench.rounds)
    rows = [Row(name, [1000 * each for each in taken], _peer(bench, name)) for name, taken in times.items()]
    return Table("start", "start: the whole run of a command that does nothing", "ms", PYTHON, rows)


def hand_off(bench: Bench) -> Table:
    """From the end of the holder's command to the start of the waiter's."""
    rounds = min(bench.rounds, LONG_ROUNDS)
    times = handoff.samples(bench.all_tools, bench.programs.stamp, bench.env, bench.directory, rounds)
    rows = [Row(name, [1000 * each for each in taken], _peer(bench, name)) for name, taken in times.items()]
    title = "hand-off: from the end of the holder's command to the start of the waiter's"
    return Table("hand-off", title, "ms", "flock" if "flock" in times else rows[0].name, rows)


def memory_of_holders(bench: Bench) -> Table:
    """The processes that stay while a command runs, after they have renewed their lease."""
    taken: dict[str, list[float]] = {}
    for _ in range(min(bench.rounds, MEMORY_ROUNDS)):
        for name, megabytes in _memory_in_turn(bench):
            taken.setdefault(name, []).append(megabytes)
    rows = [Row(name, samples, _peer(bench, name)) for name, samples in taken.items()]
    return Table("memory", "memory of a holder: PSS of its processes", "MB", WAITING_PYTHON, rows)


def _memory_in_turn(bench: Bench) -> Iterator[tuple[str, float]]:
    with memory.holding((sys.executable, "-c", SPAWN), bench.env) as holder:
        yield WAITING_PYTHON, memory.pss(holder.pid) / MEGABYTE
    for tool in bench.tools.peers.values():
        with memory.holding(tool.words("memory", False), bench.env, quiet=True) as holder:
            memory.let_it_renew(1.0)
            yield tool.name, memory.pss(holder.pid) / MEGABYTE
    for tool in bench.tools.backends.values():
        words = (LOCKCTL, "run", "-b", tool.url, "-l", "memory", "-t", "10s", "--")
        with memory.holding(words, bench.env) as holder:
            memory.let_it_renew(RENEWED)
            yield tool.name, (memory.pss(holder.pid) + memory.pss(guard_of(holder.pid))) / MEGABYTE


MEASURE = {"start": start, "hand-off": hand_off, "memory": memory_of_holders}


def _peer(bench: Bench, name: str) -> str:
    return next((tool.peer for tool in bench.tools.backends.values() if name.startswith(tool.name)), "")


def _write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(f"written: {file}")


if __name__ == "__main__":
    sys.exit(main())
