"""Asking the holder that was seen for its lock, or taking it away: never from one who came later."""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import another_program, only_a_hold
from lockctl.model import SHARED, SLOT, Holder, Revocation
from lockctl.stores.redis import layout
from lockctl.stores.redis.inspect import holders, read_locks
from lockctl.stores.redis.scripts import QUEUE_KEPT, script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.redis.session import Session, Words
    from lockctl.wire.deadline import Deadline

# ARGV: expected value, 1 if it is the whole value and not only its beginning, 1 to free the lock now,
# document of the revocation, the least token -> {1, smallest later token or '0'} | {0}
# Who was freed may not come back: a holder that has a majority of nodes yet would have those again that it lost.
REVOKE = script(f"""
local value, kind = held()
if ARGV[2] == '0' and ARGV[3] == '1' and starts(value, 'ended:') then value = string.sub(value, 7) end
if kind or not starts(value, ARGV[1]) or (ARGV[2] == '1' and value ~= ARGV[1]) then return {{0}} end
if ARGV[3] == '1' then
  redis.call('DEL', LOCK, REVOKE)
  if ARGV[2] == '0' then redis.call('SET', GONE, '1', 'PX', {QUEUE_KEPT}) end
  local token = raise_fence(tonumber(ARGV[5]))
  wake(head())
  return {{1, string.format('%.0f', token + 1)}}
end
local left = redis.call('PTTL', LOCK)
if left <= 0 then left = {QUEUE_KEPT} end
redis.call('SET', REVOKE, ARGV[4], 'PX', left)
return {{1, '0'}}
""")


def revoke(session: Session, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend.revoke``, for one server."""
    if seen.mode in (SHARED, SLOT):
        from lockctl.stores.redis import share

        return share.revoke(session, name, seen, wanted, deadline)
    if seen.ended_at is not None and not wanted.now:
        raise only_a_hold(name)
    if seen.owner is not None and seen.token is not None:
        expected = layout.beginning(seen.owner, seen.token).encode()
        return _ask(session, name, seen, expected, wanted, deadline)
    (present,) = read_locks(session, [name], deadline)
    if present.value is None or seen.identity not in [each.identity for each in holders(present)]:
        return None
    if not wanted.now:
        raise another_program(name)
    return _ask(session, name, seen, present.value, wanted, deadline)


def _ask(
    session: Session, name: str, seen: Holder, expected: bytes, wanted: Revocation, deadline: Deadline
) -> int | None:
    """Revoke if the lock's value begins with *expected*, or is it when it is another program's."""
    foreign = seen.owner is None
    floor = (seen.token or 0) + 1
    document = documents.describe_revocation(seen.owner or "", wanted.by, wanted.reason)
    words: Words = [expected, int(foreign), int(wanted.now), document, floor]
    reply = session.run(REVOKE, layout.keys_of(session.prefix, name, seen.owner or ""), words, deadline)
    if layout.decision(reply, session.where)[0] != 1:
        return None
    return layout.token(layout.answer(reply, session.where, 2)[1], session.where) if wanted.now else floor
