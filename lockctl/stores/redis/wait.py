"""Waiting for one's turn: a position in the queue, a channel on which the server tells, and pauses between looks.

Only the waiter at the head is told of a release, so that one wakes and not all; who gets in beside others tells the
next that may go in, too. The head also looks by itself every second and when the holder's lease ends, because a
holder that dies, another program, or a server that restarts tells nobody. So do the next few, for a waiter at the
head that dies.
"""

from __future__ import annotations

import os
import select

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, RequestInterrupted
from lockctl.model import EXCLUSIVE, Claim
from lockctl.stores.redis import layout
from lockctl.stores.redis.scripts import TAKE_PLACE, script
from lockctl.wire.deadline import READABLE, Deadline
from lockctl.wire.resp import Connection, ReplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.redis.session import Session, Words

LONGEST_LIFE = 9.0  # seconds that a position in the queue lives without being refreshed
LIFE_PER_TTL = 0.75  # so that a dead waiter holds up the next for less than a ttl
LOOKS_PER_LIFE = 3
HEAD_LOOKS = 1.0  # seconds between two looks of the waiters near the head
NEAR = 3  # so many may find that all before them are dead, without waiting for their usual look
ONE_REQUEST = 5.0  # seconds
ROOM = 1000  # bytes of the document of a waiter

# ARGV: owner, life of the place in ms, document ->
# {1 if it may acquire, how many are before it, ms that the lock, or else the life of the first, still has}
JOIN = script(
    """
local owner, value = ARGV[1], held()
if redis.call('EXISTS', GONE) == 1 then return {0, 0, -1} end
if starts(value, owner .. '|') then return {1, 0, 0} end
"""
    + TAKE_PLACE
    + """
local first = head(owner)
if first == owner then return {value and 0 or 1, 0, redis.call('PTTL', LOCK)} end
if not value then wake(first) end
return {0, redis.call('ZRANK', QUEUE, owner), redis.call('ZSCORE', LIVE, first) - now}
"""
)


class Queue:
    """The positions of one client in the queues of one server."""

    def __init__(self, session: Session) -> None:
        """Nothing is opened yet."""
        self._session = session
        self._owner = ""  # whose channel is subscribed to
        self.is_first = False  # whether nobody was before us at the last look
        self._channel: Connection | None = None

    def wait(self, claim: Claim, has_lined_up: Callable[[], None], deadline: Deadline) -> None:
        """Return when it is the turn of *claim*, or at the deadline; raises as requests do."""
        try:
            while deadline.left() > 0:
                pause = self.look(claim, deadline.sooner(ONE_REQUEST))
                has_lined_up()
                if pause == 0.0 or self.is_told(min(pause, deadline.left()), deadline.interrupt):
                    return
        except (BackendUnavailable, RequestInterrupted):
            self.close()
            raise

    def look(self, claim: Claim, deadline: Deadline) -> float:
        """Keep our position; how many seconds to wait for a message until the next look; 0: it is our turn."""
        self._subscribe(claim, deadline)
        return self._refresh(claim, deadline)

    def _subscribe(self, claim: Claim, deadline: Deadline) -> None:
        if self._channel is not None and self._owner == claim.owner:
            return
        self.close()
        channel = layout.wake_channel(self._session.prefix + claim.name, claim.owner)
        connection, (reply,) = self._session.open([("SUBSCRIBE", channel)], deadline)
        if isinstance(reply, ReplyError):
            connection.close()  # not permitted: looking every second serves, too
            return
        self._channel, self._owner = connection, claim.owner

    def _refresh(self, claim: Claim, deadline: Deadline) -> float:
        life = min(LIFE_PER_TTL * claim.ttl, LONGEST_LIFE)
        document = documents.describe(claim, {"since": wall()}, ROOM)
        keys = layout.keys_of(self._session.prefix, claim.name, claim.owner)
        script = JOIN
        words: Words = [claim.owner, int(life * 1000), document]
        if claim.mode != EXCLUSIVE:
            from lockctl.stores.redis import share

            script, words = share.joining(claim, int(life * 1000), document)
        reply = self._session.run(script, keys, words, deadline)
        turn, before, left = layout.answer(reply, self._session.where, 3)
        if not all(isinstance(each, int) for each in (turn, before, left)):
            raise layout.no_answer(self._session.where)
        self.is_first = before == 0
        if turn:
            return 0.0
        # spread, so that many who came in the same second do not look in the same one for ever
        pause = life / LOOKS_PER_LIFE * (0.8 + 0.2 * os.urandom(1)[0] / 255)
        if self._channel is None or before < NEAR:
            pause = min(pause, HEAD_LOOKS)
        if before < NEAR and left >= 0:
            pause = min(pause, left / 1000 + 0.001)
        return pause

    def is_told(self, pause: float, interrupt: int | None) -> bool:
        """Whether to stop waiting: a message or an interrupt came within *pause* seconds."""
        poll = select.poll()
        for descriptor in (self._channel.fileno() if self._channel else None, interrupt):
            if descriptor is not None:
                poll.register(descriptor, READABLE)
        ready = [descriptor for descriptor, _ in poll.poll(pause * 1000 + 1)]
        if interrupt in ready:
            return True
        if not ready or self._channel is None:
            return False
        try:
            self._channel.receive(Deadline(ONE_REQUEST, interrupt))
        except BackendUnavailable:
            self.close()  # the server went away: the next look says more
            return False
        return True

    def close(self) -> None:
        """Close the channel; positions in the queue end with their lives."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
