"""``make scale``: lists of many locks, and queues of many waiters, on each backend in turn."""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import machine, timing
from tests.bench.scale import hosts, lists, queues
from tests.bench.scale.servers import BACKENDS, opened
from tests.scratch import local_directory
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.scale.servers import Store

LOCKS = 10_000
SIZES = (10, 100, 1000)
TABLES = ("list", "hand-off", "host")
RUNS = 1000  # that hold a lock on one host, and as many that wait
SECONDS = 60.0


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and write the file that is asked for."""
    options = _parser().parse_args(words)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    names = [name for name in BACKENDS if name in options.only] or BACKENDS
    tables = [name for name in TABLES if name in options.only] or TABLES
    about = machine.about(names, 1, "none")
    print(machine.as_text(about), flush=True)
    measured: dict[str, list[dict[str, Any]]] = {table: [] for table in tables}
    for table in tables:
        print(f"\n{HEADINGS[table]}", flush=True)
        for name in names:
            for row in _rows(table, name, options):
                measured[table].append({"backend": name, **row})
    if options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps({**about, **measured}, indent=1) + "\n")
        print(f"written: {options.json}")
    return 0


def _rows(table: str, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    directory = Path(tempfile.mkdtemp(prefix="lockctl-scale-", dir=local_directory()))
    try:
        with contextlib.ExitStack() as ends:
            return MEASURE[table](opened(name, directory, ends), options)
    except ProgramMissing as missing:
        print(f"left out: {name}: {missing}", flush=True)
        return []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def list_all(store: Store, options: argparse.Namespace) -> list[dict[str, Any]]:
    """How long a list takes."""
    held = lists.fill(store.name, store.url, options.locks)
    took = lists.measure(store, timing.environment({}))
    for backend in held:
        backend.close()
    asked = "" if took.operations is None else f"{took.operations:8.0f}"
    print(f"  {store.name:12}{took.locks:8}{took.table:9.2f}{took.as_json:9.2f}{took.cpu:9.2f}{asked}", flush=True)
    return [took._asdict()]


def hand_off(store: Store, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What passing a lock on costs, by the size of the queue."""
    rows = []
    for size in options.sizes:
        passed = queues.measure(store, size)
        counted = "" if passed.operations is None else f"{passed.operations:12.1f}{passed.waiting or 0.0:16.2f}"
        print(f"  {store.name:12}{size:8}{passed.milliseconds:9.1f}{counted}", flush=True)
        rows.append(passed._asdict())
    return rows


def on_one_host(store: Store, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What holders and waiters take, by the run."""
    host = hosts.measure(store, options.runs, options.seconds, timing.environment({}))
    for kind in ("holder", "waiter"):
        used: hosts.Used = getattr(host, kind)
        print(
            f"  {store.name:12}{kind:8}{host.runs:6}{used.processes:7.0f}{used.megabytes:7.1f}{used.descriptors:9.1f}"
            f"{used.threads:9.1f}{used.cpu:9.3f}{host.connections if kind == 'waiter' else '':>13}",
            flush=True,
        )
    return [{**host._asdict(), "holder": host.holder._asdict(), "waiter": host.waiter._asdict()}]


MEASURE = {"list": list_all, "hand-off": hand_off, "host": on_one_host}
HEADINGS = {
    "list": f"list: {'locks':>14}{'table s':>9}{'JSON s':>9}{'CPU s':>9}{'operations':>11}",
    "host": (
        f"host: each run{'runs':>14}{'procs':>7}{'MB':>7}{'files':>9}{'threads':>9}{'CPU %':>9}{'connections':>13}"
    ),
    "hand-off": f"hand-off: {'waiters':>12}{'ms':>9}{'operations':>12}{'waiting, 1/s':>16}",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scale", description="Measure many locks and many waiters.")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", choices=[*TABLES, *BACKENDS])
    parser.add_argument("--locks", type=int, default=LOCKS, help="of a list (default %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of a queue (default 10 100 1000)")
    parser.add_argument("--runs", type=int, default=RUNS, help="that hold, and as many that wait (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in which their CPU is counted (default 60)")
    parser.add_argument("--json", metavar="FILE", help="write everything to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
