"""Waiting for one's turn, and then for the lock: requests that are answered when a key changes."""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.errors import ConfigError
from lockctl.stores.consul import queue, share
from lockctl.stores.consul.hold import is_kept
from lockctl.stores.consul.layout import HOLDS, SEMAPHORE_FLAGS, counter_keys, queue_of, read_counter
from lockctl.stores.consul.protocol import ANSWER_LIMIT, Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.consul.layout import Counter, Entry
    from lockctl.stores.consul.share import Semaphore
    from lockctl.wire.deadline import Deadline

CROWD = 0.1  # seconds: who was slower than others again and again comes back at a random moment within this
POLL = 1.0  # seconds between looks at what Consul does not tell: the end of a lock delay


def until_open(
    agent: Agent,
    positions: queue.Queue,
    claim: Claim,
    has_lined_up: Callable[[], None],
    prepare: Callable[[Deadline], object],
    deadline: Deadline,
) -> tuple[Entry | None, Counter] | None:
    """Return when it is the turn of *claim* and it may get the lock. Raises as requests do.

    Where that is known: the key of the lock as it is then, and the counter, with which the lock can be taken at once.
    *prepare* is called now and then, so that what the attempt needs is there when our turn comes. A wait may have no
    end: each request has a limit of its own.
    """
    path = agent.prefix + claim.name
    position, ahead, is_first, index, prepare_at, was_held, counted = None, None, False, 0, 0.0, False, None
    while True:
        kept = positions.keep(claim, deadline.sooner(ANSWER_LIMIT))
        if kept is not position:  # else it is as it was
            position, ahead, is_first, index = kept, None, False, 0
        if clock.boottime() >= prepare_at:
            try:
                prepare(deadline.sooner(ANSWER_LIMIT))
            except ConfigError:
                return None  # an attempt says the same
            prepare_at = clock.boottime() + claim.ttl / queue.RENEWALS_PER_TTL
            has_lined_up()
        if not is_first:
            if ahead is not None:
                entry, index = agent.watch(ahead.key, index, deadline, position.span())
                if entry is not None and entry.session == ahead.session:
                    continue
            waiting = agent.tree(queue_of(agent.prefix, claim.name), deadline.sooner(ANSWER_LIMIT))
            ahead, index = queue.before(waiting, position.key), 0
            is_first = ahead is None
            if not is_first:
                continue
        found, index = agent.watch_tree(path + "/", index, deadline, position.span())
        there = share.semaphore(found, path)
        if not there.is_open(claim):
            was_held, counted = True, _count(agent, claim, there, counted, deadline)
        elif was_held or not is_kept(agent, agent.prefix + HOLDS + claim.name, position.span(), deadline):
            return _seen(there, counted)  # a release into a hold is found out by the attempt
        else:
            index = 0


def _seen(there: Semaphore, counted: tuple[int, Counter] | None) -> tuple[Entry | None, Counter] | None:
    is_left = there.entry is not None and there.entry.flags == SEMAPHORE_FLAGS  # by who held it in slots
    return None if counted is None or is_left else (there.entry, counted[1])


def _count(
    agent: Agent, claim: Claim, there: Semaphore, counted: tuple[int, Counter] | None, deadline: Deadline
) -> tuple[int, Counter] | None:
    """The counter as the present holder has left it, for whom it was perhaps *counted* before.

    Nobody else changes it before the end of that holder. ``None``: several may hold the lock, or that cannot be read.
    """
    if claim.slots > 1 or not there.is_taken or there.entry is None:
        return None
    index = there.entry.index
    if counted is not None and counted[0] == index:
        return counted
    try:
        found = agent.read([*counter_keys(agent.prefix, claim.name)], deadline.sooner(ANSWER_LIMIT))
    except ConfigError:
        return None  # an attempt says the same
    return index, read_counter(agent.prefix, claim.name, found)


def some(seconds: float) -> float:
    """A random part of *seconds*."""
    return seconds * os.urandom(1)[0] / 255


def pause(seconds: float, deadline: Deadline) -> None:
    """Let time pass; raises as ``Deadline.check`` does when the deadline is over or the caller wants to stop."""
    clock.pause(min(seconds, deadline.left()), deadline.interrupt)
    deadline.check("consul")
