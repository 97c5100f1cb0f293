"""Locks in Consul: the key and the session of ``consul lock``, which excludes us and is excluded; its slots are ours.

The session is the lease, the key says who has the lock, and a counter beside it has the last token: the transaction
that takes the key raises it, if it is still as it was read. Every claim has a session of its own, and the lock is only
ever taken with it: destroying the session gives up the lock, whatever became of a request whose answer was lost.
"""

from __future__ import annotations

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.locks.native import NativeBackend, next_token
from lockctl.model import Capabilities, Grant
from lockctl.names import domain_name, printable, read_domain_name
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.address import Settings, from_url
from lockctl.stores.consul.layout import DOMAIN, HOLDS, LOCK_FLAGS, SEMAPHORE_FLAGS, SUFFIX, encoded
from lockctl.stores.consul.protocol import Agent, lock
from lockctl.value import replace
from lockctl.wire import tls_settings
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, TypeVar

    from lockctl.locks.files import Files
    from lockctl.model import Claim, Run
    from lockctl.stores.consul import inspect, records, retire, revoke
    from lockctl.stores.consul.layout import Counter, Entry, HolderRecord
    from lockctl.stores.consul.queue import Queue
    from lockctl.url import Url

    T = TypeVar("T")
    FILES: Files[Agent] = (inspect, revoke, records, retire)

ENDED = "its session in Consul has ended"
TRIES = 4  # times that another is faster before it is said to have the lock


class ConsulBackend(NativeBackend):
    """One client of a cluster, through one agent. Not for two threads at once, except :meth:`renew`."""

    parameters: ClassVar[dict[str, str]] = {
        "prefix": "lockctl/",
        "dc": "",
        "ns": "",
        "partition": "",
        "lock_delay": "ttl",
        **tls_settings.PARAMETERS,
    }
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="consul",
        fencing="strict",
        many_hosts=True,
        kernel_held=False,
        leased=True,
        fair=True,
        lists_waiters=True,
        revocable=True,
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its session has ended, one to two ttl after its last renewal, and the lock delay, one ttl more",
        token_from="a counter beside the lock, never below the host's clock in microseconds; broken only when data is"  # noqa: S106 - not a password
        " lost, or put back to an earlier state, while clocks go back",
        survives="the failure of a minority of the servers, restarts, another leader; not that of the agent's node",
        clocks="the servers' must not run faster than ours by more than 0.2 %; the agents' time of day counts for"
        " --min-hold alone, the hosts' for tokens after data is lost",
        period_clock="that of the agent that answered, in whole seconds",
        slots=True,
        shared=False,
        hold_by="record",
    )

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before it is needed."""
        self._settings = settings
        self._agent = Agent(settings)
        self._renewing = Agent(settings)  # renewals come from a thread of their own
        self._sessions: dict[str, str] = {}  # owner -> the session that was made for it
        # owner that was refused although a slot is free -> how long to wait at least
        self._pauses: dict[str, float] = {}
        self._queue: Queue | None = None
        self._domain: str | None = None
        self.closed_by = ""  # what kept the last attempt out if nobody holds the lock; empty: not known

    @classmethod
    def from_url(cls, url: Url) -> ConsulBackend:
        """``consul://[:TOKEN@]HOST[:PORT]/?prefix=P&dc=D&...``; raises ``ConfigError``."""
        return cls(from_url(url, cls.parameters))

    def _key(self, name: str) -> str:
        """What ``consul lock`` must be given for the same lock."""
        return self._settings.prefix + name

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        self._pauses.pop(claim.owner, None)
        self.closed_by = ""
        attempt = self._try_slot if claim.slots > 1 else self._try
        for _ in range(TRIES):
            grant, settled = attempt(claim, deadline)
            if settled:
                return grant
        from lockctl.stores.consul import wait

        self._pauses[claim.owner] = wait.some(wait.CROWD)
        return None

    def _try(self, claim: Claim, deadline: Deadline) -> tuple[Grant | None, bool]:
        """One attempt for the whole lock: the grant, and whether that is the last word."""
        key = self._key(claim.name) + SUFFIX
        session, (there, waiting), counter = self._look(claim, (key, False), deadline)
        entry = there[0] if there else None
        if entry is not None and entry.session is not None:
            return self._again(claim, entry.session, entries.read_holder(entry), deadline), True
        semaphore = None
        if entry is not None and entry.flags == SEMAPHORE_FLAGS:
            from lockctl.stores.consul import share

            semaphore = share.read(self._agent, self._key(claim.name), deadline)
            if semaphore.is_full(claim):
                return None, True
        if self._is_behind(claim, waiting):
            return None, True
        session = session or self._session(claim, deadline)
        if semaphore is not None and semaphore.closed(self._agent, session, deadline):
            self._delay(claim)
            return None, True
        token, at = next_token(counter.last, clock.wall()), self._agent.now()
        document = entries.describe(claim, token, session, at)
        taking = [*counter.raised(token), entries.unchanged(key, entry), lock(key, document, LOCK_FLAGS, session)]
        return self._write(claim, taking, token, at, deadline)

    def _try_slot(self, claim: Claim, deadline: Deadline) -> tuple[Grant | None, bool]:
        """The same for one of several slots."""
        from lockctl.stores.consul import share

        path = self._key(claim.name)
        session, (found, waiting), counter = self._look(claim, (path + "/", True), deadline)
        semaphore = share.checked(self._agent, share.semaphore(found, path), deadline)
        own = semaphore.own(claim)
        if own is not None:
            return self._again(claim, *own, deadline), True
        if semaphore.is_full(claim) or self._is_behind(claim, waiting):
            return None, True
        session = session or self._session(claim, deadline)
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
        session, prefix = self._sessions.get(claim.owner), self._settings.prefix
        looks = (wanted, (entries.queue_of(prefix, claim.name), True))
        lives, found = self._agent.renew_and_read(session, looks, entries.counter_keys(prefix, claim.name), deadline)
        counter = entries.read_counter(prefix, claim.name, found.pop())
        return session if lives else None, found, counter

    def _write(
        self, claim: Claim, taking: list[dict[str, Any]], token: int, at: float, deadline: Deadline
    ) -> tuple[Grant | None, bool]:
        """Do all of *taking* if nobody keeps the lock after its job; its last operation writes the holder's key.

        A transaction refused, because another was faster or what was missing is there now, is not the last word.
        """
        hold, domain = self._settings.prefix + HOLDS + claim.name, self._settings.prefix + DOMAIN
        operations = [entries.unchanged(hold, None), *self._leaving_queue(claim), *taking]
        if self._domain is None:
            operations.append({"Verb": "get", "Key": domain})
        outcome = self._agent.transact(operations, deadline)
        if outcome.results is None:
            if len(operations) - 1 in outcome.refusals and self._domain is None:
                self._name_domain(domain, deadline)
            return None, self._is_refused(claim, hold, outcome.refusals, deadline)
        found = {each.key: each for each in outcome.results if each is not None}
        if self._domain is None:
            self._domain = self._read_domain(found.get(domain))
        if taking[-1]["Key"] not in found:
            raise BackendUnavailable(f"{self._settings.endpoint.where}: an answer without the key that was taken")
        if self._queue is not None:
            self._queue.granted(claim)
        return self._grant(claim, token, self._settings.terms(claim.ttl)[0], at), True

    def _is_behind(self, claim: Claim, waiting: list[Entry]) -> bool:
        """Whether another waits who came before *claim*."""
        if not waiting:
            return False
        from lockctl.stores.consul.queue import before

        if before(waiting, None if self._queue is None else self._queue.key_of(claim)) is None:
            return False
        self.closed_by = "nobody holds it: another waits for it, who came before"
        return True

    def _leaving_queue(self, claim: Claim) -> list[dict[str, Any]]:
        """The operations that end the position of a claim that is granted."""
        key = None if self._queue is None else self._queue.key_of(claim)
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
            self._sessions.pop(claim.owner, None)
        return False

    def _delay(self, claim: Claim) -> None:
        """Have *claim* ask again in a while: Consul does not tell when a lock delay is over."""
        from lockctl.stores.consul import wait

        self._pauses[claim.owner] = wait.POLL
        self.closed_by = "nobody holds it: Consul keeps it closed for the lock delay of a holder that vanished"

    def _again(self, claim: Claim, session: str, record: HolderRecord | None, deadline: Deadline) -> Grant | None:
        """The grant of the same claim, if its answer was lost; with a lease that begins within this call."""
        if record is None or record.owner != claim.owner:
            return None
        ttl = self._agent.renew_session(session, deadline)
        if ttl is None:
            return None
        self._sessions[claim.owner] = session
        if self._domain is None:
            self._domain = self._read_domain(self._agent.get(self._settings.prefix + DOMAIN, deadline))
        return self._grant(claim, record.token, ttl, record.granted_at or self._agent.now())

    def _session(self, claim: Claim, deadline: Deadline) -> str:
        """The session of this claim, made or renewed within this call: its lease counts from here."""
        session = self._sessions.get(claim.owner)
        if session is None or self._agent.renew_session(session, deadline) is None:
            ttl, delay = self._settings.terms(claim.ttl)
            session = self._agent.create_session(f"lockctl: {self._key(claim.name)}", ttl, delay, deadline)
            self._sessions[claim.owner] = session
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
        return Grant(claim, token, str(self._domain), self._key(claim.name), ttl, at)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. The session first, then the key: what is seen is true of a lease that was prolonged."""
        deadline = Deadline(timeout)
        owner = grant.claim.owner
        try:
            session = self._sessions.get(owner)
            if session is None:
                raise LeaseLost(ENDED)
            if grant.claim.slots > 1:
                from lockctl.stores.consul.share import keys_of_slot, slot

                ttl, found = self._renewing.renew_and_get(session, keys_of_slot(grant.key, session), deadline)
                entry = slot(found, grant.key, session)
            else:
                ttl, (entry,) = self._renewing.renew_and_get(session, (grant.key + SUFFIX,), deadline)
            if ttl is None:
                raise LeaseLost(ENDED)
        except ConfigError as refusal:
            raise BackendUnavailable(str(refusal)) from refusal
        if entry is None or entry.session != session:
            raise LeaseLost("the lock was taken away, and may be another's by now")
        record = entries.read_holder(entry)
        if record is not None and record.request:
            from lockctl.documents import read_revocation

            asked = read_revocation(record.request, owner)
            if asked is not None:
                raise LeaseRevoked(printable(asked[0]), printable(asked[1]))
        return replace(grant, ttl=ttl)

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``."""
        deadline = Deadline(timeout)
        keeping = []
        if hold > 0 and grant.claim.owner in self._sessions:
            from lockctl.stores.consul.hold import keep

            key = self._settings.prefix + HOLDS + grant.claim.name
            keeping.append(keep(self._agent, key, grant, hold, deadline))
        self._end(grant.claim, keeping, deadline)

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        """See ``Backend.remember``: one transaction deletes the key of the lock and writes that of the run."""
        claim, session, deadline = grant.claim, self._sessions.get(grant.claim.owner), Deadline(timeout)
        if session is None or claim.slots > 1:
            self._end(claim, [], deadline)
            return False
        from lockctl.stores.consul import records

        folder, addition = records.addition(self._agent, grant, run)
        try:
            added = self._give_up(claim.name, session, [addition], deadline)
            if not added:  # the session ended before, or this is said again since no answer came
                added = self._agent.transact([addition], deadline).results is not None
        except ConfigError:  # we may not write there; if it is the lock, that is told now
            added = False
            self._give_up(claim.name, session, [], deadline)
        found = self._agent.destroy_session(session, deadline, folder)
        del self._sessions[claim.owner]
        self._end(claim, [], deadline)
        try:
            records.drop_surplus(self._agent, folder, found, deadline)
        except (BackendUnavailable, ConfigError):
            pass  # the next one does
        return added

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        self._pauses.pop(claim.owner, None)
        self._end(claim, [], Deadline(timeout))

    def _end(self, claim: Claim, keeping: list[dict[str, Any]], deadline: Deadline) -> None:
        """End the session, which frees what it holds and nothing else; a request still on its way fails then.

        *keeping* are operations that go with the end of the lock, in one step, if it is still held.
        """
        session = self._sessions.get(claim.owner)
        if session is not None:
            self._free(claim, session, keeping, deadline)
        if self._queue is not None:
            self._queue.leave(claim, deadline)

    def _free(self, claim: Claim, session: str, keeping: list[dict[str, Any]], deadline: Deadline) -> None:
        path = self._key(claim.name)
        if claim.slots > 1:
            from lockctl.stores.consul.share import leave

            leave(self._agent, path, session, deadline)
        elif keeping or self._settings.lock_delay != 0:
            # a session that ends with its lock starts the delay, which is for holders that vanished
            self._give_up(claim.name, session, keeping, deadline)
        self._agent.destroy_session(session, deadline)
        self._sessions.pop(claim.owner, None)

    def _give_up(self, name: str, session: str, keeping: list[dict[str, Any]], deadline: Deadline) -> bool:
        """Delete the key of a lock, and do what is *keeping*, if the session has it; whether it had."""
        key = self._key(name) + SUFFIX
        held = {"Verb": "check-session", "Key": key, "Session": session}
        return self._agent.transact([held, *keeping, {"Verb": "delete", "Key": key}], deadline).results is not None

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        from lockctl.stores.consul import wait
        from lockctl.stores.consul.queue import Queue

        if self._queue is None:
            self._queue = Queue(self._agent)
        pause = self._pauses.pop(claim.owner, 0.0)
        if pause:
            wait.pause(pause, deadline)
        wait.until_open(self._agent, self._queue, claim, lambda: self._session(claim, deadline), deadline)

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object, **more: object) -> T:
        return operation(self._agent, *arguments, Deadline(timeout), **more)

    def close(self) -> None:
        """See ``Backend``: the sessions of abandoned locks end by themselves."""
        self._agent.close()
        self._renewing.close()
