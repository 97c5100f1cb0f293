"""What an operator sees of locks in Consul."""

from __future__ import annotations

from lockctl import documents
from lockctl.locks.inspect import lock_info, matching
from lockctl.model import SLOT, Holder, LockInfo
from lockctl.stores.consul import hold, queue, records, share
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.layout import DOMAIN, HOLDS, SEMAPHORE_FLAGS, SUFFIX, Entry, queue_of
from lockctl.stores.consul.protocol import MOST_OPERATIONS, Agent
from lockctl.value import Value, replace
from lockctl.wire.stream import TooLarge, in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.wire.deadline import Deadline


class Sight(Value):
    """Who holds a lock, and which key says so; more than one is with slots, or with a hold that another overran."""

    slots: int
    holders: tuple[tuple[Holder, Entry], ...]
    semaphore: share.Semaphore | None  # of those of a semaphore


def inspect(agent: Agent, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    try:
        started = records.read_history(agent, name, deadline, "started/")
    except TooLarge:
        started = ()  # others wrote there; who has the lock can be known all the same
    found = sight(agent, name, deadline)
    waiting = agent.tree(queue_of(agent.prefix, name), deadline)
    lock = _lock(agent, name, found, waiting)
    return replace(lock, last_run=started[0] if started else None)


def look(agent: Agent, name: str, deadline: Deadline) -> LockInfo:
    """The same without its last run, and without waiters if somebody holds it."""
    found = sight(agent, name, deadline)
    return _lock(agent, name, found, [] if found.holders else agent.tree(queue_of(agent.prefix, name), deadline))


def sight(agent: Agent, name: str, deadline: Deadline) -> Sight:
    """Who holds one lock as it is now."""
    # after the lock, which turns into a hold in one step: in the other order it could be seen as neither
    keys = (agent.prefix + name + SUFFIX, agent.prefix + HOLDS + name)
    entry, keeping = agent.get_in_turn(keys, deadline)
    return _sight(agent, agent.prefix + name, entry, keeping, agent.now(), deadline)


def list_locks(agent: Agent, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks whose names match a glob, in the order of their names; asked for in pieces of a bounded size."""
    agent.get(agent.prefix + DOMAIN, deadline)  # refused without the right to read: the list would be a short one
    # one for each folder: what is remembered of many runs, and others' keys, are not to be read
    folders = agent.keys(agent.prefix, deadline, "/")
    held = {key.removeprefix(agent.prefix + HOLDS) for key in agent.keys(agent.prefix + HOLDS, deadline)}
    there = {folder.removeprefix(agent.prefix).removesuffix("/") for folder in folders}
    waited_for = queue.all_queues(agent, deadline)
    return _in_pieces(agent, matching(there | held, pattern), held, waited_for, deadline)


def _in_pieces(
    agent: Agent, names: list[str], held: set[str], waited_for: dict[str, list[Entry]], deadline: Deadline
) -> Iterator[LockInfo]:
    for start in range(0, len(names), MOST_OPERATIONS // 2):
        piece = names[start : start + MOST_OPERATIONS // 2]
        keys = [agent.prefix + name + SUFFIX for name in piece]
        keys += [agent.prefix + HOLDS + name for name in piece if name in held]
        there = {entry.key: entry for entry in in_parts(lambda some: agent.read(some, deadline), keys)}
        now = agent.now()
        for name in piece:
            entry, keeping = there.get(agent.prefix + name + SUFFIX), there.get(agent.prefix + HOLDS + name)
            found = _sight(agent, agent.prefix + name, entry, keeping, now, deadline)
            if entry is not None or found.holders:
                yield _lock(agent, name, found, waited_for.get(name, []))


def _lock(agent: Agent, name: str, found: Sight, waiting: list[Entry]) -> LockInfo:
    holders = [holder for holder, _ in found.holders]
    waiters = [documents.waiter(documents.read(entry.value) or {}) for entry in queue.in_order(waiting)]
    return lock_info("consul", "strict", name, agent.prefix + name, holders, waiters, slots=found.slots)


def _sight(
    agent: Agent, path: str, entry: Entry | None, keeping: Entry | None, now: float, deadline: Deadline
) -> Sight:
    slots, semaphore = 1, None
    holders: list[tuple[Holder, Entry]] = []
    if entry is not None and entry.session is not None:
        holders.append((_holder(agent, entry, deadline), entry))
    elif entry is not None and entry.flags == SEMAPHORE_FLAGS:
        semaphore = share.read(agent, path, deadline)
        for own in semaphore.living.values():
            holder = _holder(agent, own, deadline)
            holders.append((holder if holder.owner else replace(holder, mode=SLOT), own))
        holders.sort(key=lambda each: (each[0].token or 0, each[1].key))
        slots = max(semaphore.limit, 1) if holders else 1
    keeper = hold.holder(keeping, now)
    if keeper is not None and keeping is not None:
        holders = [each for each in holders if each[0].owner != keeper.owner]  # seen just before it ended
        holders.append((keeper, keeping))
    return Sight(slots, tuple(holders), semaphore)


def _holder(agent: Agent, entry: Entry, deadline: Deadline) -> Holder:
    """Who holds *entry*: how long its session still lives is not told, at most the ttl that the document says."""
    record = entries.read_holder(entry)
    if record is not None:
        return documents.holder(record.document, token=record.token, expires_in=None)
    node = agent.describe_session(entry.session or "", deadline).get("Node")
    return documents.foreign_holder((entry.session, entry.taken), host=documents.text(node))
