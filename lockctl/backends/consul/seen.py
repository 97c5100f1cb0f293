"""What an operator sees of locks in Consul, and what an operator does to their holders."""

from __future__ import annotations

from lockctl import documents
from lockctl.backends.consul import entry as entries
from lockctl.backends.consul.agent import MOST_OPERATIONS, encoded
from lockctl.backends.consul.entry import DOMAIN, SEMAPHORE_FLAGS, SUFFIX
from lockctl.errors import LockctlError
from lockctl.model import LockInfo
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backends.consul.agent import Agent
    from lockctl.backends.consul.entry import Entry
    from lockctl.model import Holder
    from lockctl.wire.deadline import Deadline

TRIES = 4  # changes of the key under our eyes


def look(agent: Agent, place: str, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now."""
    return _lock(agent, place, name, agent.get(place + SUFFIX, deadline), deadline)


def look_all(agent: Agent, prefix: str, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks whose names match a glob, in the order of their names; asked for in pieces of a bounded size."""
    from fnmatch import fnmatchcase

    agent.get(prefix + DOMAIN, deadline)  # refused without the right to read, which would make the list a short one
    found = {entries.lock_name(key, prefix) for key in agent.keys(prefix, deadline)}
    names = sorted(name for name in found if name is not None and fnmatchcase(name, pattern))
    return _in_pieces(agent, prefix, names, deadline)


def _in_pieces(agent: Agent, prefix: str, names: list[str], deadline: Deadline) -> Iterator[LockInfo]:
    for start in range(0, len(names), MOST_OPERATIONS):
        piece = names[start : start + MOST_OPERATIONS]
        # not "get": one key that has gone since would refuse all
        outcome = agent.transact([{"Verb": "get-tree", "Key": prefix + name + SUFFIX} for name in piece], deadline)
        there = {each.key: each for each in outcome.results or () if each is not None}
        for name in piece:
            entry = there.get(prefix + name + SUFFIX)
            if entry is not None:
                yield _lock(agent, prefix + name, name, entry, deadline)


def _lock(agent: Agent, place: str, name: str, entry: Entry | None, deadline: Deadline) -> LockInfo:
    state, holders = ("free", ()) if entry is None else _holders(agent, place, entry, deadline)
    return LockInfo(name, "consul", place, state, "strict", 1, holders, None, None)


def _holders(agent: Agent, place: str, entry: Entry, deadline: Deadline) -> tuple[str, tuple[Holder, ...]]:
    tenure = entries.read_tenure(entry)
    if tenure is not None:
        # how long a session still lives is not told: at most its ttl, which the document says
        return "held", (documents.holder(tenure.document, token=tenure.token, expires_in=None),)
    if entry.session is not None:
        return "foreign", (_stranger(agent, entry.session, deadline),)
    if entry.flags == SEMAPHORE_FLAGS:
        sessions = entries.semaphore_holders(agent.tree(place + "/", deadline), entry.key)
        if sessions:
            return "foreign", tuple(_stranger(agent, session, deadline) for session in sorted(sessions))
    return "free", ()


def _stranger(agent: Agent, session: str, deadline: Deadline) -> Holder:
    """The holder that a session of another program is: it is known on which node."""
    node = agent.describe_session(session, deadline).get("Node")
    return documents.foreign_holder(host=documents.text(node))


def ask_back(
    agent: Agent, place: str, name: str, seen: Holder, request: tuple[str, str], deadline: Deadline
) -> int | None:
    """Write the request *(by, reason)* beside the holder that was seen. The smallest token after it, or ``None``."""
    by, reason = (printable(text) for text in request)
    for _ in range(TRIES):
        entry = _still(agent, place, seen, deadline)
        if entry is None:
            return None
        tenure = entries.read_tenure(entry)
        if tenure is None:
            raise LockctlError(f"{name} is held by another program, which cannot be told: end it, or use --now")
        value = encoded(entries.describe_revoked(entry, tenure, by, reason))
        # the session stays: only lock and unlock change it
        write = {"Verb": "cas", "Key": entry.key, "Index": entry.index, "Value": value, "Flags": entry.flags}
        outcome = agent.transact([write], deadline)
        if outcome.results and outcome.results[0] is not None:
            return outcome.results[0].index + 1
    return None


def take_away(agent: Agent, place: str, seen: Holder, deadline: Deadline) -> int | None:
    """Delete the key, if it is still that of the holder that was seen. The smallest token after it, or ``None``.

    Its session is left alone: another program's may hold more than this lock.
    """
    for _ in range(TRIES):
        entry = _still(agent, place, seen, deadline)
        if entry is None:
            return None
        outcome = agent.transact([{"Verb": "delete-cas", "Key": entry.key, "Index": entry.index}], deadline)
        if outcome.results is not None:
            return entry.index + 1
    return None


def _still(agent: Agent, place: str, seen: Holder, deadline: Deadline) -> Entry | None:
    """The key, if the holder that was seen has it."""
    entry = agent.get(place + SUFFIX, deadline)
    if entry is None:
        return None
    _, holders = _holders(agent, place, entry, deadline)
    same = [each for each in holders if (each.owner, each.token, each.host) == (seen.owner, seen.token, seen.host)]
    return entry if same else None
