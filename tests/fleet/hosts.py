"""Hosts of a simulated fleet: processes whose wall clock is wrong, each by its own number of seconds.

A module that the interpreter imports when it starts moves the clock, for `lockctl` and nothing else: the jobs that it
runs see the real time.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from lockctl.cli.output import lock_document
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

WRONG_CLOCK = """
import os, time
ahead = float(os.environ["WRONG_CLOCK"])
real, real_ns, real_clock = time.time, time.time_ns, time.clock_gettime
time.time = lambda: real() + ahead
time.time_ns = lambda: real_ns() + int(ahead * 1e9)
time.clock_gettime = lambda which: real_clock(which) + (ahead if which == time.CLOCK_REALTIME else 0)
"""


def with_wrong_clock(directory: Path, ahead: float) -> dict[str, str]:
    """The environment of a host whose clock is *ahead* by so many seconds."""
    module = directory / ".clock" / "sitecustomize.py"
    module.parent.mkdir(exist_ok=True)
    if not module.exists():
        module.write_text(WRONG_CLOCK)
    return {"PYTHONPATH": str(module.parent), "WRONG_CLOCK": str(ahead)}


def inspect(lockctl: Lockctl, name: str) -> dict[str, Any]:
    """One lock as JSON."""
    with contextlib.closing(open_backend(parse_url(lockctl.url))) as observer:
        document: dict[str, Any] = json.loads(json.dumps(lock_document(observer.inspect(name, timeout=LIMIT))))
    return document


def history(lockctl: Lockctl, name: str, *options: str) -> list[dict[str, Any]]:
    """The runs of one lock as JSON, the newest first."""
    done = lockctl("history", name, "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    runs: list[dict[str, Any]] = json.loads(done.stdout)
    return runs
