"""Locks in Consul: the key and the session of ``consul lock``, which excludes us and is excluded; its slots are ours.

The session is the lease, the key says who has the lock, and a counter beside it has the last token: the transaction
that takes the key raises it, if it is still as it was read. Every claim has a session of its own, and the lock is only
ever taken with it: destroying the session gives up the lock, whatever became of a request whose answer was lost.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.locks.native import NativeBackend
from lockctl.model import Capabilities, Claim, Grant, Run
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.address import Settings, from_url
from lockctl.stores.consul.claim import Claims
from lockctl.stores.consul.layout import HOLDS, SUFFIX
from lockctl.stores.consul.protocol import Agent
from lockctl.value import replace
from lockctl.wire import tls_settings
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, TypeVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.consul import inspect, prune, records, revoke
    from lockctl.url import Url

    T = TypeVar("T")
    FILES: Files[Agent] = (inspect, revoke, records, prune)

ENDED = "its session in Consul has ended"


class ConsulBackend(NativeBackend):
    """A ``Backend``: one client of a cluster, through one agent. Not for two threads at once, except :meth:`renew`."""

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
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its session has ended, one to two ttl after its last renewal, and the lock delay, one ttl more",
        token_from="a counter beside the lock, never below the host's clock in microseconds; broken only when data is"  # noqa: S106 - not a password
        " lost, or put back to an earlier state, while clocks go back",
        survives="the failure of a minority of the servers, restarts, another leader; not that of the agent's node",
        clocks="the servers' must not run faster than ours by more than 0.2 %; the agents' time of day counts for"
        " --min-hold alone, the hosts' for tokens after data is lost",
        period_clock="that of the agent that answered, in whole seconds",
        shared=False,
        hold_by="record",
    )

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before it is needed."""
        self._settings = settings
        self._agent = Agent(settings)
        self._renewing = Agent(settings)  # renewals come from a thread of their own
        self._claims = Claims(settings, self._agent)

    @classmethod
    def from_url(cls, url: Url) -> ConsulBackend:
        """``consul://[:TOKEN@]HOST[:PORT]/?prefix=P&dc=D&...``; raises ``ConfigError``."""
        return cls(from_url(url, cls.parameters))

    @property
    def closed_by(self) -> str:
        """What kept the last attempt out if nobody holds the lock; empty: not known."""
        return self._claims.closed_by

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        return self._claims.take(claim, deadline)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. The session first, then the key: what is seen is true of a lease that was prolonged."""
        deadline = Deadline(timeout)
        owner = grant.claim.owner
        try:
            session = self._claims.sessions.get(owner)
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
                raise LeaseRevoked(*asked)
        return replace(grant, ttl=ttl)

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        deadline = Deadline(timeout)
        keeping = []
        if hold > 0 and grant.claim.owner in self._claims.sessions:
            from lockctl.stores.consul.hold import keep

            key = self._settings.prefix + HOLDS + grant.claim.name
            keeping.append(keep(self._agent, key, grant, hold, deadline))
        self._end(grant.claim, keeping, deadline)

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        """See ``Backend.remember``: one transaction deletes the key of the lock and writes that of the run."""
        claim, session, deadline = grant.claim, self._claims.sessions.get(grant.claim.owner), Deadline(timeout)
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
        del self._claims.sessions[claim.owner]
        self._end(claim, [], deadline)
        try:
            records.drop_surplus(self._agent, folder, found, deadline)
        except (BackendUnavailable, ConfigError):
            pass  # the next one does
        return added

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self._claims.pauses.pop(claim.owner, None)
        self._claims.turns.pop(claim.owner, None)
        self._end(claim, [], Deadline(timeout))

    def _end(self, claim: Claim, keeping: list[dict[str, Any]], deadline: Deadline) -> None:
        """End the session, which frees what it holds and nothing else; a request still on its way fails then.

        *keeping* are operations that go with the end of the lock, in one step, if it is still held.
        """
        session = self._claims.sessions.get(claim.owner)
        if session is not None:
            self._free(claim, session, keeping, deadline)
        if self._claims.queue is not None:
            self._claims.queue.leave(claim, deadline)

    def _free(self, claim: Claim, session: str, keeping: list[dict[str, Any]], deadline: Deadline) -> None:
        path = self._claims.key(claim.name)
        if claim.slots > 1:
            from lockctl.stores.consul.share import leave

            leave(self._agent, path, session, deadline)
        elif keeping or self._settings.lock_delay != 0:
            # a session that ends with its lock starts the delay, which is for holders that vanished
            self._give_up(claim.name, session, keeping, deadline)
        self._agent.destroy_session(session, deadline)
        self._claims.sessions.pop(claim.owner, None)

    def _give_up(self, name: str, session: str, keeping: list[dict[str, Any]], deadline: Deadline) -> bool:
        """Delete the key of a lock, and do what is *keeping*, if the session has it; whether it had."""
        key = self._claims.key(name) + SUFFIX
        held = {"Verb": "check-session", "Key": key, "Session": session}
        return self._agent.transact([held, *keeping, {"Verb": "delete", "Key": key}], deadline).results is not None

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        from lockctl.stores.consul import turn, wait
        from lockctl.stores.consul.queue import Queue

        if self._claims.queue is None:
            self._claims.queue = Queue(self._agent)
        pause = self._claims.pauses.pop(claim.owner, 0.0)
        if pause:
            wait.pause(pause, deadline)
        seen = wait.until_open(
            self._agent,
            self._claims.queue,
            claim,
            self._has_lined_up,
            lambda until: self._claims.session(claim, until),
            deadline,
        )
        if seen is not None:
            self._claims.turns[claim.owner] = lambda until: turn.take(self._claims, claim, seen, until)

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        return operation(self._agent, *arguments, Deadline(timeout))

    def close(self) -> None:
        """See ``Backend``: the sessions of abandoned locks end by themselves."""
        self._agent.close()
        self._renewing.close()
