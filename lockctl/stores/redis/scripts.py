"""What Redis does in one step each: the scripts of takes, renewals and releases, and how they are named to the server.

The scripts for waiting, looking and revoking stand where they are used, so that a start does not load them. All
take the keys of :mod:`lockctl.stores.redis.layout` in the same order, touch no other key, and are idempotent, so that a
request whose answer was lost may be sent again. The server's clock decides. They run on Redis 5 and later, and on what
is compatible with it.

A lock is a string ``owner|token|document`` with a time to live, under the key that other programs use, too;
with ``ended:`` before it when it is only kept for a while after its job (:mod:`lockctl.stores.redis.hold`),
and a sorted set when several may hold it (:mod:`lockctl.stores.redis.share_scripts`).
Who waits has a place in a sorted set, alive until a time in a second one; a waiter that is dead is
passed over when it comes to the head. One waiter is woken for each lock that gets free.

A server whose memory is full refuses what could need more, unless the script has written before. So scripts
that keep a lock or give it back begin with a write that needs none.
"""

from __future__ import annotations

from lockctl.value import Value

READ = 8192  # bytes of a lock's value that are looked at: ours are shorter
NEVER = "9e15"  # milliseconds since the epoch: no lease ends then, and scripts can still count so far
FENCE_KEPT = 366 * 86400  # seconds after the last grant for which a counter is kept, as a history is
QUEUE_KEPT = 60_000  # milliseconds: longer than any position in the queue lives without being refreshed


class Script(Value):
    """A text and the name that the server keeps it under."""

    text: str
    sha: str


def script(body: str) -> Script:
    """A script that does *body* after what is common to all."""
    return named(_PRELUDE + body)


def named(text: str) -> Script:
    """A script that is just this text."""
    try:
        from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore] # hashlib takes long to load
    except ImportError:
        from hashlib import sha1
    return Script(text, sha1(text.encode()).hexdigest())  # noqa: S324 - the server's name for it, no secret


_PRELUDE = f"""
if redis.replicate_commands then redis.replicate_commands() end
local LOCK, FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS, GONE = unpack(KEYS)
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local function kind_in(member)
  local mode, slots = string.match(string.sub(member, 1, 32), '^(%l+)|([1-9]%d*)|')
  if mode == 'shared' and slots == '1' or mode == 'slot' and #slots < 10 then return mode .. '|' .. slots end
end

-- the value, or '?type' with what tells whose it is, and of our readers or slots their kind: 'shared|1', 'slot|3'
local function held()
  local type_of = redis.call('TYPE', LOCK).ok
  if type_of == 'none' then return nil end
  if type_of == 'string' then return redis.call('GETRANGE', LOCK, 0, {READ - 1}) end
  if type_of == 'zset' then
    local last = redis.call('ZREVRANGE', LOCK, 0, 0, 'WITHSCORES')
    local kind, ends = kind_in(redis.call('ZRANGE', LOCK, 0, 0)[1]), tonumber(last[2])
    if kind and kind == kind_in(last[1]) and ends < {NEVER} then
      if ends <= now then return nil end
      return '?zset', kind
    end
  end
  if type_of == 'hash' then
    -- as Redisson has it: a field is named after who holds the lock, and its number may change meanwhile
    local names, found = {{}}, redis.pcall('HSCAN', LOCK, 0)[2] or {{}}
    for i = 1, #found, 2 do names[#names + 1] = found[i] end
    return string.sub('?hash ' .. table.concat(names, ' '), 1, {READ})
  end
  return '?' .. type_of
end

local function starts(text, with)
  return text and string.sub(text, 1, #with) == with
end

local function fence()
  local text = redis.pcall('GETRANGE', FENCE, 0, 16)
  if type(text) ~= 'string' or #text > 16 or not string.match(text, '^%d+$') then return 0 end
  return tonumber(text) < 9e15 and tonumber(text) or 0
end

-- a year later the clock has passed it, so it may be forgotten then; a counter that is far ahead of the clock may not
local function keep_fence(text)
  if tonumber(text) < now_us + {FENCE_KEPT} * 500000 then
    redis.call('SET', FENCE, text, 'EX', {FENCE_KEPT})
  else
    redis.call('SET', FENCE, text)
  end
end

local function raise_fence(least)
  local token = math.max(fence() + 1, least, now_us)
  keep_fence(string.format('%.0f', token))
  return token
end

local function forget(owner)
  if redis.call('ZREM', QUEUE, owner) == 1 then
    redis.call('ZREM', LIVE, owner)
    redis.call('HDEL', WHO, owner)
  end
end

local function head(me)
  while true do
    local first = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not first or first == me then return first end
    if tonumber(redis.call('ZSCORE', LIVE, first) or '0') >= now then return first end
    forget(first)
  end
end

-- what a replica says, which may not have heard of a lock yet, is no answer: this is what it refuses
local function lost(value)
  local said = redis.pcall('ZREM', QUEUE, '')
  if type(said) == 'table' and string.find(said.err or '', 'READONLY', 1, true) then return {{err = 'READONLY'}} end
  return {{0, value or ''}}
end

local function wake(owner)
  if owner then redis.pcall('PUBLISH', '{{' .. LOCK .. '}}:wake:' .. owner, '1') end
end
"""

# ARGV: owner, ttl in ms, document ->
# {1, token, now in microseconds} | {0, what holds the lock, kind of those who share it or ''}
ACQUIRE = script("""
local owner = ARGV[1]
if redis.call('EXISTS', GONE) == 1 then return {0, '', ''} end
local value, kind = held()
if starts(value, owner .. '|') then
  redis.call('PEXPIRE', LOCK, ARGV[2])
  return {1, string.match(value, '^[^|]*|(%d+)|'), string.format('%.0f', now_us)}
end
local first = head(owner)
if value or (first and first ~= owner) then
  if not value then wake(first) end
  return {0, value or '', kind or ''}
end
local token = string.format('%.0f', raise_fence(0))
redis.call('SET', LOCK, owner .. '|' .. token .. '|' .. ARGV[3], 'PX', ARGV[2])
redis.call('DEL', REVOKE, HOLDERS)
forget(owner)
return {1, token, string.format('%.0f', now_us)}
""")

# ARGV: "owner|token|", ttl in ms -> {1, revocation or ''} | {0, what holds the lock}
RENEW = script("""
local value = held()
if not starts(value, ARGV[1]) then return lost(value) end
redis.call('PEXPIRE', LOCK, ARGV[2])
redis.call('PEXPIRE', REVOKE, ARGV[2])
local asked = redis.pcall('GETRANGE', REVOKE, 0, 65535)
return {1, type(asked) == 'string' and asked or ''}
""")

# ARGV: owner, how long in ms a late request of this owner is refused (0: none can come) -> {1 | 0: freed or not}
LEAVE = script("""
local owner, freed = ARGV[1], 0
local value, kind = held()
if starts(value, owner .. '|') then
  redis.call('DEL', LOCK, REVOKE)
  value, freed = nil, 1
end
local was_first = redis.call('ZRANGE', QUEUE, 0, 0)[1] == owner
forget(owner)
if ARGV[2] ~= '0' then redis.call('SET', GONE, '1', 'PX', ARGV[2]) end
-- where a writer gave up, the next may be a reader that can go in to the others
if freed == 1 or (was_first and (kind or not value)) then wake(head()) end
return {freed}
""")

# for a script whose ARGV is: owner, life of the place in ms, document
TAKE_PLACE = f"""
if not redis.call('ZSCORE', QUEUE, ARGV[1]) then
  local last = redis.call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
  redis.call('ZADD', QUEUE, tonumber(last[2] or '0') + 1, ARGV[1])
  redis.call('HSET', WHO, ARGV[1], ARGV[3])
end
redis.call('ZADD', LIVE, now + ARGV[2], ARGV[1])
for _, key in ipairs({{QUEUE, LIVE, WHO}}) do redis.call('PEXPIRE', key, {QUEUE_KEPT}) end
"""

# ARGV: "owner|token of this node|", "owner|", token of the grant -> {1} | {0}: the token is not kept here
CONFIRM = script("""
local value, left = held(), redis.call('PTTL', LOCK)
if left <= 0 or not starts(value, ARGV[1]) then return {0} end
if fence() < tonumber(ARGV[3]) then keep_fence(ARGV[3]) end
redis.call('SET', LOCK, ARGV[2] .. ARGV[3] .. '|' .. string.sub(value, #ARGV[1] + 1), 'PX', left)
return {1}
""")

# ARGV: owner, token of the grant, ttl in ms, document -> {1} | {0}: another has the lock here, or it was given back
JOIN_HOLDER = script("""
local owner, value = ARGV[1], held()
if redis.call('EXISTS', GONE) == 1 or (value and not starts(value, owner .. '|')) then return {0} end
if fence() < tonumber(ARGV[2]) then keep_fence(ARGV[2]) end
if not value then redis.call('DEL', REVOKE, HOLDERS) end
redis.call('SET', LOCK, owner .. '|' .. ARGV[2] .. '|' .. ARGV[4], 'PX', ARGV[3])
return {1}
""")
