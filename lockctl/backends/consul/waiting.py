"""Waiting for a key of Consul to become free: a request that is answered when the key changes, and nothing else."""

from __future__ import annotations

import os
import select

from lockctl import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.backends.consul.agent import Agent
    from lockctl.wire.deadline import Deadline

CROWD = 0.1  # seconds: all waiters wake at one release, and look again at a random moment within this
POLL = 1.0  # seconds between looks at what Consul does not tell: the end of a lock delay, or of a semaphore's holder


def until_free(agent: Agent, key: str, deadline: Deadline) -> None:
    """Return when no session has *key*. Raises as the requests of *agent* do."""
    index, waited = 0, False
    while True:
        entry, index = agent.watch(key, index, deadline)
        if entry is not None and entry.session is not None:
            waited = True
        elif entry is not None and agent.is_busy_semaphore(entry, deadline):
            pause(POLL, deadline)
            index, waited = 0, True
        elif waited:
            pause(CROWD * os.urandom(1)[0] / 255, deadline)
            index, waited = 0, False  # the first of the crowd may have it by now
        else:
            return


def pause(seconds: float, deadline: Deadline) -> None:
    """Let time pass; raises as ``Deadline.check`` does when the deadline is over or the caller wants to stop."""
    until = clock.boottime() + min(seconds, deadline.left())
    poll = select.poll()
    if deadline.interrupt is not None:
        poll.register(deadline.interrupt, select.POLLIN)
    while (left := until - clock.boottime()) > 0:
        if poll.poll(left * 1000 + 1):
            break
    deadline.check("consul")
