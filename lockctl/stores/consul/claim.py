"""Taking a lock: what becomes of each claim of one client, and the sessions that they have."""

from __future__ import annotations

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Claim, Grant, next_token
from lockctl.names import domain_name, printable, read_domain_name
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.layout import DOMAIN, HOLDS, LOCK_FLAGS, SEMAPHORE_FLAGS, SUFFIX, encoded, lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.consul.address import Settings
    from lockctl.stores.consul.layout import Counter, Entry, HolderRecord
    from lockctl.stores.consul.protocol import Agent
    from lockctl.stores.consul.queue import Queue
    from lockctl.wire.deadline import Deadline

    Attempt = tuple[Grant | None, bool]  # the grant, and whether that is the last word

TRIES = 4  # times that another is faster before it is said to have the lock


class Claims:
    """The claims of one client. Methods raise what those of ``Agent`` do."""

    def __init__(self, settings: Settings, agent: Agent) -> None:
        """Nothing is sent yet."""
        self._settings = settings
        self._agent = agent
        self._domain: str | None = None
        self.sessions: dict[str, str] = {}  # owner -> the session that was made for it
        # owner that was refused although a slot is free -> how long to wait at least
        self.pauses: dict[str, float] = {}
        # owner whose turn it is -> an attempt that takes one round trip
        self.turns: dict[str, Callable[[Deadline], Attempt]] = {}
        self.queue: Queue | None = None
        self.closed_by = ""  # what kept the last attempt out if nobody holds the lock; empty: not known

    def key(self, name: str) -> str:
        """What ``consul lock`` must be given for the same lock."""
        return self._settings.prefix + name

    def take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        """See ``Backend.try_acquire``."""
        self.pauses.pop(claim.owner, None)
        self.closed_by = ""
        if claim.owner in self.turns:
            grant, settled = self.turns.pop(claim.owner)(deadline)
            if settled:
                return grant
        attempt = self._try_slot if claim.slots > 1 else self._try
        for _ in range(TRIES):
            grant, settled = attempt(claim, deadline)
            if settled:
                return grant
        from lockctl.stores.consul import wait

        self.pauses[claim.owner] = wait.some(wait.CROWD)
        return None

    def _try(self, claim: Claim, deadline: Deadline) -> Attempt:
        """One attempt for the whole lock: the grant, and whether that is the last word."""
        key = self.key(claim.name) + SUFFIX
        session, (there, waiting), counter = self._look(claim, (key, False), deadline)
        entry = there[0] if there else None
        if entry is not None and entry.session is not None:
            return self._again(claim, entry.session, entries.read_holder(entry), deadline), True
        semaphore = None
        if entry is not None and entry.flags == SEMAPHORE_FLAGS:
            from lockctl.stores.consul import share

            semaphore = share.read(self._agent, self.key(claim.name), deadline)
            if semaphore.is_full(claim):
                return None, True
        if self._is_behind(claim, waiting):
            return None, True
        session = session or self.session(claim, deadline)
        if semaphore is not None and semaphore.closed(self._agent, session, deadline):
            self._delay(claim)
            return None, True
        return self.lock(claim, session, entry, counter, deadline)

    def lock(
        self,
        claim: Claim,
        session: str,
        entry: Entry | None,
        counter: Counter,
        deadline: Deadline,
        place: dict[str, Any] | None = None,
    ) -> Attempt:
        """The same for what was seen already: take the lock if nothing has changed; *place*: see :meth:`_write`."""
        key = self.key(claim.name) + SUFFIX
        token, at = next_token(counter.last, clock.wall()), self._agent.now()
        document = entries.describe(claim, token, session, at)
        taking = [*counter.raised(token), entries.unchanged(key, entry), lock(key, document, LOCK_FLAGS, session)]
        return self._write(claim, taking, token, at, deadline, place)

    def _try_slot(self, claim: Claim, deadline: Deadline) -> Attempt:
        """The same for one of several slots."""
        from lockctl.stores.consul import share

        path = self.key(claim.name)
        session, (found, waiting), counter = self._look(claim, (path + "/", True), deadline)
        semaphore = share.checked(self._agent, share.semaphore(found, path), deadline)
        own = semaphore.own(claim)
        if own is not None:
            return self._again(claim, *own, deadline), True
        if semaphore.is_full(claim) or self._is_behind(claim, waiting):
            return None, True
        session = session or self.session(claim, deadline)
        closed = semaphore.closed(self._agent, session, deadline)
        if len(semaphore.living) + len(closed) >= claim.slots:
            self._delay(claim)
            return None, True
        token, at = next_token(counter.last, clock.wall()), self._agent.now()
        document = entries.describe(claim, token, session, at)
        taking = [*counter.raised(token), *semaphore.entering(claim.slots, session, document, closed)]
        return self._write(claim, taking, token, at, deadline)

    def _look(
        self, claim: Claim, wanted: tuple[str, bool], deadline: Deadline
    ) -> tuple[str | None, list[list[Entry]], Counter]:
        """The session of this claim, if it was renewed in this call; what is *wanted*, and the queue; the counter."""
        session, prefix = self.sessions.get(claim.owner), self._settings.prefix
        looks = (wanted, (entries.queue_of(prefix, claim.name), True))
        lives, found = self._agent.renew_and_read(session, looks, entries.counter_keys(prefix, claim.name), deadline)
        counter = entries.read_counter(prefix, claim.name, found.pop())
        return session if lives else None, found, counter

    def _write(
        self,
        claim: Claim,
        taking: list[dict[str, Any]],
        token: int,
        at: float,
        deadline: Deadline,
        place: dict[str, Any] | None = None,
    ) -> Attempt:
        """Do all of *taking* if nobody keeps the lock after its job; its last operation writes the holder's key.

        A transaction refused, because another was faster or what was missing is there now, is not the last word.
        *place*: the condition that the claim still has its position; then its session is renewed first.
        """
        hold, domain = self._settings.prefix + HOLDS + claim.name, self._settings.prefix + DOMAIN
        operations = [entries.unchanged(hold, None), *self._leaving_queue(claim), *taking]
        if self._domain is None:
            operations.append({"Verb": "get", "Key": domain})
        if place is None:
            outcome = self._agent.transact(operations, deadline)
        else:
            operations.insert(1, place)
            outcome = self._agent.renew_and_transact(self.sessions[claim.owner], operations, deadline)
        if outcome.results is None:
            if len(operations) - 1 in outcome.refusals and self._domain is None:
                self._name_domain(domain, deadline)
            return None, self._is_refused(claim, hold, outcome.refusals, deadline)
        found = {each.key: each for each in outcome.results if each is not None}
        if self._domain is None:
            self._domain = self._read_domain(found.get(domain))
        if taking[-1]["Key"] not in found:
            raise BackendUnavailable(f"{self._settings.endpoint.where}: an answer without the key that was taken")
        if self.queue is not None:
            self.queue.granted(claim)
        return self._grant(claim, token, self._settings.terms(claim.ttl)[0], at), True

    def _is_behind(self, claim: Claim, waiting: list[Entry]) -> bool:
        """Whether another waits who came before *claim*."""
        if not waiting:
            return False
        from lockctl.stores.consul.queue import before

        if before(waiting, None if self.queue is None else self.queue.key_of(claim)) is None:
            return False
        self.closed_by = "nobody holds it: another waits for it, who came before"
        return True

    def _leaving_queue(self, claim: Claim) -> list[dict[str, Any]]:
        """The operations that end the position of a claim that is granted."""
        key = None if self.queue is None else self.queue.key_of(claim)
        return [] if key is None else [{"Verb": "delete", "Key": key}]

    def _is_refused(self, claim: Claim, hold: str, refusals: dict[int, str], deadline: Deadline) -> bool:
        """Whether a transaction was refused for something that lasts: a hold or a lock delay."""
        if 0 in refusals:
            from lockctl.stores.consul.hold import is_over

            return not is_over(self._agent, hold, deadline)
        if any("lock delay" in reason for reason in refusals.values()):
            self._delay(claim)
            return True
        if any("invalid session" in reason for reason in refusals.values()):
            self.sessions.pop(claim.owner, None)
        return False

    def _delay(self, claim: Claim) -> None:
        """Have *claim* ask again in a while: Consul does not tell when a lock delay is over."""
        from lockctl.stores.consul import wait

        self.pauses[claim.owner] = wait.POLL
        self.closed_by = "nobody holds it: Consul keeps it closed for the lock delay of a holder that vanished"

    def _again(self, claim: Claim, session: str, record: HolderRecord | None, deadline: Deadline) -> Grant | None:
        """The grant of the same claim, if its answer was lost; with a lease that begins within this call."""
        if record is None or record.owner != claim.owner:
            return None
        ttl = self._agent.renew_session(session, deadline)
        if ttl is None:
            return None
        self.sessions[claim.owner] = session
        if self._domain is None:
            self._domain = self._read_domain(self._agent.get(self._settings.prefix + DOMAIN, deadline))
        return self._grant(claim, record.token, ttl, record.granted_at or self._agent.now())

    def session(self, claim: Claim, deadline: Deadline) -> str:
        """The session of this claim, made or renewed within this call: its lease counts from here."""
        session = self.sessions.get(claim.owner)
        if session is None or self._agent.renew_session(session, deadline) is None:
            ttl, delay = self._settings.terms(claim.ttl)
            session = self._agent.create_session(f"lockctl: {self.key(claim.name)}", ttl, delay, deadline)
            self.sessions[claim.owner] = session
        return session

    def _name_domain(self, key: str, deadline: Deadline) -> None:
        """Give this cluster a name, once for all who use it with this prefix. If another is faster, theirs counts."""
        place, settings = self._settings.endpoint, self._settings
        address = f"{place.host}:{place.port}/?{settings.query}&prefix={settings.prefix}"
        value = encoded(domain_name(address).encode())
        self._agent.transact([{"Verb": "cas", "Key": key, "Index": 0, "Value": value, "Flags": 0}], deadline)

    def _read_domain(self, entry: Entry | None) -> str:
        name = read_domain_name(entry.value) if entry is not None else None
        if name is None:
            where, key = self._settings.endpoint.where, printable(self._settings.prefix + DOMAIN)
            raise ConfigError(
                f"{where}: the key {key} cannot be read, or is not lockctl's: the token needs"
                f' key_prefix "{printable(self._settings.prefix)}" {{ policy = "write" }}; or delete the key'
            )
        return f"consul:{name}"

    def _grant(self, claim: Claim, token: int, ttl: float, at: float) -> Grant:
        return Grant(claim, token, str(self._domain), self.key(claim.name), ttl, at)
