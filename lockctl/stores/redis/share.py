"""A claim, renewal, release or revocation of a lock that several may hold, in the words of the scripts."""

from __future__ import annotations

from lockctl import documents
from lockctl.stores.redis import layout, share_scripts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim, Grant, Holder, Revocation
    from lockctl.stores.redis.scripts import Script
    from lockctl.stores.redis.session import Session, Words
    from lockctl.wire.deadline import Deadline

ROOM = 1000  # bytes of the document of one holder, of which there may be hundreds


def kind(claim: Claim) -> str:
    """Who may be beside whom: those of the same kind."""
    return f"{claim.mode}|{claim.slots}"


def refuse_disagreement(key: str, value: object, holders: object, claim: Claim) -> None:
    """Raise ``ConfigError`` if those who hold the lock, by value or kind, say another number of slots than *claim*."""
    if holders:
        theirs = layout.slots_of(holders)
    else:
        found = layout.read(value if isinstance(value, bytes) else None)
        if found is None:
            return
        theirs = documents.slots(found.document)
    documents.check_agrees(key, theirs, claim)


def acquiring(claim: Claim, ttl: int, acquired_at: float) -> tuple[Script, Words]:
    """What to run for a claim; *ttl* in milliseconds."""
    document = documents.describe(claim, {"acquired_at": acquired_at}, ROOM)
    return share_scripts.ACQUIRE, [claim.owner, ttl, document, kind(claim)]


def renewing(grant: Grant, ttl: int) -> tuple[Script, Words]:
    """What to run for a renewal; *ttl* in milliseconds."""
    return share_scripts.RENEW, [grant.claim.owner, grant.token, kind(grant.claim), ttl]


def leaving(claim: Claim, refuse_for: int) -> tuple[Script, Words]:
    """What to run to leave nothing of a claim."""
    return share_scripts.LEAVE, [claim.owner, refuse_for, kind(claim)]


def joining(claim: Claim, life: int, document: bytes) -> tuple[Script, Words]:
    """What to run to keep a position in the queue for *life* milliseconds."""
    return share_scripts.JOIN, [claim.owner, life, document, kind(claim)]


def revoke(session: Session, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend.revoke``, for one of several holders."""
    owner, token = seen.owner or "", "" if seen.token is None else seen.token
    words: Words = [owner, token, int(wanted.now), documents.describe_revocation(owner, wanted.by, wanted.reason)]
    reply = session.run(share_scripts.REVOKE, layout.keys_of(session.prefix, name), words, deadline)
    if layout.decision(reply, session.where)[0] != 1:
        return None
    floor = layout.token(layout.answer(reply, session.where, 2)[1], session.where)
    return floor if wanted.now else (seen.token or 0) + 1
