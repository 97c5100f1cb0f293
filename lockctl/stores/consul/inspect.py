"""What an operator sees of locks in Consul."""

from __future__ import annotations

from lockctl import documents
from lockctl.model import SLOT, LockInfo
from lockctl.stores.consul import hold, records, share
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.layout import DOMAIN, HOLDS, SEMAPHORE_FLAGS, SUFFIX
from lockctl.stores.consul.protocol import MOST_OPERATIONS
from lockctl.value import Value, replace
from lockctl.wire.stream import TooLarge, in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Holder
    from lockctl.stores.consul.layout import Entry
    from lockctl.stores.consul.protocol import Agent
    from lockctl.wire.deadline import Deadline


class Sight(Value):
    """Who holds a lock, and which key says so; more than one is with slots, or with a hold that another overran."""

    state: str
    slots: int
    holders: tuple[tuple[Holder, Entry], ...]
    seats: share.Seats | None  # of those of a semaphore


def look(agent: Agent, prefix: str, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    try:
        started = records.runs(agent, prefix, name, deadline, "started/")
    except TooLarge:
        started = ()  # others wrote there; who has the lock can be known all the same
    lock = _lock(sight(agent, prefix, name, deadline), prefix, name)
    return replace(lock, last_run=started[0] if started else None)


def sight(agent: Agent, prefix: str, name: str, deadline: Deadline) -> Sight:
    """Who holds one lock as it is now."""
    entry = agent.get(prefix + name + SUFFIX, deadline)
    # after the lock, which turns into a hold in one step: in the other order it could be seen as neither
    keeping = agent.get(prefix + HOLDS + name, deadline)
    return _sight(agent, prefix + name, entry, keeping, agent.now(), deadline)


def look_all(agent: Agent, prefix: str, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks whose names match a glob, in the order of their names; asked for in pieces of a bounded size."""
    from fnmatch import fnmatchcase

    agent.get(prefix + DOMAIN, deadline)  # refused without the right to read, which would make the list a short one
    # one for each folder: what is remembered of many runs, and others' keys, are not to be read
    folders = agent.keys(prefix, deadline, "/")
    held = {key.removeprefix(prefix + HOLDS) for key in agent.keys(prefix + HOLDS, deadline)}
    found = {entries.lock_name(folder.removesuffix("/") + SUFFIX, prefix) for folder in folders}
    found |= {entries.lock_name(prefix + name + SUFFIX, prefix) for name in held}
    names = sorted(name for name in found if name is not None and fnmatchcase(name, pattern))
    return _in_pieces(agent, prefix, names, held, deadline)


def _in_pieces(agent: Agent, prefix: str, names: list[str], held: set[str], deadline: Deadline) -> Iterator[LockInfo]:
    for start in range(0, len(names), MOST_OPERATIONS // 2):
        piece = names[start : start + MOST_OPERATIONS // 2]
        keys = [prefix + name + SUFFIX for name in piece] + [prefix + HOLDS + name for name in piece if name in held]
        there = {entry.key: entry for entry in in_parts(lambda some: agent.read(some, deadline), keys)}
        now = agent.now()
        for name in piece:
            entry, keeping = there.get(prefix + name + SUFFIX), there.get(prefix + HOLDS + name)
            found = _sight(agent, prefix + name, entry, keeping, now, deadline)
            if entry is not None or found.holders:
                yield _lock(found, prefix, name)


def _lock(found: Sight, prefix: str, name: str) -> LockInfo:
    holders = tuple(holder for holder, _ in found.holders)
    return LockInfo(name, "consul", prefix + name, found.state, "strict", found.slots, holders, None, None)


def _sight(
    agent: Agent, place: str, entry: Entry | None, keeping: Entry | None, now: float, deadline: Deadline
) -> Sight:
    slots, seats = 1, None
    holders: list[tuple[Holder, Entry]] = []
    if entry is not None and entry.session is not None:
        holders.append((_holder(agent, entry, deadline), entry))
    elif entry is not None and entry.flags == SEMAPHORE_FLAGS:
        seats = share.read(agent, place, deadline)
        for own in seats.living.values():
            holder = _holder(agent, own, deadline)
            holders.append((holder if holder.owner else replace(holder, mode=SLOT), own))
        holders.sort(key=lambda each: (each[0].token or 0, each[1].key))
        slots = max(seats.limit, 1) if holders else 1
    keeper = hold.holder(keeping, now)
    if keeper is not None and keeping is not None:
        holders = [each for each in holders if each[0].owner != keeper.owner]  # seen just before it ended
        holders.append((keeper, keeping))
    state = "free" if not holders else "held" if all(holder.owner for holder, _ in holders) else "foreign"
    return Sight(state, slots, tuple(holders), seats)


def _holder(agent: Agent, entry: Entry, deadline: Deadline) -> Holder:
    """Who holds *entry*: how long its session still lives is not told, at most the ttl that the document says."""
    tenure = entries.read_tenure(entry)
    if tenure is not None:
        return documents.holder(tenure.document, token=tenure.token, expires_in=None)
    node = agent.describe_session(entry.session or "", deadline).get("Node")
    return documents.foreign_holder(host=documents.text(node))
