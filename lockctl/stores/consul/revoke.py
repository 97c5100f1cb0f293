"""What an operator does to the holder of a lock in Consul."""

from __future__ import annotations

from lockctl.errors import another_program, only_a_hold
from lockctl.names import printable
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.inspect import Sight, sight
from lockctl.stores.consul.layout import HOLDS, Entry, encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Holder, Revocation
    from lockctl.stores.consul.protocol import Agent
    from lockctl.wire.deadline import Deadline

TRIES = 8  # times that the keys change meanwhile


def revoke(agent: Agent, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend``."""
    if wanted.now:
        return _take_away(agent, name, seen, deadline)
    return _ask_back(agent, name, seen, (printable(wanted.by), printable(wanted.reason)), deadline)


def _ask_back(agent: Agent, name: str, seen: Holder, request: tuple[str, str], deadline: Deadline) -> int | None:
    """Write the request *(by, reason)* beside the holder that was seen. The smallest token after it, or ``None``."""
    for _ in range(TRIES):
        _, entry = _still(agent, name, seen, deadline)
        if entry is None:
            return None
        if entry.key == agent.prefix + HOLDS + name:
            raise only_a_hold(name)
        record = entries.read_holder(entry)
        if record is None:
            raise another_program(name)
        last = _last_token(agent, name, seen, deadline)
        value = encoded(entries.describe_revoked(entry, record, *request))
        # the session stays: only lock and unlock change it
        write = {"Verb": "cas", "Key": entry.key, "Index": entry.index, "Value": value, "Flags": entry.flags}
        if agent.transact([write], deadline).results is not None:
            return last + 1
    return None


def _take_away(agent: Agent, name: str, seen: Holder, deadline: Deadline) -> int | None:
    """Free the lock of the holder that was seen, if it still has it. The smallest token after it, or ``None``.

    Its session is left alone: another program's may hold more than this lock.
    """
    for _ in range(TRIES):
        found, entry = _still(agent, name, seen, deadline)
        if entry is None:
            return None
        last = _last_token(agent, name, seen, deadline)
        operations: list[dict[str, Any]] = [{"Verb": "delete-cas", "Key": entry.key, "Index": entry.index}]
        if (
            found.semaphore is not None
            and found.semaphore.entry is not None
            and entry.session in found.semaphore.living
        ):
            # the holder's own key as it was seen, before it goes with the rest
            closed = found.semaphore.closed(agent, entry.session, deadline)
            operations = [entries.unchanged(entry.key, entry), *found.semaphore.leaving(entry.session, closed)]
        if agent.transact(operations, deadline).results is not None:
            return last + 1
    return None


def _last_token(agent: Agent, name: str, seen: Holder, deadline: Deadline) -> int:
    """The greatest token that was given: each later one is above it."""
    found = agent.read(list(entries.counter_keys(agent.prefix, name)), deadline)
    return max(entries.read_counter(agent.prefix, name, found).last, seen.token or 0)


def _still(agent: Agent, name: str, seen: Holder, deadline: Deadline) -> tuple[Sight, Entry | None]:
    """What there is, and the key of the holder that was seen, if it still has the lock."""
    found = sight(agent, name, deadline)
    for holder, entry in found.holders:
        if holder.identity == seen.identity and (holder.ended_at is None) == (seen.ended_at is None):
            return found, entry
    return found, None
