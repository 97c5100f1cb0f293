"""Waiting for a key of Consul to become free: a request that is answered when the key changes, and nothing else."""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.stores.consul.layout import HOLDS, SEMAPHORE_FLAGS, SUFFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.consul.protocol import Agent
    from lockctl.wire.deadline import Deadline

CROWD = 0.1  # seconds: all waiters wake at one release, and look again at a random moment within this
POLL = 1.0  # seconds between looks at what Consul does not tell: the end of a lock delay


def until_open(agent: Agent, claim: Claim, first: float, deadline: Deadline) -> None:
    """Return when *claim* may get the lock, and no hold keeps it, after *first* seconds. Raises as requests do."""
    if first:
        pause(first, deadline)
    path, hold = agent.prefix + claim.name, agent.prefix + HOLDS + claim.name
    while True:
        if claim.slots > 1:
            until_slot(agent, path, claim, deadline)
        else:
            until_free(agent, path, claim, deadline)
        from lockctl.stores.consul.hold import outwait

        if not outwait(agent, hold, deadline):
            return
        pause(some(CROWD), deadline)


def until_free(agent: Agent, path: str, claim: Claim, deadline: Deadline) -> None:
    """Return when no session has the lock, and no semaphore at *path* has a living holder."""
    index, waited = 0, False
    while True:
        entry, index = agent.watch(path + SUFFIX, index, deadline)
        if entry is not None and entry.session is not None:
            waited = True
        elif entry is not None and entry.flags == SEMAPHORE_FLAGS:
            return until_slot(agent, path, claim, deadline)
        elif waited:
            pause(some(CROWD), deadline)
            index, waited = 0, False  # the first of the crowd may have it by now
        else:
            return None


def until_slot(agent: Agent, path: str, claim: Claim, deadline: Deadline) -> None:
    """The same for a semaphore: its holders end with keys of their own, so all of them are watched."""
    from lockctl.stores.consul import share

    index, waited = 0, False
    while True:
        found, index = agent.watch_tree(path + "/", index, deadline)
        if not share.semaphore(found, path).is_open(claim):
            waited = True
        elif waited:
            pause(some(CROWD), deadline)
            index, waited = 0, False
        else:
            return


def some(seconds: float) -> float:
    """A random part of *seconds*."""
    return seconds * os.urandom(1)[0] / 255


def pause(seconds: float, deadline: Deadline) -> None:
    """Let time pass; raises as ``Deadline.check`` does when the deadline is over or the caller wants to stop."""
    clock.pause(min(seconds, deadline.left()), deadline.interrupt)
    deadline.check("consul")
