"""What Redis does in one step each for a lock that several may hold: readers beside each other, and slots.

Under the key of the lock stands a sorted set then, so that ``SET key value NX`` of other programs is refused as
ever: members ``mode|slots|owner``, each with the time in milliseconds at which its lease ends. A hash beside it has
``token|document`` of each owner, and what revokes it. Both end with the last lease. There is one queue for all
modes; who gets in wakes the next one that may go in, too.
"""

from __future__ import annotations

from lockctl.stores.redis.scripts import TAKE_PLACE, Script, script


def _script(body: str) -> Script:
    return script(_PRELUDE + body)


_PRELUDE = """
local function room_of(kind)
  if string.sub(kind, 1, 7) == 'shared|' then return math.huge end
  return tonumber(string.match(kind, '|(%d+)$'))
end

-- quotes inside the texts of a document are escaped: only its own fields look like these
local function kind_of(waiter)
  local document = redis.pcall('HGET', WHO, waiter)
  if type(document) ~= 'string' then return '' end
  local mode = string.match(document, '"mode":"(%l+)"') or ''
  return mode .. '|' .. (mode == 'slot' and string.match(document, '"slots":(%d+)') or '1')
end

local function end_with_the_last()
  local last = redis.call('ZREVRANGE', LOCK, 0, 0, 'WITHSCORES')[2]
  if not last then return end
  local whole = string.format('%.0f', tonumber(last))
  for _, key in ipairs({LOCK, HOLDERS}) do redis.call('PEXPIREAT', key, whole) end
end

local function drop(kind, owner)
  redis.call('ZREM', LOCK, kind .. '|' .. owner)
  redis.pcall('HDEL', HOLDERS, owner, 'revoke:' .. owner)
end

-- as held(), without those whose lease has ended
local function held_by_the_living()
  local value, kind = held()
  if kind then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', LOCK, '-inf', string.format('%.0f', now))) do
      drop(kind, string.sub(member, #kind + 2))
    end
  end
  return value, kind
end

-- the lock is kept for longer first: that needs no memory
local function prolong(kind, owner, ttl)
  local last = redis.call('ZREVRANGE', LOCK, 0, 0, 'WITHSCORES')[2]
  local ends = now + ttl
  local whole = string.format('%.0f', math.max(ends, tonumber(last)))
  redis.call('PEXPIREAT', LOCK, whole)
  redis.call('PEXPIREAT', HOLDERS, whole)
  redis.call('ZADD', LOCK, 'XX', string.format('%.0f', ends), kind .. '|' .. owner)
end

local function token_of(owner)
  local text = redis.pcall('HGET', HOLDERS, owner)
  return type(text) == 'string' and string.match(text, '^(%d+)|') or nil
end

-- whether *owner* may go in to those who are inside, and with all who wait before it
local function is_open_to(kind, owner)
  local value, inside = held_by_the_living()
  if value and inside ~= kind then return false end
  local room, rank = room_of(kind), 0
  if value then room = room - redis.call('ZCARD', LOCK) end
  while room >= 1 do
    local other = redis.call('ZRANGE', QUEUE, rank, rank)[1]
    if not other or other == owner then return true end
    if tonumber(redis.call('ZSCORE', LIVE, other) or '0') < now then
      forget(other)
    elseif kind_of(other) == kind then
      room, rank = room - 1, rank + 1
    else
      return false
    end
  end
  return false
end

local function wake_next()
  local first = head()
  if not first then return end
  local value, inside = held()
  local fits = inside and kind_of(first) == inside and redis.call('ZCARD', LOCK) < room_of(inside)
  if fits or not value then wake(first) end
end
"""

# ARGV: owner, ttl in ms, document, kind ->
# {1, token, now in microseconds} | {0, what holds the lock, kind of those who share it or ''}
ACQUIRE = _script("""
local owner, mine = ARGV[1], ARGV[4]
if redis.call('EXISTS', GONE) == 1 then return {0, '', ''} end
local value, kind = held_by_the_living()
local us = string.format('%.0f', now_us)
if kind == mine and redis.call('ZSCORE', LOCK, mine .. '|' .. owner) then
  local token = token_of(owner)
  if token then
    prolong(mine, owner, ARGV[2])
    return {1, token, us}
  end
end
if not is_open_to(mine, owner) then
  wake_next()
  return {0, value or '', kind or ''}
end
local token = string.format('%.0f', raise_fence(0))
if not value then redis.call('DEL', LOCK, REVOKE, HOLDERS) end
redis.call('HSET', HOLDERS, owner, token .. '|' .. ARGV[3])
redis.call('ZADD', LOCK, string.format('%.0f', now + ARGV[2]), mine .. '|' .. owner)
end_with_the_last()
forget(owner)
wake_next()
return {1, token, us}
""")

# ARGV: owner, token, kind, ttl in ms -> {1, revocation or ''} | {0, ''}
RENEW = _script("""
local owner, mine = ARGV[1], ARGV[3]
local _, kind = held()
local ends = kind == mine and redis.call('ZSCORE', LOCK, mine .. '|' .. owner)
if not ends or tonumber(ends) <= now or token_of(owner) ~= ARGV[2] then return lost() end
prolong(mine, owner, ARGV[4])
local asked = redis.call('HGET', HOLDERS, 'revoke:' .. owner)
return {1, asked or ''}
""")

# ARGV: owner, how long in ms a late request of this owner is refused (0: none can come), kind -> {1 | 0: freed or not}
LEAVE = _script("""
local owner, mine, freed = ARGV[1], ARGV[3], 0
local _, kind = held()
if kind == mine and redis.call('ZSCORE', LOCK, mine .. '|' .. owner) then
  drop(mine, owner)
  end_with_the_last()
  freed = 1
end
local was_first = redis.call('ZRANGE', QUEUE, 0, 0)[1] == owner
forget(owner)
if ARGV[2] ~= '0' then redis.call('SET', GONE, '1', 'PX', ARGV[2]) end
if freed == 1 or was_first then wake_next() end
return {freed}
""")

# ARGV: owner, life of the place in ms, document, kind ->
# {1 if it may acquire, how many are before it, ms that the lock, a slot, or else the life of the first still has}
JOIN = _script(
    """
local owner, mine = ARGV[1], ARGV[4]
if redis.call('EXISTS', GONE) == 1 then return {0, 0, -1} end
local _, kind = held()
if kind == mine and redis.call('ZSCORE', LOCK, mine .. '|' .. owner) then return {1, 0, 0} end
"""
    + TAKE_PLACE
    + """
if is_open_to(mine, owner) then return {1, 0, 0} end
wake_next()
local first, left = head(owner), redis.call('PTTL', LOCK)
if first ~= owner then
  left = redis.call('ZSCORE', LIVE, first) - now
elseif kind == mine then
  local ends = redis.call('ZRANGE', LOCK, 0, 0, 'WITHSCORES')[2]
  left = ends and math.max(ends - now, 0) or left
end
return {0, redis.call('ZRANK', QUEUE, owner), left}
"""
)

# ARGV: owner, its token or '' if it has none that can be read, 1 to free its place now, document of the revocation ->
# {1, smallest later token or '0'} | {0}
REVOKE = _script("""
local owner = ARGV[1]
local _, kind = held()
if not kind or not redis.call('ZSCORE', LOCK, kind .. '|' .. owner) then return {0} end
if ARGV[2] ~= '' and token_of(owner) ~= ARGV[2] then return {0} end
if ARGV[3] == '1' then
  drop(kind, owner)
  end_with_the_last()
  local token = raise_fence((tonumber(ARGV[2]) or 0) + 1)
  wake_next()
  return {1, string.format('%.0f', token + 1)}
end
redis.call('HSET', HOLDERS, 'revoke:' .. owner, ARGV[4])
end_with_the_last()
return {1, '0'}
""")
