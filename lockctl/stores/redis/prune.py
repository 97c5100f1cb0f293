"""Names that nobody uses any more, on one server: finding them, and removing what is kept of them.

The server forgets each of these keys by itself a year after it was last written. So the life that is left of a key
says when that was, and nothing more is stored.
"""

from __future__ import annotations

from lockctl import history
from lockctl.stores.redis import inspect, layout
from lockctl.stores.redis.scripts import FENCE_KEPT, script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.stores.redis.session import Session, Words
    from lockctl.wire.deadline import Deadline

WORDS = (layout.RUNS, layout.REFUSED, layout.SUCCESS)  # after the keys of the lock itself
FOUND_BY = (*layout.SHOWN_BY, *WORDS)

# A counter without an end is from an older lockctl, or far ahead of the clock: it says itself when it was raised.
_LAST_USE = f"""
-- in milliseconds since the epoch, or nothing: it is held or waited for, or there is nothing of it
local function last_use()
  local waiting = redis.pcall('ZCOUNT', LIVE, now, '+inf')
  if held() or waiting ~= 0 then return nil end
  local used = nil
  for key, kept in pairs({{[FENCE] = {FENCE_KEPT}, [KEYS[9]] = {history.AGE}, [KEYS[10]] = {history.AGE},
                          [KEYS[11]] = {history.AGE}}}) do
    local left = redis.call('PTTL', key)
    if left == -1 and key == FENCE then used = math.max(used or 0, math.floor(fence() / 1000)) end
    if left == -1 and key ~= FENCE then used = now end
    if left >= 0 then used = math.max(used or 0, now - (kept * 1000 - left)) end
  end
  return used
end
"""

# no ARGV -> {when it was last used and how long ago, in ms} | {}
UNUSED = script(
    _LAST_USE
    + """
local used = last_use()
if not used then return {} end
return {string.format('%.0f', used), string.format('%.0f', math.max(now - used, 0))}
"""
)

# While the clock has not passed the counter, nothing else would keep the tokens in their order.
# ARGV: for how long in ms it must not have been used -> {1 | 0: forgotten or not}
FORGET = script(
    _LAST_USE
    + """
local used = last_use()
if not used or now - used < tonumber(ARGV[1]) or fence() >= now_us then return {0} end
redis.call('DEL', FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS, KEYS[9], KEYS[10], KEYS[11])
return {1}
"""
)


def unused(session: Session, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend``."""
    uses = last_uses(session, pattern, deadline)
    return ((name, use[0]) for name, use in uses.items() if use is not None and use[1] >= older_than)


def last_uses(session: Session, pattern: str, deadline: Deadline) -> dict[str, tuple[float, float] | None]:
    """Every name that matches, with when it was last used and how long ago, in seconds; ``None``: it is in use."""
    found = inspect.names_of(session, pattern, deadline, FOUND_BY)
    uses: dict[str, tuple[float, float] | None] = {}
    for start in range(0, len(found), inspect.INSPECTED):
        piece = found[start : start + inspect.INSPECTED]
        calls: list[tuple[tuple[str, ...], Words]] = [(_keys(session.prefix, name), []) for name in piece]
        for name, reply in zip(piece, session.run_many(UNUSED, calls, deadline), strict=True):
            said = layout.answer(reply, session.where, 0) if not reply else layout.answer(reply, session.where, 2)
            at, ago = (layout.token(text, session.where) / 1000 for text in said) if said else (None, None)
            uses[name] = None if at is None or ago is None else (at, ago)
    return uses


def forget(session: Session, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend``. Without its counter, the server's clock alone keeps the tokens in their order."""
    reply = session.run(FORGET, _keys(session.prefix, name), [int(older_than * 1000 + 0.999)], deadline)
    return bool(layout.decision(reply, session.where)[0] == 1)


def _keys(prefix: str, name: str) -> tuple[str, ...]:
    return (*layout.keys_of(prefix, name), *(layout.remembered(prefix, name, word) for word in WORDS))
