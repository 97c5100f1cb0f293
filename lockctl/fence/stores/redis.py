"""Marks in one Redis server: one key for each resource, compared and written by a script in one step.

A mark is as durable as a write to that server: with ``appendonly yes`` and ``appendfsync always`` it survives a loss
of power, without AOF it does not survive a restart, and a failover may lose the newest marks. A server that may evict
any key when its memory is full is refused: it would forget marks without a word.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, accept
from lockctl.fence.stores import text
from lockctl.names import printable
from lockctl.stores.redis import address as addresses
from lockctl.stores.redis import scripts
from lockctl.stores.redis.errors import code_of
from lockctl.stores.redis.session import Session
from lockctl.url import Url, take_params
from lockctl.value import replace
from lockctl.wire.deadline import Deadline
from lockctl.wire.resp import ReplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import ClassVar

    from lockctl.stores.redis.address import Address
    from lockctl.stores.redis.scripts import Script
    from lockctl.wire.resp import Reply

PREFIX = "lockctl-fence:"
DURABLE = {"appendonly": "yes", "appendfsync": "always"}  # settings with which an acknowledged write is on the disk

# what all begin with: the text of the mark, or nothing, and the type of what is there
_SEEN = f"""
if redis.replicate_commands then redis.replicate_commands() end
local KEY, DOMAIN, TOKEN = KEYS[1], ARGV[1], ARGV[2]
local type_of = redis.call('TYPE', KEY).ok
local seen = type_of == 'string' and redis.call('GETRANGE', KEY, 0, {text.LONGEST})
"""
# The numbers of Lua are exact below 2^53 only, and its texts compare by the server's locale: so in two parts.
ADVANCE = scripts.named(
    _SEEN
    + """
local function parts(digits)
  local whole = string.rep('0', 19 - #digits) .. digits
  return tonumber(string.sub(whole, 1, 9)), tonumber(string.sub(whole, 10))
end

if type_of ~= 'none' then
  local domain, token
  if seen then domain, token = string.match(seen, '^(.*);([1-9]%d*)$') end
  if domain ~= DOMAIN or #token > 19 then return {0, seen, type_of} end
  local high, low = parts(token)
  local offered_high, offered_low = parts(TOKEN)
  if offered_high < high or offered_high == high and offered_low < low then return {0, seen, type_of} end
  if token == TOKEN then
    redis.call('PERSIST', KEY)
    return {1, seen, type_of}
  end
end
redis.call('SET', KEY, DOMAIN .. ';' .. TOKEN)
return {1, seen, type_of}
"""
)
CURRENT = scripts.named(_SEEN + "return {0, seen, type_of}")
RESET = scripts.named(
    _SEEN
    + """
if TOKEN == '' then redis.call('DEL', KEY) else redis.call('SET', KEY, DOMAIN .. ';' .. TOKEN) end
return {1, seen, type_of}
"""
)


class RedisStore:
    """See ``Store``. The key is the prefix and the name in braces, which no lock's key ends with."""

    lockable: ClassVar[bool] = False
    parameters: ClassVar[dict[str, str]] = {
        **addresses.TCP_PARAMETERS,
        **addresses.UNIX_PARAMETERS,
        "prefix": PREFIX,
    }

    def __init__(self, address: Address) -> None:
        """Nothing is opened before it is needed."""
        self._prefix = address.prefix
        self._session = Session(address.place, address.login)
        self._keeps_all = False  # whether we know that the server evicts no marks

    @classmethod
    def from_url(cls, url: Url) -> RedisStore:
        """``redis``, ``rediss`` and ``redis+unix``, as for locks, with another usual prefix; raises ``ConfigError``."""
        take_params(url, cls.parameters)
        return cls(addresses.from_url(replace(url, params=(("prefix", PREFIX), *url.params))))

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        deadline = Deadline(timeout)
        self._refuse_eviction(deadline)
        done, data = self._run(ADVANCE, resource, mark, deadline)
        if not done:
            current = None if data is None else text.read(data, self._session.where, self._key(resource))
            accept(resource, current, mark)  # raises Stale
            raise self._strange()
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        _, data = self._run(CURRENT, resource, None, Deadline(timeout))
        return None if data is None else text.read(data, self._session.where, self._key(resource))

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``; of something that was no mark nothing is given back."""
        deadline = Deadline(timeout)
        if mark is not None:
            self._refuse_eviction(deadline)
        _, data = self._run(RESET, resource, mark, deadline)
        return text.understood(data)

    def holding(self, resource: str, mark: Mark, *, timeout: float) -> AbstractContextManager[None]:
        """See ``Store``: not possible here."""
        raise text.cannot_hold(self._session.where)

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: whether each write is on the disk before its answer."""
        asked = [("CONFIG", "GET", name) for name in DURABLE]
        replies = self._session.ask([*asked], Deadline(timeout))
        refused = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
        if refused is not None:
            raise ConfigError(
                f"{self._session.where}: it cannot be seen whether marks survive a restart ({code_of(refused)}): allow"
                " the user +config|get, or keep the mark in another store"
            )
        for (name, wanted), reply in zip(DURABLE.items(), replies, strict=True):
            found = reply[1] if isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], bytes) else b"?"
            if found != wanted.encode():
                shown = printable(found[:20].decode("utf-8", "replace"))
                raise ConfigError(
                    f"{self._session.where}: {name} is {shown}, so a restart or a crash can lose marks, and old tokens"
                    " would pass: set appendonly yes and appendfsync always, or keep the mark in another store"
                )

    def close(self) -> None:
        self._session.close()

    def _key(self, resource: str) -> str:
        return f"{self._prefix}{{{resource}}}"

    def _run(self, script: Script, resource: str, mark: Mark | None, deadline: Deadline) -> tuple[bool, bytes | None]:
        """Whether the script did it, and what was there before; ``None``: nothing."""
        key = self._key(resource)
        domain, token = ("", "") if mark is None else (mark.domain, str(mark.token))
        reply: Reply = self._session.run(script, (key,), [domain, token], deadline)
        if not isinstance(reply, list) or len(reply) != 3 or not isinstance(reply[2], bytes):
            raise self._strange()
        done, data, kind = reply
        if kind == b"none":
            return done == 1, None
        if done != 1 and kind != b"string":
            what = f"a {kind.decode('ascii', 'replace')[:20]}, and no mark"
            raise text.not_a_mark(self._session.where, key, what)
        if not isinstance(data, bytes) and kind == b"string":
            raise self._strange()
        return done == 1, data if isinstance(data, bytes) else b""

    def _refuse_eviction(self, deadline: Deadline) -> None:
        """Raise ``ConfigError`` if the server may evict keys that never expire; who may not ask believes it."""
        if self._keeps_all:
            return
        (reply,) = self._session.ask([("INFO", "memory")], deadline)
        lines = reply.split() if isinstance(reply, bytes) else []
        policy = next((line for line in lines if line.startswith(b"maxmemory_policy:allkeys")), b"")
        if policy and b"maxmemory:0" not in lines:
            raise ConfigError(
                f"{self._session.where}: it may evict marks when its memory is full, and old tokens would pass:"
                " set maxmemory-policy to noeviction or one for volatile keys"
            )
        self._keeps_all = True

    def _strange(self) -> BackendUnavailable:
        return BackendUnavailable(f"{self._session.where}: an answer that cannot be understood")
