"""The servers that Redlock asks: all at the same time, and each request serves one of them alone."""

from __future__ import annotations

import _thread

from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.names import remainder
from lockctl.stores.redis import address as addresses
from lockctl.stores.redis import entry, scripts
from lockctl.stores.redis.layout import keys_of
from lockctl.stores.redis.session import Session
from lockctl.value import Value
from lockctl.wire.deadline import Deadline
from lockctl.wire.race import Race

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.model import Claim, Grant
    from lockctl.stores.redis.address import Login
    from lockctl.stores.redis.session import Words
    from lockctl.url import Url
    from lockctl.wire.race import Outcome
    from lockctl.wire.resp import Reply
    from lockctl.wire.stream import Endpoint

    T = TypeVar("T")

FEWEST = 3  # nodes: with fewer, no node may fail
LONGEST_TURN = 60.0  # seconds that a request waits for the one before it, if it has so long
PATIENCE = 0.2  # seconds from the start of a round, after which a majority does not wait for the others
PATIENCE_PER_TTL = 1 / 20  # what a round may take of a lease, when the servers are so far away that they need longer
MOST_OWED = 32  # owners whose give-back a node is still to hear: what older ones may have there ends with its ttl


class Members(Value):
    """The nodes that a URL names, and what is the same for all."""

    places: tuple[Endpoint, ...]
    login: Login
    prefix: str
    identity: str  # of this set of nodes: two clients that name other sets do not exclude each other


def from_url(url: Url) -> Members:
    """The nodes that a URL means; raises ``ConfigError``."""
    hosts, login, prefix, tls = addresses.tcp(url)
    shown = sorted(addresses.hostport(host, port).lower() for host, port in hosts)
    if len(set(shown)) != len(shown):
        raise ConfigError(f"{url.scheme}: the URL names a node twice")
    if len(shown) < FEWEST:
        raise ConfigError(
            f"{url.scheme}: {len(shown)} of at least {FEWEST} independent servers: with fewer, the failure of one"
            " ends all locking (for one server use redis://)"
        )
    places = tuple(addresses.endpoint("redlock node", host, port, tls) for host, port in hosts)
    return Members(places, login, prefix, f"{remainder(','.join(shown).encode()):08x}")


class Attempt(Value):
    """What one node says to a claim."""

    token: int | None  # None: refused
    at: float  # its clock when it granted: seconds since the epoch
    value: bytes  # what holds the lock, if it refused


class Patience:
    """How long a majority waits for the others: as long again as it took itself, if the lease allows that."""

    def __init__(self, ttl: float) -> None:
        """The round begins now; *ttl* of the lease in seconds."""
        self._started = boottime()
        self._longest = ttl * PATIENCE_PER_TTL
        self._until: float | None = None

    def until(self, *, settled: bool) -> float | None:
        """Seconds since the start of the round, for ``ask_all``, once it is *settled*; ``None`` before."""
        if settled and self._until is None:
            self._until = min(max(PATIENCE, 2 * (boottime() - self._started)), self._longest)
        return self._until if settled else None


class Node:
    """One server. Its requests are made one after the other, also when a round went on without it."""

    def __init__(self, place: Endpoint, login: Login, prefix: str) -> None:
        """Nothing is opened yet."""
        self.session = Session(place, login, prefix)
        self.where = place.where
        self.closed = False
        self.lacks: str | None = None  # owner of a lock that this node did not have when it was renewed, but could
        self._busy = _thread.allocate_lock()
        self._prefix = prefix
        self._doubted: set[str] = set()  # owners of which a request may still be on its way
        self._owed: dict[str, tuple[str, int]] = {}  # owner -> name and ttl of a claim that is to be left here

    def acquire(self, claim: Claim, document: bytes, ttl: int, deadline: Deadline) -> Attempt:
        """What this node says to a claim; *ttl* in milliseconds."""
        self.settle(deadline)  # else an earlier attempt of ours would keep us out
        keys = keys_of(self._prefix, claim.name, claim.owner)
        try:
            reply = self.session.run(scripts.ACQUIRE, keys, [claim.owner, ttl, document], deadline)
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        granted, text, at = entry.answer(reply, self.where, 3)
        if granted == 1:
            return Attempt(entry.token(text, self.where), entry.seconds(at, self.where), b"")
        return Attempt(None, 0.0, text if isinstance(text, bytes) else b"")

    def confirm(self, claim: Claim, mine: int, token: int, deadline: Deadline) -> bool:
        """Whether the node keeps *token* for the lock that it gave with its own token *mine*."""
        words: list[bytes | str | int] = [entry.beginning(claim.owner, mine), f"{claim.owner}|", token]
        return self._said_yes(self.session.run(scripts.CONFIRM, keys_of(self._prefix, claim.name), words, deadline))

    def renew(self, claim: Claim, token: int, ttl: int, deadline: Deadline) -> tuple[bool, bytes]:
        """Whether the lock is still this grant's here, and a revocation of it or empty."""
        words: list[bytes | str | int] = [entry.beginning(claim.owner, token), ttl]
        reply = self.session.run(scripts.RENEW, keys_of(self._prefix, claim.name), words, deadline)
        kept, text = entry.answer(reply, self.where, 2)
        text = text if isinstance(text, bytes) else b""
        could = kept != 1 and (not text or text.startswith(f"{claim.owner}|".encode()))
        self.lacks = claim.owner if could else None
        return kept == 1, text

    def join(self, claim: Claim, token: int, document: bytes, ttl: int, deadline: Deadline) -> bool:
        """Have the node keep a lock that a majority has, if no other has it here; *ttl* in milliseconds."""
        self.lacks = None
        words: list[bytes | str | int] = [claim.owner, token, ttl, document]
        keys = keys_of(self._prefix, claim.name, claim.owner)
        try:
            return self._said_yes(self.session.run(scripts.JOIN_HOLDER, keys, words, deadline))
        except LockctlError:
            self._doubted.add(claim.owner)
            raise

    def owe(self, claim: Claim, ttl: int) -> None:
        """Have :meth:`settle` leave nothing of *claim* here. May be called while a thread is at this node."""
        self._owed[claim.owner] = (claim.name, ttl)
        for owner in tuple(self._owed)[:-MOST_OWED]:
            del self._owed[owner]
            self._doubted.discard(owner)

    def settle(self, deadline: Deadline) -> bool:
        """Leave nothing of the claims that were given back; a request of them that may still come is refused."""
        owed = tuple(self._owed.items())
        if owed:
            calls: list[tuple[tuple[str, ...], Words]] = [
                (keys_of(self._prefix, name, owner), [owner, ttl if owner in self._doubted else 0])
                for owner, (name, ttl) in owed
            ]
            self.session.run_many(scripts.LEAVE, calls, deadline)
            for owner, _ in owed:
                self._owed.pop(owner, None)
                self._doubted.discard(owner)
        return True

    def hold(self, grant: Grant, document: bytes, kept: int, ttl: int, deadline: Deadline) -> bool:
        """Whether the lock was still this grant's here, and is kept for *kept* milliseconds now."""
        from lockctl.stores.redis.hold import keep

        claim = grant.claim
        keys = keys_of(self._prefix, claim.name, claim.owner)
        refuse_for = ttl if claim.owner in self._doubted else 0
        said = keep(self.session, keys, grant, document, kept, refuse_for, deadline)
        self._doubted.discard(claim.owner)
        return said

    def alone(self, call: Callable[[], T], timeout: float) -> T | None:
        """The result of a call while no other one uses this node; ``None``: one did for the whole time."""
        if not self._busy.acquire(timeout=min(timeout, LONGEST_TURN)):
            return None
        try:
            return call()
        finally:
            if self.closed:
                self.session.close()
            self._busy.release()

    def close(self) -> None:
        """Close the connection; one that a thread is still at, it closes itself."""
        self.closed = True
        self.alone(self.session.close, PATIENCE)

    def _said_yes(self, reply: Reply) -> bool:
        return bool(entry.answer(reply, self.where, 1)[0] == 1)


def ask_all(
    nodes: list[Node],
    ask: Callable[[Node, Deadline], T | None],
    deadline: Deadline,
    enough: Callable[[list[T]], float | None],
) -> list[T | LockctlError | None]:
    """What each node answers, its error, or ``None`` if it was silent when the round ended.

    After each answer *enough* is told all answers so far: it gives the time in seconds since the start at
    which to go on without the silent ones, ``None`` to wait until the deadline. Raises ``RequestInterrupted``.
    """
    started = Deadline(0.0).until
    answers: list[T | LockctlError | None] = [None] * len(nodes)

    def call(number: int) -> T | None:
        return nodes[number].alone(lambda: ask(nodes[number], deadline) if deadline.left() else None, deadline.left())

    def note(outcomes: list[Outcome]) -> None:
        for number, answer, error in outcomes:
            answers[number] = answer if error is None else _known(error, nodes[number])

    race = Race(call, "redlock")
    try:
        for number, node in enumerate(nodes):
            try:
                race.start(number, node.where)
            except BackendUnavailable as failure:
                answers[number] = failure
        step = deadline
        while any(answer is None for answer in answers):
            note(race.wait(step, len(nodes)))
            until = enough([answer for answer in answers if answer is not None and not _is_error(answer)])  # type: ignore[misc]
            if until is not None:
                step = deadline.sooner(max(0.0, started + until - Deadline(0.0).until))
    except BackendUnavailable:
        pass  # the time is over
    finally:
        note(race.end())
    return answers


def _known(error: Exception, node: Node) -> LockctlError:
    """A node for which a call raised something unforeseen is one that is away."""
    if isinstance(error, LockctlError):
        return error
    return BackendUnavailable(f"{node.where}: {type(error).__name__}: {error}")


def _is_error(answer: object) -> bool:
    return isinstance(answer, LockctlError)
