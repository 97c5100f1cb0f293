"""Locks in Consul: the key and the session of ``consul lock``, which excludes us and is excluded.

The session is the lease, the key says who has the lock, and the index of the transaction that took the key is the
token: it comes from the Raft log of all servers, and rises also when the key was deleted in between. Every claim has
a session of its own, and the lock is only ever taken with it: destroying the session gives up the lock, whatever
became of a request whose answer was lost.
"""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.backends.consul import entry as entries
from lockctl.backends.consul.agent import Agent, encoded, lock
from lockctl.backends.consul.entry import DOMAIN, LOCK_FLAGS, SUFFIX
from lockctl.backends.consul.settings import Settings, from_url
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, RequestInterrupted
from lockctl.model import Capabilities, Grant
from lockctl.names import printable
from lockctl.value import replace
from lockctl.wire import tls_settings
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from lockctl.backends.consul.entry import Entry
    from lockctl.model import Claim, Holder, LockInfo
    from lockctl.url import Url

TRIES = 4  # times that another is faster before it is said to have the lock


class ConsulBackend:
    """One client of a cluster, through one agent. Not for two threads at once, except :meth:`renew`."""

    parameters: ClassVar[dict[str, str]] = {
        "prefix": "lockctl/",
        "dc": "",
        "ns": "",
        "partition": "",
        "lock_delay": "0",
        **tls_settings.PARAMETERS,
    }
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="consul",
        fencing="strict",
        many_hosts=True,
        kernel_held=False,
        leased=True,
        fair=False,
        lists_waiters=False,
        revocable=True,
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its session has ended: one ttl after its last renewal, in fact about two",
        token_from="the index in the servers' Raft log, broken by a restored snapshot",  # noqa: S106 - not a password
        survives="the failure of a minority of the servers, restarts, another leader; not that of the agent's node",
        clocks="no clock's time of day counts; the servers' must not run faster than ours by more than 0.2 %",
    )

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before it is needed."""
        self._settings = settings
        self._agent = Agent(settings)
        self._renewing = Agent(settings)  # renewals come from a thread of their own
        self._sessions: dict[str, str] = {}  # owner -> the session that was made for it
        self._delayed: set[str] = set()  # owners that were refused although nobody holds the lock
        self._domain: str | None = None

    @classmethod
    def from_url(cls, url: Url) -> ConsulBackend:
        """``consul://[:TOKEN@]HOST[:PORT]/?prefix=P&dc=D&...``; raises ``ConfigError``."""
        return cls(from_url(url, cls.parameters))

    def _place(self, name: str) -> str:
        """What ``consul lock`` must be given for the same lock."""
        return self._settings.prefix + name

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        deadline = Deadline(timeout, interrupt)
        key = self._place(claim.name) + SUFFIX
        self._delayed.discard(claim.owner)
        for _ in range(TRIES):
            entry = self._agent.get(key, deadline)
            if entry is not None and entry.session is not None:
                return self._again(claim, entry, deadline)
            if entry is not None and self._agent.is_busy_semaphore(entry, deadline):
                return None
            session = self._session(claim, deadline)
            grant, refusals = self._take(claim, key, entry, session, deadline)
            if grant is not None:
                return grant
            if any("lock delay" in reason for reason in refusals):
                self._delayed.add(claim.owner)
                return None
            if any("invalid session" in reason for reason in refusals):
                self._sessions.pop(claim.owner, None)
        return None

    def _take(
        self, claim: Claim, key: str, entry: Entry | None, session: str, deadline: Deadline
    ) -> tuple[Grant | None, list[str]]:
        """The grant, or why not: the key must be as it was seen, or somebody else was faster."""
        unchanged: dict[str, Any] = {"Verb": "check-not-exists", "Key": key}
        if entry is not None:
            unchanged = {"Verb": "check-index", "Key": key, "Index": entry.index}
        value = entries.describe(claim, session, clock.wall())
        operations = [unchanged, lock(key, value, LOCK_FLAGS, session)]
        domain = self._settings.prefix + DOMAIN
        if self._domain is None:
            operations.append({"Verb": "get", "Key": domain})
        outcome = self._agent.transact(operations, deadline)
        if outcome.results is None:
            if self._domain is None and list(outcome.refusals) == [2]:
                self._name_domain(domain, deadline)
            return None, list(outcome.refusals.values())
        found = {each.key: each for each in outcome.results if each is not None}
        if self._domain is None:
            self._domain = self._read_domain(found.get(domain))
        if key not in found:
            raise BackendUnavailable(f"{self._settings.endpoint.where}: an answer without the key that was taken")
        return self._grant(claim, found[key].index, claim.ttl), []

    def _again(self, claim: Claim, entry: Entry, deadline: Deadline) -> Grant | None:
        """The grant of the same claim, if its answer was lost; with a lease that begins within this call."""
        tenure = entries.read_tenure(entry)
        if tenure is None or tenure.owner != claim.owner or entry.session is None:
            return None
        ttl = self._agent.renew_session(entry.session, deadline)
        if ttl is None:
            return None
        self._sessions[claim.owner] = entry.session
        if self._domain is None:
            self._domain = self._read_domain(self._agent.get(self._settings.prefix + DOMAIN, deadline))
        return self._grant(claim, tenure.token, ttl)

    def _session(self, claim: Claim, deadline: Deadline) -> str:
        """The session of this claim, made or renewed within this call: its lease counts from here."""
        session = self._sessions.get(claim.owner)
        if session is None or self._agent.renew_session(session, deadline) is None:
            session = self._agent.create_session(f"lockctl: {self._place(claim.name)}", claim.ttl, deadline)
            self._sessions[claim.owner] = session
        return session

    def _name_domain(self, key: str, deadline: Deadline) -> None:
        """Give this cluster a name, once for all who use it with this prefix. If another is faster, theirs counts."""
        value = encoded(os.urandom(8).hex().encode())
        self._agent.transact([{"Verb": "cas", "Key": key, "Index": 0, "Value": value, "Flags": 0}], deadline)

    def _read_domain(self, entry: Entry | None) -> str:
        name = entry.value.decode("ascii", "replace") if entry is not None else ""
        if not name.isalnum() or not name.isascii() or len(name) > 64:
            where, key = self._settings.endpoint.where, printable(self._settings.prefix + DOMAIN)
            raise ConfigError(
                f"{where}: the key {key} cannot be read, or is not lockctl's: the token needs"
                f' key_prefix "{printable(self._settings.prefix)}" {{ policy = "write" }}; or delete the key'
            )
        return f"consul:{name}"

    def _grant(self, claim: Claim, token: int, ttl: float) -> Grant:
        return Grant(claim, token, str(self._domain), self._place(claim.name), ttl)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. The session first, then the key: what is seen is true of a lease that was prolonged."""
        deadline = Deadline(timeout)
        owner = grant.claim.owner
        try:
            session = self._sessions.get(owner)
            ttl = None if session is None else self._renewing.renew_session(session, deadline)
            if session is None or ttl is None:
                raise LeaseLost("its session in Consul has ended")
            entry = self._renewing.get(grant.key + SUFFIX, deadline)
        except ConfigError as refusal:
            raise BackendUnavailable(str(refusal)) from refusal
        if entry is None or entry.session != session:
            raise LeaseLost("the lock was taken away, and may be another's by now")
        tenure = entries.read_tenure(entry)
        if tenure is not None and tenure.request:
            from lockctl.documents import read_revocation

            asked = read_revocation(tenure.request, owner)
            if asked is not None:
                raise LeaseRevoked(printable(asked[0]), printable(asked[1]))
        return replace(grant, ttl=ttl)

    def release(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        self._end(grant.claim, grant.key + SUFFIX, Deadline(timeout))

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        self._delayed.discard(claim.owner)
        self._end(claim, self._place(claim.name) + SUFFIX, Deadline(timeout))

    def _end(self, claim: Claim, key: str, deadline: Deadline) -> None:
        """End the session, which frees what it holds and nothing else; a request still on its way fails then."""
        session = self._sessions.get(claim.owner)
        if session is None:
            return
        if self._settings.lock_delay:
            # a session that ends with its lock starts the delay, which is for holders that vanished
            held = {"Verb": "check-session", "Key": key, "Session": session}
            self._agent.transact([held, {"Verb": "delete", "Key": key}], deadline)
        self._agent.destroy_session(session, deadline)
        self._sessions.pop(claim.owner, None)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. Nothing of a waiter is in Consul but a request that is answered when the key changes."""
        if timeout <= 0:
            return
        deadline = Deadline(timeout, interrupt)
        delayed = claim.owner in self._delayed
        self._delayed.discard(claim.owner)
        from lockctl.backends.consul import waiting

        try:
            if delayed:
                waiting.pause(waiting.POLL, deadline)
            waiting.until_free(self._agent, self._place(claim.name) + SUFFIX, deadline)
        except RequestInterrupted:
            return
        except BackendUnavailable:
            if deadline.left() > 0:
                raise

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        from lockctl.backends.consul import seen

        return seen.look(self._agent, self._place(name), name, Deadline(timeout))

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        from lockctl.backends.consul import seen

        return seen.look_all(self._agent, self._settings.prefix, pattern, Deadline(timeout))

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``."""
        from lockctl.backends.consul import seen as looks

        deadline = Deadline(timeout)
        place = self._place(name)
        if now:
            return looks.take_away(self._agent, place, seen, deadline)
        return looks.ask_back(self._agent, place, name, seen, (by, reason), deadline)

    def close(self) -> None:
        """See ``Backend``: the sessions of abandoned locks end by themselves."""
        self._agent.close()
        self._renewing.close()
