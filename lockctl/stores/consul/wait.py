"""Waiting for one's turn, and then for the lock: requests that are answered when a key changes."""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.errors import ConfigError
from lockctl.stores.consul import queue
from lockctl.stores.consul.hold import is_kept
from lockctl.stores.consul.layout import HOLDS, queue_of
from lockctl.stores.consul.protocol import ANSWER_LIMIT, Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
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
) -> None:
    """Return when it is the turn of *claim* and it may get the lock. Raises as requests do.

    *prepare* is called now and then, so that what the attempt needs is there when our turn comes. A wait may have no
    end: each request has a limit of its own.
    """
    from lockctl.stores.consul import share

    path = agent.prefix + claim.name
    position, ahead, is_first, index, prepare_at, was_held = None, None, False, 0, 0.0, False
    while True:
        kept = positions.keep(claim, deadline.sooner(ANSWER_LIMIT))
        if kept is not position:  # else it is as it was
            position, ahead, is_first, index = kept, None, False, 0
        if clock.boottime() >= prepare_at:
            try:
                prepare(deadline.sooner(ANSWER_LIMIT))
            except ConfigError:
                return  # an attempt says the same
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
        if not share.semaphore(found, path).is_open(claim):
            was_held = True
        elif was_held or not is_kept(agent, agent.prefix + HOLDS + claim.name, position.span(), deadline):
            return  # a release into a hold is found out by the attempt
        else:
            index = 0


def some(seconds: float) -> float:
    """A random part of *seconds*."""
    return seconds * os.urandom(1)[0] / 255


def pause(seconds: float, deadline: Deadline) -> None:
    """Let time pass; raises as ``Deadline.check`` does when the deadline is over or the caller wants to stop."""
    clock.pause(min(seconds, deadline.left()), deadline.interrupt)
    deadline.check("consul")
