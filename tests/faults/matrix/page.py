"""The page of results in the manual: what the faults are, and what was seen of them on each store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.matrix.faults import EVERYWHERE, FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.matrix.faults import Fault

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[3] / "man" / "text" / "lockctl-faults.7.txt"
HEAD = """# NAME
lockctl-faults - what becomes of jobs when something goes wrong, as it was measured

# DESCRIPTION
On each store a first `lockctl run` holds a lock, a second one waits for it, and then a fault happens; that is repeated.
The leases last {shortest:g} to {longest:g} s here. This page was written by `make faults` of the sources on {date}, with
{versions}.

S3, Google Cloud Storage, Azure, DynamoDB and Kubernetes are programs that stand for the services, not the services.
On Redlock, whose clients must all name the same nodes, the network of the second run fails with that of the first.

# FAULTS
"""
MARKED = "{} next command can start while the job still runs: its token is what protects."
LEGEND = """# RESULTS
`went on` counts the runs in which the job was left alone, as it should be where the store has served it all the time.
`two` counts those in which something of the first job was alive when the second command started.
`refused` counts those in which a resource that had seen the second token refused the first one: it must be all.
`next` is the time from the fault to the second command in seconds, the middle one and the longest.

"""
TAIL = """# SEE ALSO
lockctl-run(1), lockctl-backends(7), lockctl-fencing(7), lockctl-security(7)
"""


def mark(fault: Fault) -> str:
    """What is said of a fault that two may survive."""
    if not fault.admitted:
        return ""
    return " " + MARKED.format("The" if fault.admitted == EVERYWHERE else "There the")


def blocks(cells: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each store."""
    for store in dict.fromkeys(cell["store"] for cell in cells):
        yield f"## {store}"
        yield f"    {'fault':23}{'runs':>5}{'went on':>9}{'two':>5}{'refused':>9}{'next':>8}"
        for cell in (cell for cell in cells if cell["store"] == store):
            yield (
                f"    {cell['fault']:23}{cell['runs']:5}{cell['went_on']:9}{cell['overlaps']:5}{cell['refused']:9}"
                f"{cell['next_median']:8.1f}{cell['next_most']:7.1f}"
            )
        yield ""


def render(results: dict[str, Any]) -> str:
    """The whole page."""
    cells = results["cells"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    head = HEAD.format(**results["leases"], date=results["date"], versions=versions)
    told = "\n\n".join(f"- `{name}`: {fault.said}{mark(fault)}" for name, fault in FAULTS.items())
    return f"{head}{told}\n\n{LEGEND}" + "\n".join([*blocks(cells), TAIL])


def write() -> None:
    """From what was kept."""
    PAGE.write_text(render(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    write()
