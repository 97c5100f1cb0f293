"""The queue of those who wait for a lock: a key for each, which goes with the session that has it.

Who came first has the key with the least index: it is written once. The first waits for the lock, each other one for
the end of the key before its own, so that a release wakes one of them. The session of a waiter is not that of its
claim: it is shorter, because who is behind a waiter that vanished waits until Consul has ended its session.
"""

from __future__ import annotations

from lockctl import clock, documents
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.consul.layout import QUEUE, Entry, lock, queue_of
from lockctl.stores.consul.protocol import LONGEST_WAIT, Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim
    from lockctl.wire.deadline import Deadline

TTL = 10.0  # seconds that a session lives at least after its last renewal: no shorter one is allowed by default
RENEWALS_PER_TTL = 3  # two may fail
ROOM = 1000  # bytes of the document of a waiter
TRIES = 3  # times that a new session ends before it has its key


class Position:
    """Where a claim is in the queue of its lock: the session of its key, which is there or will be."""

    def __init__(self, session: str, key: str, ttl: float, renewed_at: float) -> None:
        """The session was made at *renewed_at*, at the earliest."""
        self.session = session
        self.key = key
        self.ttl = ttl
        self.renewed_at = renewed_at
        self.is_queued = False  # whether the key is known to be there

    def span(self) -> float:
        """Seconds until the session is to be renewed."""
        return min(max(self.renewed_at + self.ttl / RENEWALS_PER_TTL - clock.boottime(), 0.0), LONGEST_WAIT)


class Queue:
    """The positions of one client."""

    def __init__(self, agent: Agent) -> None:
        """Nothing is sent yet."""
        self._agent = agent
        self._positions: dict[str, Position] = {}  # by owner

    def key_of(self, claim: Claim) -> str | None:
        """The key of a claim that waits, or perhaps waits: the answer to its writing may be lost."""
        position = self._positions.get(claim.owner)
        return None if position is None else position.key

    def place_of(self, claim: Claim) -> dict[str, Any] | None:
        """The operation that refuses a transaction unless a claim still has its position; ``None``: it has none."""
        position = self._positions.get(claim.owner)
        if position is None or not position.is_queued:
            return None
        return {"Verb": "check-session", "Key": position.key, "Session": position.session}

    def keep(self, claim: Claim, deadline: Deadline) -> Position:
        """Our position, with a session that was renewed in time; the last one, if it was lost."""
        for _ in range(TRIES):
            position = self._positions.get(claim.owner)
            if position is None or not self._is_renewed(position, deadline):
                position = self._positions[claim.owner] = self._made(claim, deadline)
            if position.is_queued or self._line_up(claim, position, deadline):
                return position
            del self._positions[claim.owner]
        raise BackendUnavailable(f"{self._agent.where}: new sessions end before they have a key")

    def _is_renewed(self, position: Position, deadline: Deadline) -> bool:
        """Whether the session lives on, at least until its next renewal is due."""
        if position.span() > 0:
            return True
        began = clock.boottime()
        if self._agent.renew_session(position.session, deadline) is None:
            return False
        position.renewed_at = began
        return True

    def _line_up(self, claim: Claim, position: Position, deadline: Deadline) -> bool:
        """Whether the session has the key now; again is as good as once, if the answer was lost."""
        document = documents.describe(claim, {"since": clock.wall()}, ROOM)
        outcome = self._agent.transact([lock(position.key, document, 0, position.session)], deadline)
        position.is_queued = outcome.results is not None
        return position.is_queued

    def _made(self, claim: Claim, deadline: Deadline) -> Position:
        name, ttl, began = f"lockctl: {self._agent.prefix}{claim.name} (waiting)", min(TTL, claim.ttl), clock.boottime()
        try:
            session = self._agent.create_session(name, ttl, 0.0, deadline)
        except ConfigError:
            ttl = max(TTL, claim.ttl)  # this server wants longer ones
            session = self._agent.create_session(name, ttl, 0.0, deadline)
        return Position(session, queue_of(self._agent.prefix, claim.name) + session, ttl, began)

    def granted(self, claim: Claim) -> None:
        """The key went with the grant; the session is ended with the lock, or ends by itself before."""
        position = self._positions.get(claim.owner)
        if position is not None:
            position.is_queued = False

    def leave(self, claim: Claim, deadline: Deadline) -> None:
        """Leave nothing of a waiter: its key goes with its session."""
        position = self._positions.get(claim.owner)
        if position is not None:
            self._agent.destroy_session(position.session, deadline)
            del self._positions[claim.owner]


def in_order(found: list[Entry]) -> list[Entry]:
    """Those who wait, the first one first."""
    return sorted((entry for entry in found if entry.session is not None), key=lambda entry: entry.index)


def before(found: list[Entry], own: str | None) -> Entry | None:
    """The last of those before our key *own*; of all, for who has none."""
    waiting = in_order(found)
    number = next((number for number, entry in enumerate(waiting) if entry.key == own), len(waiting))
    return waiting[number - 1] if number else None


def all_queues(agent: Agent, deadline: Deadline) -> dict[str, list[Entry]]:
    """The keys of all who wait, by the name of the lock."""
    found: dict[str, list[Entry]] = {}
    beginning = agent.prefix + QUEUE
    for entry in agent.tree(beginning, deadline):
        found.setdefault(entry.key[len(beginning) :].rpartition("/")[0], []).append(entry)
    return found
