"""What is kept of a lock when nobody holds it: the last success, and the last runs. All of it is beside the locks."""

from __future__ import annotations

import os

from lockctl import clock, documents, history, json_text
from lockctl.errors import BackendUnavailable
from lockctl.stores.consul.layout import Entry, unchanged, written
from lockctl.stores.consul.protocol import MOST_OPERATIONS, Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Grant, Run
    from lockctl.wire.deadline import Deadline

SUCCESSES = ".lockctl/success/"  # below the prefix, by the name of a lock, when the run began that succeeded last
RUNS = ".lockctl/runs/"  # below it, NAME/started/TIME-ID and NAME/refused/TIME-ID: one key for each run
SPARE = 20  # runs more than are kept, so that not every run must remove one
LATEST = documents.LATEST * 1000 - 1  # milliseconds since the epoch


def last_success(agent: Agent, name: str, deadline: Deadline) -> float | None:
    """When the run began that was noted last; ``None``: there is none, or nothing that can be read."""
    return time_in(agent.get(agent.prefix + SUCCESSES + name, deadline))


def time_in(entry: Entry | None) -> float | None:
    """When the run began that a success is of."""
    if entry is None or len(entry.value) > documents.LONGEST_NAME:
        return None
    try:
        return documents.seconds(json_text.parse(entry.value))
    except ValueError:
        return None


def note_success(agent: Agent, grant: Grant, deadline: Deadline) -> None:
    """Write it, unless a newer one is there."""
    key, at = agent.prefix + SUCCESSES + grant.claim.name, grant.at
    while True:
        entry = agent.get(key, deadline)
        if not documents.is_newer(at, time_in(entry), clock.wall()):
            return
        if _write(agent, key, documents.plain(at).encode(), deadline, unchanged(key, entry)):
            return


def remember(agent: Agent, name: str, run: Run, deadline: Deadline) -> None:
    """Add a run, and remove the oldest of its kind when there are too many."""
    folder, key = _place(agent, name, run, os.urandom(8).hex())
    keys = agent.keys(folder, deadline)
    _write(agent, key, history.describe(run, agent.now()), deadline)  # as it said with the keys
    drop_surplus(agent, folder, [*keys, key], deadline)


def addition(agent: Agent, grant: Grant, run: Run) -> tuple[str, dict[str, Any]]:
    """The operation that adds a run with the release of a grant, twice the same for the same run; and its folder."""
    folder, key = _place(agent, grant.claim.name, run, grant.claim.owner[:16])
    return folder, written(key, history.describe(run, grant.at + (run.duration or 0.0)))  # by the clock of the agent


def _place(agent: Agent, name: str, run: Run, mark: str) -> tuple[str, str]:
    """The folder of the runs of a kind, and in it the key of one."""
    folder = f"{agent.prefix}{RUNS}{name}/{'started' if run.started else 'refused'}/"
    ended = clock.wall() if run.ended_at is None else run.ended_at
    stamp = min(max(int(ended * 1000), 0), LATEST)
    return folder, f"{folder}{stamp:015}-{mark}"


def drop_surplus(agent: Agent, folder: str, found: list[str], deadline: Deadline) -> None:
    """Remove the oldest of a kind of runs when too many were *found*."""
    keys = sorted([each for each in found if each.startswith(folder)])
    if len(keys) > history.KEPT + SPARE:
        oldest = keys[: -history.KEPT]
        for start in range(0, len(oldest), MOST_OPERATIONS):
            piece: list[dict[str, Any]] = [
                {"Verb": "delete", "Key": key} for key in oldest[start : start + MOST_OPERATIONS]
            ]
            agent.transact(piece, deadline)


def noted_at(entry: Entry) -> float:
    """When a run was remembered, by the clock of an agent; of what does not say so, 0: long ago."""
    return history.time_in(entry.value, "noted_at", "ended_at") or 0.0


def read_history(agent: Agent, name: str, deadline: Deadline, kind: str = "") -> tuple[Run, ...]:
    """What is remembered, of one *kind* (``started/``) or both, the newest first."""
    folder = f"{agent.prefix}{RUNS}{name}/"
    found = agent.tree(folder + kind, deadline)
    if not found:
        agent.get(folder, deadline)  # refused without the right to read, which would make the history an empty one
    newest_first = sorted(found, key=lambda entry: entry.index, reverse=True)  # whatever the clocks of hosts say
    return history.runs_in(entry.value for entry in newest_first)


def _write(agent: Agent, key: str, value: bytes, deadline: Deadline, *conditions: dict[str, Any]) -> bool:
    """Whether *conditions* held, and it was written."""
    outcome = agent.transact([*conditions, written(key, value)], deadline)
    if outcome.results is None and not outcome.refusals.keys().isdisjoint(range(len(conditions))):
        return False
    if outcome.results is None:
        raise BackendUnavailable(f"{agent.where}: not written: {'; '.join(outcome.refusals.values())}")
    return True
