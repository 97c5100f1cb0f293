"""The state of one lock, and what may happen to it: take, queue, renew, leave, hold, revoke. Pure: no I/O, no clock.

Times are seconds since the epoch by the clock of the store, which the caller passes in as *at*. Holders and waiters are
JSON documents of :mod:`lockctl.documents` with ``until``, the time at which they end unless they are renewed; a holder
has its ``token``, too, ``asked`` once somebody wants the lock back, and ``ended_at`` when only a hold is left of it.

The order is that of the queue: nobody enters before those who came earlier, unless they could be inside together.
"""

from __future__ import annotations

from lockctl import documents, json_text
from lockctl.errors import LeaseLost, only_a_hold
from lockctl.model import EXCLUSIVE, SHARED, Claim, Holder, Revocation, next_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Member = dict[str, Any]

VERSION = 1  # of the document of a whole lock
LONGEST_LIFE = 30.0  # seconds of a position in the queue: of one who died, it keeps out those behind it for so long


class Lock:
    """One lock, which nobody has at first."""

    __slots__ = ("holders", "queue", "success", "token", "used")

    def __init__(self) -> None:
        """Nobody holds it, nobody waits for it, and no token was ever granted."""
        self.token = 0  # the last one that was granted
        self.used = 0.0  # when it was used last: 0 for never
        self.success: float | None = None  # when the newest run began that succeeded
        self.holders: dict[str, Member] = {}  # by their owners, in the order of their tokens
        self.queue: dict[str, Member] = {}  # by their owners, in the order of their arrival

    @classmethod
    def read(cls, data: bytes) -> Lock | None:
        """The lock that :meth:`written` wrote; ``None`` for anything else."""
        content = json_text.an_object(data)
        if content is None or content.get("lockctl") != VERSION:
            return None
        lock = cls()
        token, used, holders, waiters = (content.get(each) for each in ("token", "used", "holders", "queue"))
        if documents.whole(token) is None or documents.seconds(used) is None:
            return None
        if not isinstance(holders, list) or not isinstance(waiters, list):
            return None
        lock.token, lock.used, lock.success = token, used, documents.seconds(content.get("success"))  # type: ignore[assignment]
        for members, listed in ((lock.holders, holders), (lock.queue, waiters)):
            for member in listed:
                if not isinstance(member, dict) or documents.seconds(member.get("until")) is None:
                    return None
                owner = documents.text(member.get("owner"))
                if owner is None or (members is lock.holders and documents.whole(member.get("token")) is None):
                    return None
                members[owner] = member
        return lock

    def written(self) -> bytes:
        """The lock as a document."""
        return json_text.render(
            {
                "lockctl": VERSION,
                "token": self.token,
                "used": self.used,
                "success": self.success,
                "holders": list(self.holders.values()),
                "queue": list(self.queue.values()),
            }
        ).encode()

    def expire(self, at: float) -> None:
        """Drop all whose time is over."""
        self.holders = {owner: each for owner, each in self.holders.items() if each["until"] > at}
        self.queue = {owner: each for owner, each in self.queue.items() if each["until"] > at}

    def running(self, owner: str) -> Member | None:
        """The holder with this owner, unless its job has ended."""
        holder = self.holders.get(owner)
        return None if holder is None or "ended_at" in holder else holder

    def is_open_to(self, claim: Claim) -> bool:
        """Whether neither those inside nor those who came before keep *claim* out."""
        before = list(self.holders.values())
        for owner, waiter in self.queue.items():
            if owner == claim.owner:
                break
            before.append(waiter)
        if any(each.get("mode") != claim.mode for each in before):
            return False
        return claim.mode == SHARED or len(before) < claim.slots

    def before(self, claim: Claim) -> str | None:
        """The owner whose end *claim*, which waits, has to wait for first; ``None``: that of any of several."""
        if claim.mode != EXCLUSIVE:
            return None
        ahead = [*self.queue][: [*self.queue].index(claim.owner)]
        if ahead:
            return ahead[-1]
        return next(iter(self.holders)) if len(self.holders) == 1 else None

    def take(self, claim: Claim, at: float, floor: int = 0) -> Member | None:
        """Make *claim* a holder, or find that it is one, with a lease from now on; ``None``: others keep it out.

        The token is above *floor*, above all before it, and not below the clock in microseconds: one that was lost
        does not come again. Raises ``ConfigError`` when those inside say another number of slots.
        """
        holder = self.running(claim.owner)
        if holder is None:
            for other in self.holders.values():
                documents.check_agrees(claim.name, documents.slots(other), claim)
            if not self.is_open_to(claim):
                return None
            self.queue.pop(claim.owner, None)
            self.token = self.next_token(at, floor)
            holder = _member(claim, {"token": self.token, "acquired_at": at})
            self.holders[claim.owner] = holder
        holder["until"] = at + claim.ttl
        self.used = at
        return holder

    def next_token(self, at: float, floor: int = 0) -> int:
        """The token of the next grant: see :meth:`take`."""
        return next_token(max(self.token, floor), at)

    def line_up(self, claim: Claim, at: float) -> None:
        """Take a place at the end of the queue, or keep the one that *claim* has, for :func:`life_in_queue`."""
        waiter = self.queue.setdefault(claim.owner, {})
        if not waiter:
            waiter.update(_member(claim, {"since": at}))
        waiter["until"] = at + life_in_queue(claim)

    def renew(self, owner: str, token: int, at: float) -> tuple[str, str] | None:
        """Prolong the lease from now on; who wants the lock back, and why, if anybody. Raises ``LeaseLost``."""
        holder = self.running(owner)
        if holder is None or holder["token"] != token:
            raise LeaseLost("the lease ran out, or the lock was taken away")
        holder["until"] = at + (documents.seconds(holder.get("ttl")) or 0.0)
        self.used = at
        asked = holder.get("asked")
        return documents.asked_by(asked) if isinstance(asked, dict) else None

    def leave(self, owner: str, at: float, hold: float = 0.0) -> bool:
        """Give up the lock and the position in the queue; with *hold*, keep others out for so many seconds more.

        Whether there was anything. A hold that has begun is not ended by this.
        """
        waited = self.queue.pop(owner, None)
        holder = self.running(owner)
        if holder is None:
            return waited is not None
        self.used = at
        if hold > 0:
            holder["ended_at"], holder["until"] = at, at + hold
        else:
            del self.holders[owner]
        return True

    def revoke(self, name: str, seen: Holder, wanted: Revocation) -> int | None:
        """See ``Backend.revoke``; raises ``LockctlError`` for a hold that is not to end now."""
        holder = self.holders.get(seen.owner or "")
        if holder is None or holder["token"] != seen.token:
            return None
        if wanted.now:
            del self.holders[holder["owner"]]
        elif "ended_at" in holder:
            raise only_a_hold(name)
        else:
            asked = documents.describe_revocation(holder["owner"], wanted.by, wanted.reason)
            holder["asked"] = json_text.parse(asked)
        return self.token + 1

    def next_change(self) -> float:
        """When the next one ends who is not renewed until then."""
        return min(
            [each["until"] for each in (*self.holders.values(), *self.queue.values())],
            default=float("inf"),
        )

    def is_in_use(self) -> bool:
        """Whether somebody holds it, keeps it or waits for it."""
        return bool(self.holders or self.queue)


def life_in_queue(claim: Claim) -> float:
    """Seconds that a position in the queue lives unless it is prolonged: a lease, but not a long one."""
    return min(claim.ttl, LONGEST_LIFE)


def _member(claim: Claim, extra: dict[str, int | float | str | None]) -> Member:
    member: Member = json_text.parse(documents.describe(claim, extra))
    return member
