"""The queue of those who wait for a lock: a key for each, which goes with the session that has it.

Who came first has the key with the least index: it is written once. The first waits for the lock, each other one for
the end of the key before its own, so that a release wakes one of them. The session of a waiter is not that of its
claim: it is shorter, because who is behind a waiter that vanished waits until Consul has ended its session.
"""

from __future__ import annotations

from lockctl import clock, documents
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.consul.layout import QUEUE
from lockctl.stores.consul.protocol import LONGEST_WAIT, lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.consul.layout import Entry
    from lockctl.stores.consul.protocol import Agent
    from lockctl.wire.deadline import Deadline

TTL = 10.0  # seconds that a session lives at least after its last renewal: no shorter one is allowed by default
RENEWALS_PER_TTL = 3  # two may fail
ROOM = 1000  # bytes of the document of a waiter
TRIES = 3  # times that a new session ends before it has its key


class Position:
    """Where a claim is in the queue of its lock."""

    def __init__(self, session: str, entry: Entry, ttl: float) -> None:
        """*entry* is our key, and *session* has it; it was renewed now."""
        self.session = session
        self.entry = entry
        self.ttl = ttl
        self.renewed_at = clock.boottime()

    def span(self) -> float:
        """Seconds until the session is to be renewed."""
        return min(max(self.renewed_at + self.ttl / RENEWALS_PER_TTL - clock.boottime(), 0.0), LONGEST_WAIT)


class Queue:
    """The positions of one client."""

    def __init__(self, agent: Agent) -> None:
        """Nothing is sent yet."""
        self._agent = agent
        self._positions: dict[str, Position] = {}  # by owner
        self._ended: dict[str, str] = {}  # owner that was granted the lock -> the session that it waited with

    def key_of(self, claim: Claim) -> str | None:
        """The key of a claim that waits."""
        position = self._positions.get(claim.owner)
        return None if position is None else position.entry.key

    def keep(self, claim: Claim, deadline: Deadline) -> Position:
        """Our position, with a session that was renewed in time; the last one, if it was lost."""
        position = self._positions.get(claim.owner)
        if position is not None and position.span() > 0:
            return position
        began = clock.boottime()
        if position is not None and self._agent.renew_session(position.session, deadline) is not None:
            position.renewed_at = began
            return position
        self._positions.pop(claim.owner, None)
        document = documents.describe(claim, {"since": clock.wall()}, ROOM)
        for _ in range(TRIES):
            session, ttl = self._create_session(claim, deadline)
            key = f"{folder(self._agent, claim.name)}{session}"
            outcome = self._agent.transact([lock(key, document, 0, session)], deadline)
            if outcome.results and outcome.results[0] is not None:
                break
        else:
            raise BackendUnavailable(f"{self._agent.where}: new sessions end before they have a key")
        position = self._positions[claim.owner] = Position(session, outcome.results[0], ttl)
        position.renewed_at = began
        return position

    def _create_session(self, claim: Claim, deadline: Deadline) -> tuple[str, float]:
        name, ttl = f"lockctl: {self._agent.prefix}{claim.name} (waiting)", min(TTL, claim.ttl)
        try:
            return self._agent.create_session(name, ttl, 0.0, deadline), ttl
        except ConfigError:
            ttl = max(TTL, claim.ttl)  # this server wants longer ones
        return self._agent.create_session(name, ttl, 0.0, deadline), ttl

    def granted(self, claim: Claim) -> None:
        """The key went with the grant; the session is ended with the lock, or ends by itself before."""
        position = self._positions.pop(claim.owner, None)
        if position is not None:
            self._ended[claim.owner] = position.session

    def leave(self, claim: Claim, deadline: Deadline) -> None:
        """Leave nothing of a waiter: its key goes with its session."""
        position = self._positions.get(claim.owner)
        session = self._ended.get(claim.owner) if position is None else position.session
        if session is not None:
            self._agent.destroy_session(session, deadline)
        self._positions.pop(claim.owner, None)
        self._ended.pop(claim.owner, None)


def folder(agent: Agent, name: str) -> str:
    """What the keys of those who wait for a lock begin with."""
    return f"{agent.prefix}{QUEUE}{name}/"


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
