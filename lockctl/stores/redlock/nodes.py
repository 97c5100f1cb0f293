"""The servers that Redlock asks. The requests to one are made one after the other."""

from __future__ import annotations

import _thread

from lockctl.errors import ConfigError, LockctlError
from lockctl.names import remainder
from lockctl.stores.redis import address as addresses
from lockctl.stores.redis import layout, scripts
from lockctl.stores.redis.lock import milliseconds
from lockctl.stores.redis.session import Session
from lockctl.stores.redlock.rounds import PATIENCE
from lockctl.url import Url, hostport
from lockctl.value import Value
from lockctl.wire.resp import ReplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from lockctl.model import Claim, Grant
    from lockctl.stores.redis.session import Calls, Command, Words
    from lockctl.wire.deadline import Deadline, Steps
    from lockctl.wire.resp import Reply
    from lockctl.wire.stream import Endpoint

    T = TypeVar("T")

FEWEST = 3  # nodes: with fewer, no node may fail
LONGEST_TURN = 60.0  # seconds that a request waits for the one before it, if it has so long
MOST_OWED = 32  # owners whose give-back a node is still to hear: what older ones may have there ends with its ttl


class Members(Value):
    """The nodes that a URL names, and what is the same for all."""

    places: tuple[Endpoint, ...]
    login: addresses.Login
    prefix: str
    identity: str  # of this set of nodes: two clients that name other sets do not exclude each other


def from_url(url: Url) -> Members:
    """The nodes that a URL means; raises ``ConfigError``."""
    hosts, login, prefix, tls = addresses.tcp(url)
    shown = sorted(hostport(host, port).lower() for host, port in hosts)
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


class Node:
    """One server. Its requests are made one after the other, also when a round went on without it."""

    def __init__(self, place: Endpoint, login: addresses.Login, prefix: str) -> None:
        """Nothing is opened yet."""
        self.session = Session(place, login, prefix)
        self.where = place.where
        self.closed = False
        self.lacks: str | None = None  # owner of a lock that this node did not have when it was renewed, but could
        self._busy = _thread.allocate_lock()
        self._prefix = prefix
        self._doubted: set[str] = set()  # owners of which a request may still be on its way
        self._owed: dict[str, tuple[str, int]] = {}  # owner -> name and ttl of a claim that is to be left here

    def acquire(self, claim: Claim, document: bytes, ttl: int, deadline: Deadline) -> Steps[Attempt]:
        """What this node says to a claim; *ttl* in milliseconds."""
        yield from self.settle(deadline)  # else an earlier attempt of ours would keep us out
        try:
            reply = yield from self._run(scripts.ACQUIRE, claim, [claim.owner, ttl, document], deadline)
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        granted, text, at = layout.decision(reply, self.where, 3)
        if granted == 1:
            return Attempt(layout.token(text, self.where), layout.seconds(at, self.where), b"")
        return Attempt(None, 0.0, text if isinstance(text, bytes) else b"")

    def confirm(self, claim: Claim, mine: int, token: int, deadline: Deadline) -> Steps[bool]:
        """Whether the node keeps *token* for the lock that it gave with its own token *mine*."""
        words: Words = [layout.beginning(claim.owner, mine), f"{claim.owner}|", token]
        return self._is_yes((yield from self._run(scripts.CONFIRM, claim, words, deadline)))

    def renew(self, claim: Claim, token: int, ttl: int, deadline: Deadline) -> Steps[tuple[bool, bytes]]:
        """Whether the lock is still this grant's here, and a revocation of it or empty."""
        reply = yield from self._run(scripts.RENEW, claim, [layout.beginning(claim.owner, token), ttl], deadline)
        kept, text = layout.decision(reply, self.where, 2)
        text = text if isinstance(text, bytes) else b""
        could = kept != 1 and (not text or text.startswith(f"{claim.owner}|".encode()))
        self.lacks = claim.owner if could else None
        return kept == 1, text

    def join(self, claim: Claim, token: int, document: bytes, ttl: int, deadline: Deadline) -> Steps[bool]:
        """Have the node keep a lock that a majority has, if no other has it here; *ttl* in milliseconds."""
        self.lacks = None
        words: Words = [claim.owner, token, ttl, document]
        try:
            return self._is_yes((yield from self._run(scripts.JOIN_HOLDER, claim, words, deadline)))
        except LockctlError:
            self._doubted.add(claim.owner)
            raise

    def owe(self, claim: Claim, ttl: int) -> None:
        """Have :meth:`settle` leave nothing of *claim* here. May be called while a thread is at this node."""
        self._owed[claim.owner] = (claim.name, ttl)
        for owner in tuple(self._owed)[:-MOST_OWED]:
            del self._owed[owner]
            self._doubted.discard(owner)

    def settle(self, deadline: Deadline, then: Sequence[Command] = ()) -> Steps[bool]:
        """Leave nothing of the claims that were given back; a request of them that may still come is refused.

        What is asked *then* takes no further round trip; whether the node did it.
        """
        owed = tuple(self._owed.items())
        if not owed and not then:
            return True
        calls: Calls = [
            (layout.keys_of(self._prefix, name, owner), [owner, ttl if owner in self._doubted else 0])
            for owner, (name, ttl) in owed
        ]
        _, replies = yield from self.session.running(scripts.LEAVE, calls, [*then], deadline)
        for owner, _ in owed:
            self._owed.pop(owner, None)
            self._doubted.discard(owner)
        return not any(isinstance(reply, ReplyError) for reply in replies)

    def hold(self, grant: Grant, document: bytes, kept: int, ttl: int, deadline: Deadline) -> bool:
        """Whether the lock was still this grant's here, and is kept for *kept* milliseconds now."""
        from lockctl.stores.redis.hold import keep

        claim = grant.claim
        keys = layout.keys_of(self._prefix, claim.name, claim.owner)
        refuse_for = ttl if claim.owner in self._doubted else 0
        said = keep(self.session, keys, grant, document, kept, refuse_for, deadline)
        self._doubted.discard(claim.owner)
        return said

    def enter(self, timeout: float) -> bool:
        """Have this node alone, until :meth:`leave`; whether no other request had it for the whole time."""
        return self._busy.acquire(timeout=min(timeout, LONGEST_TURN))

    def leave(self) -> None:
        """Another request may begin."""
        if self.closed:
            self.session.close()
        self._busy.release()

    def alone(self, call: Callable[[], T], timeout: float) -> T | None:
        """The result of a call while no other one uses this node; ``None``: one did for the whole time."""
        if not self.enter(timeout):
            return None
        try:
            return call()
        finally:
            self.leave()

    def close(self) -> None:
        """Close the connection; one that a thread is still at, it closes itself."""
        self.closed = True
        self.alone(self.session.close, PATIENCE)

    def _run(self, script: scripts.Script, claim: Claim, words: Words, deadline: Deadline) -> Steps[Reply]:
        keys = layout.keys_of(self._prefix, claim.name, claim.owner)
        (reply,), _ = yield from self.session.running(script, [(keys, words)], [], deadline)
        return reply

    def _is_yes(self, reply: Reply) -> bool:
        return bool(layout.decision(reply, self.where)[0] == 1)


def join(nodes: list[Node], grant: Grant, wanted: dict[str, bytes], deadline: Deadline) -> None:
    """Have *nodes* keep a lock that a majority has just confirmed, too; nobody waits for them.

    It was slow or away, or it lost the lock. It takes it only if no other has it there, and it counts from the
    next round on. So a majority that another has cannot become ours: whoever has one has a node in common
    with the one that confirmed, for as long as that is good for, which is what our deadline counts from.
    *wanted*: owner of a claim that is not given back -> its document in the lock.
    """
    claim, ttl = grant.claim, milliseconds(grant.ttl)

    def ask(node: Node) -> None:
        document = wanted.get(claim.owner)
        if document is not None and deadline.left():
            deadline.drive(node.join(claim, grant.token, document, ttl, deadline), node.where)

    def serve(node: Node) -> None:
        try:
            node.alone(lambda: ask(node), deadline.left())
        except Exception:  # noqa: BLE001, S110 - the node is left out, as before
            pass

    for node in nodes:
        try:
            _thread.start_new_thread(serve, (node,))
        except RuntimeError:
            return  # no thread: the next renewal tries again
