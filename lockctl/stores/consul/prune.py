"""Names that nobody uses any more: finding them, and removing their keys.

The counter of a name goes with it, and in the same step a floor for all names is raised above it, unless it is above:
no clock has to keep the tokens in their order. A counter ahead of the clock is kept, so that the floor is not. What is
removed is compared in the same step; more than one transaction can have goes in several, the oldest runs first: what is
left when one fails is a shorter history.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.locks.inspect import matching
from lockctl.model import MICROSECONDS
from lockctl.stores.consul import hold, layout, records, share
from lockctl.stores.consul.protocol import MOST_OPERATIONS, Agent
from lockctl.value import Value
from lockctl.wire.stream import in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.consul.layout import Counter, Entry
    from lockctl.wire.deadline import Deadline

READS = 7  # for one name
RUNS_AT_ONCE = MOST_OPERATIONS - 5  # beside the lock, the hold, the success, the counter and the floor


class _Traces(Value):
    """What there is of one name."""

    lock: Entry | None
    hold: Entry | None
    success: Entry | None
    counter: Counter
    runs: tuple[Entry, ...]  # the oldest first
    waiting: tuple[Entry, ...]
    used_at: float  # seconds since the epoch
    now: float  # the agent's clock

    def is_unused(self, older_than: float) -> bool:
        """Whether there is something of ours, which nobody has used for so long."""
        if any(entry.session is not None for entry in self.waiting):
            return False
        lock = self.lock
        if lock is not None and (
            lock.session is not None or share.semaphore([lock], lock.key[: -len(layout.SUFFIX)]).ended
        ):
            return False  # who has a slot is named, also one that has vanished and whose job may run
        if self.hold is None and self.success is None and self.counter.entry is None and not self.runs:
            return False
        return hold.holder(self.hold, self.now) is None and self.now - self.used_at >= older_than


def unused(agent: Agent, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend``: by the clock of the agent, in whole seconds."""
    agent.get(
        agent.prefix + layout.DOMAIN, deadline
    )  # refused without the right to read: the list would be a short one
    known = set()
    for folder in (records.RUNS, records.SUCCESSES, layout.HOLDS, layout.COUNTERS):
        found = agent.keys(agent.prefix + folder, deadline, "/")
        known |= {key.removeprefix(agent.prefix + folder).removesuffix("/") for key in found}
    names = matching(known, pattern)
    for start in range(0, len(names), MOST_OPERATIONS // READS):
        some = names[start : start + MOST_OPERATIONS // READS]
        traces = in_parts(lambda part: _traces(agent, part, deadline), some)
        yield from [(name, each.used_at) for name, each in zip(some, traces, strict=True) if each.is_unused(older_than)]


def forget(agent: Agent, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend``. A run that is remembered between the look and the removal is kept alone."""
    (seen,) = _traces(agent, [name], deadline)
    if not seen.is_unused(older_than):
        return False
    keys = {agent.prefix + name + layout.SUFFIX: seen.lock, agent.prefix + layout.HOLDS + name: seen.hold}
    keys |= {agent.prefix + records.SUCCESSES + name: seen.success, seen.counter.key: seen.counter.entry}
    same = [layout.unchanged(key, entry) for key, entry in keys.items()]
    last = [
        layout.unchanged(key, entry) if entry is None or not _is_ours(entry) else _delete(entry)
        for key, entry in keys.items()
    ]
    last += _raised_floor(seen)
    for start in range(0, max(len(seen.runs), 1), RUNS_AT_ONCE):
        some = [_delete(run) for run in seen.runs[start : start + RUNS_AT_ONCE]]
        is_last = start + RUNS_AT_ONCE >= len(seen.runs)
        if agent.transact([*(last if is_last else same), *some], deadline).results is None:
            return False
    return not agent.keys(f"{agent.prefix}{records.RUNS}{name}/", deadline)


def _raised_floor(seen: _Traces) -> list[dict[str, Any]]:
    """The operations after which the floor is not below the counter; once for many names that are removed together."""
    floor, token = seen.counter.floor, layout.read_token(seen.counter.entry)
    if token <= layout.read_token(floor):
        return []
    value, index = layout.encoded(b"%d" % max(token, int(seen.now * MICROSECONDS))), 0 if floor is None else floor.index
    return [{"Verb": "cas", "Key": seen.counter.floor_key, "Index": index, "Value": value, "Flags": 0}]


def _is_ours(entry: Entry) -> bool:
    """Whether a key is one of ours, or what is left of a lock; another program may have put something else there."""
    return not entry.key.endswith(layout.SUFFIX) or entry.flags in (layout.LOCK_FLAGS, layout.SEMAPHORE_FLAGS)


def _delete(entry: Entry) -> dict[str, Any]:
    return {"Verb": "delete-cas", "Key": entry.key, "Index": entry.index}


def _traces(agent: Agent, names: list[str], deadline: Deadline) -> list[_Traces]:
    """What there is of some names, as of one moment."""
    wanted = [
        (
            agent.prefix + name + layout.SUFFIX,
            agent.prefix + layout.HOLDS + name,
            agent.prefix + records.SUCCESSES + name,
            f"{agent.prefix}{records.RUNS}{name}/",
            layout.queue_of(agent.prefix, name),
            *layout.counter_keys(agent.prefix, name),
        )
        for name in names
    ]
    # not "get": one key that there is not would refuse all
    reads = [{"Verb": "get-tree", "Key": key} for keys in wanted for key in keys]
    results = agent.transact(reads, deadline, "consistent").results or ()
    there = {entry.key: entry for entry in results if entry is not None}
    found = []
    for name, (*keys, folder, line, _, _) in zip(names, wanted, strict=True):
        lock, keeping, success = (there.get(key) for key in keys)
        counter = layout.read_counter(agent.prefix, name, list(there.values()))
        runs = sorted((each for key, each in there.items() if key.startswith(folder)), key=lambda each: each.index)
        waiting = tuple(each for key, each in there.items() if key.startswith(line))
        now = agent.now()
        times = [min(records.noted_at(run), now) for run in runs]  # that is rounded up, and this clock rounds down
        times += [records.time_in(success) or 0.0, documents.seconds(_document(keeping).get("until")) or 0.0]
        times.append(float(layout.read_token(counter.entry) // MICROSECONDS))  # of a clock, unless clocks went back
        found.append(_Traces(lock, keeping, success, counter, tuple(runs), waiting, max(times), now))
    return found


def _document(entry: Entry | None) -> dict[str, Any]:
    return documents.read(entry.value) or {} if entry is not None else {}
