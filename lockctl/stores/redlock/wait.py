"""Waiting for a majority: a position in the queue of one node, which tells the first waiter of a release.

The queue is that of the first node that answers, in the order of the URL, which is the same for most who wait. It says
only who looks when: a majority of the nodes decides who gets the lock, whatever a queue says. So a release wakes one
waiter, who sees whether a majority is free, and not all at once, who would share the nodes and draw.
"""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.redis import inspect
from lockctl.stores.redis.wait import Queue
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.rounds import Patience, ask_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.redis.layout import Seen
    from lockctl.stores.redlock.nodes import Node
    from lockctl.wire.deadline import Deadline, Steps

SETTLING = 0.05  # seconds in which a release that one node has told of is expected on a majority
LOOK = 0.002  # seconds between two looks meanwhile
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.8  # seconds until the next look at what this node does not know
LONGEST_LOOK = 1.0  # seconds for one request, until another node is asked


class Waiting:
    """The waits of one client: it has a position in the queue of one node at a time."""

    def __init__(self, majority: tally.Majority) -> None:
        """Nothing is opened yet."""
        self._majority = majority
        self._nodes = majority.nodes
        self._number = 0  # of the node whose queue is used
        self._queue: Queue | None = None
        self._owner = ""  # of the claim that has a position

    def has_position(self, claim: Claim) -> bool:
        """Whether something of this claim may be in a queue."""
        return self._owner == claim.owner

    def wait(
        self, claim: Claim, longest_look: float, draws: int, has_lined_up: Callable[[], None], deadline: Deadline
    ) -> None:
        """Return when a majority is free for *claim*; one look at all nodes may take *longest_look* seconds.

        *draws* are the attempts in a row in which nobody got a majority: those who drew do not come back together.
        Raises when less than a majority answers.
        """
        longest = min(max(claim.ttl / 4, 2 * SHORTEST_PAUSE), LONGEST_PAUSE)
        if draws:
            drawn = min(SHORTEST_PAUSE * 2 ** min(draws, 10), longest) * _random(0.5, 1.5)
            clock.pause(min(drawn, deadline.left()), deadline.interrupt)
        while deadline.left() > 0:
            pause = self._look(claim, deadline)
            told = bool(pause) and self._is_told(min(pause or 0.0, deadline.left()), deadline)
            is_first = not pause or told or (self._queue is not None and self._queue.is_first)
            if is_first and self._is_open(claim, longest_look, deadline, settling=told or pause == 0.0):
                return
            has_lined_up()
            if not pause:
                clock.pause(min(_random(SHORTEST_PAUSE, longest), deadline.left()), deadline.interrupt)

    def _look(self, claim: Claim, deadline: Deadline) -> float | None:
        """See ``Queue.look``, at the first node that answers; ``None``: none does."""
        self._owner = claim.owner
        for _ in self._nodes:
            node, until = self._nodes[self._number], deadline.sooner(LONGEST_LOOK)
            queue = self._queue = self._queue or Queue(node.session)

            def look(queue: Queue = queue, until: Deadline = until) -> float:
                return queue.look(claim, until)

            try:
                pause = node.alone(look, until.left())
            except (BackendUnavailable, ConfigError):
                pause = None  # who asks whether a majority is free says what is wrong
            if pause is not None:
                return pause
            self.close()
            self._number = (self._number + 1) % len(self._nodes)
        return None

    def _is_told(self, pause: float, deadline: Deadline) -> bool:
        return self._queue is not None and self._queue.is_told(pause, deadline.interrupt)

    def _is_open(self, claim: Claim, longest_look: float, deadline: Deadline, *, settling: bool) -> bool:
        """Whether a majority is free, or is within a moment if it is *settling*."""
        until = clock.boottime() + SETTLING
        while not _is_free(self._majority, claim, deadline.sooner(longest_look)):
            if not settling or clock.boottime() >= until or clock.pause(LOOK, deadline.interrupt):
                return False
        return True

    def close(self) -> None:
        """Close the channel; a position in a queue ends with its life, or when its claim is given back."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None


def _is_free(majority: tally.Majority, claim: Claim, deadline: Deadline) -> bool:
    """Whether the lock is free on a majority; raises when less than a majority answers.

    The first who answer may be those few on which something is left: the others are waited for shortly, too.
    """
    patience, spare = Patience(claim.ttl), len(majority.nodes) - majority.size

    def read(node: Node, until: Deadline) -> Steps[Seen]:
        yield from node.settle(until)  # what an earlier attempt of ours has there is nothing to wait for
        return (yield from inspect.looking(node.session, claim.name, until))

    def settled(so_far: list[Seen]) -> float | None:
        free = _free(so_far)
        is_known = free >= majority.size or len(so_far) - free > spare
        return 0.0 if is_known else patience.until(settled=len(so_far) >= majority.size)

    seen = ask_all(majority.nodes, read, deadline, settled)
    present = tally.usable(seen)
    if len(present) < majority.size:
        raise tally.too_few(seen, "answered", majority.size)
    return _free(present) >= majority.size


def _free(seen: list[Seen]) -> int:
    """On how many nodes the lock is free."""
    return sum(each.value is None or each.left == 0 for each in seen)


def _random(least: float, most: float) -> float:
    return least + (most - least) * int.from_bytes(os.urandom(2), "little") / 0xFFFF
