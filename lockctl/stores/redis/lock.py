"""Locks in one Redis server: a key with a time to live, raised and compared by scripts in one step.

Any program that uses the usual recipe (``SET key value NX PX``, compare and delete) contends under the same
key. The fencing token is a counter beside it, never below the server's clock, so that a counter that was lost
does not start again. What breaks it is what loses acknowledged writes: a failover, a restart without AOF.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from lockctl.locks.native import NativeBackend
from lockctl.model import EXCLUSIVE, Capabilities, Claim, Grant, Run
from lockctl.names import printable
from lockctl.stores.redis import layout, scripts
from lockctl.stores.redis.address import SENTINEL_PARAMETERS, TCP_PARAMETERS, UNIX_PARAMETERS, Address, from_url
from lockctl.stores.redis.session import Session
from lockctl.wire.deadline import Deadline
from lockctl.wire.resp import ReplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import ClassVar, TypeVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.redis import inspect, prune, records, revoke
    from lockctl.stores.redis.session import Command, Words
    from lockctl.stores.redis.wait import Queue
    from lockctl.url import Url
    from lockctl.wire.resp import Reply

    T = TypeVar("T")
    FILES: Files[Session] = (inspect, revoke, records, prune)


class RedisBackend(NativeBackend):
    """A ``Backend``: one client of one primary."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="redis",
        fencing="durable-storage",
        rate_error=0.01,
        heartbeat=0.9,
        freed_when="its ttl has run out on the server's clock",
        token_from="a counter in Redis, never below the server's clock in microseconds:"  # noqa: S106 - no password
        " lost writes (failover, restart without AOF) break it if the clock is also behind",
        survives="restarts of the server, if it writes to disk (AOF); a failover may lose the newest lock",
        clocks="the server's wall clock must not jump: it ends the leases",
        period_clock="the server's",
        usual_latency=(0.001, 0.002),
    )
    parameters: ClassVar[dict[str, str]] = TCP_PARAMETERS

    def __init__(self, address: Address) -> None:
        """Nothing is opened yet."""
        self._address = address
        self._prefix = address.prefix
        self._session = Session(address.place, address.login, address.prefix)
        self._queue: Queue | None = None
        self._doubted: set[str] = set()  # owners of which a request may still be on its way

    @classmethod
    def from_url(cls, url: Url) -> RedisBackend:
        """A client for a ``redis``, ``rediss``, ``redis+unix`` or ``redis+sentinel`` URL; raises ``ConfigError``."""
        return cls(from_url(url))

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        """One round trip, also on a new connection."""
        keys = layout.keys_of(self._prefix, claim.name, claim.owner)
        ttl, where = milliseconds(claim.ttl), self._session.where
        script = scripts.ACQUIRE
        if claim.mode == EXCLUSIVE:
            words: Words = [claim.owner, ttl, documents.describe(claim, {"acquired_at": wall()})]
        else:
            from lockctl.stores.redis import share

            script, words = share.acquiring(claim, ttl, wall())
        try:
            reply = self._session.run(script, keys, words, deadline)
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        granted, text, more = layout.decision(reply, where, 3)
        if granted != 1:
            if more or claim.mode != EXCLUSIVE:
                from lockctl.stores.redis import share

                share.refuse_disagreement(keys[0], text, more, claim)
            return None
        if self._queue is not None:
            self._queue.close()
        token, at = layout.token(text, where), layout.seconds(more, where)
        return Grant(claim, token, self._address.domain, keys[0], claim.ttl, at)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        claim = grant.claim
        script = scripts.RENEW
        words: Words = [layout.beginning(claim.owner, grant.token), milliseconds(grant.ttl)]
        if claim.mode != EXCLUSIVE:
            from lockctl.stores.redis import share

            script, words = share.renewing(grant, milliseconds(grant.ttl))
        try:
            reply = self._session.run(script, layout.keys_of(self._prefix, claim.name), words, Deadline(timeout))
        except ConfigError as refused:
            raise BackendUnavailable(str(refused)) from None  # not known: the job lives on until its deadline
        kept, more = layout.decision(reply, self._session.where, 2)
        if kept == 0:
            raise LeaseLost(f"{printable(grant.key)} {'was taken by another' if more else 'ran out or was deleted'}")
        asked = documents.read_revocation(more if isinstance(more, bytes) else None, claim.owner)
        if asked is not None:
            raise LeaseRevoked(*asked)
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        if not hold:
            self._leave(grant.claim, timeout)
            return
        from lockctl.stores.redis.hold import document_of, keep

        claim, document = grant.claim, document_of(grant, {})
        keys = layout.keys_of(self._prefix, claim.name, claim.owner)
        refuse_for, until = self._refuse_for(claim), Deadline(timeout)
        keep(self._session, keys, grant, document, milliseconds(hold), refuse_for, until)
        self._doubted.discard(claim.owner)

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        from lockctl.stores.redis.records import adding

        replies = self._leave(grant.claim, timeout, adding(self._session, grant.claim.name, run))
        return not any(isinstance(reply, ReplyError) for reply in replies)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self._leave(claim, timeout)
        if self._queue is not None:
            self._queue.close()

    def _leave(self, claim: Claim, timeout: float, then: Sequence[Command] = ()) -> list[Reply]:
        """Leave nothing of *claim*; if a request may still be on its way, the server is told to refuse it.

        What is asked *then* takes no further round trip; the answers to it.
        """
        script = scripts.LEAVE
        words: Words = [claim.owner, self._refuse_for(claim)]
        if claim.mode != EXCLUSIVE:
            from lockctl.stores.redis import share

            script, words = share.leaving(claim, self._refuse_for(claim))
        keys = layout.keys_of(self._prefix, claim.name, claim.owner)
        replies = self._session.run_before(script, [(keys, words)], [*then], Deadline(timeout))
        self._doubted.discard(claim.owner)
        return replies

    def _refuse_for(self, claim: Claim) -> int:
        return milliseconds(claim.ttl) if claim.owner in self._doubted else 0

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        if self._queue is None:
            from lockctl.stores.redis.wait import Queue

            self._queue = Queue(self._session)
        try:
            self._queue.wait(claim, self._has_lined_up, deadline)
        except LockctlError:
            self._doubted.add(claim.owner)
            raise

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        return operation(self._session, *arguments, Deadline(timeout))

    def close(self) -> None:
        self._session.close()
        if self._queue is not None:
            self._queue.close()


class UnixBackend(RedisBackend):
    """One whose primary is on this host, at a Unix socket."""

    parameters: ClassVar[dict[str, str]] = UNIX_PARAMETERS


class SentinelBackend(RedisBackend):
    """One whose primary sentinels name."""

    parameters: ClassVar[dict[str, str]] = SENTINEL_PARAMETERS


def milliseconds(seconds: float) -> int:
    """Rounded up: a lease is never shorter than was said."""
    return int(seconds * 1000 + 0.999)
