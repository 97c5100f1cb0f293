"""Keeping a lock for a while after its job, with nobody left who renews it."""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.stores.redis import layout
from lockctl.stores.redis.scripts import script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant
    from lockctl.stores.redis.session import Session, Words
    from lockctl.wire.deadline import Deadline

# The value begins otherwise from now on: what may still come of this owner neither prolongs it nor ends it.
# ARGV: owner, token, how long in ms, document, how long in ms a late request of this owner is refused -> {1} | {0}
HOLD = script("""
local owner, value = ARGV[1], held()
local ended = 'ended:' .. owner .. '|' .. ARGV[2] .. '|'
local kept = starts(value, ended)
if starts(value, owner .. '|' .. ARGV[2] .. '|') then
  redis.call('PEXPIRE', LOCK, ARGV[3])
  redis.call('SET', LOCK, ended .. ARGV[4], 'PX', ARGV[3])
  redis.call('DEL', REVOKE)
  kept = true
elseif starts(value, owner .. '|') then
  redis.call('DEL', LOCK, REVOKE)
  wake(head())
end
forget(owner)
if ARGV[5] ~= '0' then redis.call('SET', GONE, '1', 'PX', ARGV[5]) end
return {kept and 1 or 0}
""")


def document_of(grant: Grant, extra: dict[str, int | float | str | None]) -> bytes:
    """What is shown of a holder whose job has ended."""
    return documents.describe(grant.claim, {"acquired_at": grant.at, "ended_at": wall(), **extra})


def keep(
    session: Session, keys: tuple[str, ...], grant: Grant, document: bytes, kept: int, refuse_for: int, until: Deadline
) -> bool:
    """Keep the lock of *grant* for *kept* milliseconds; whether it was still that grant's. Safe to repeat."""
    words: Words = [grant.claim.owner, grant.token, kept, document, refuse_for]
    return bool(layout.decision(session.run(HOLD, keys, words, until), session.where)[0] == 1)
