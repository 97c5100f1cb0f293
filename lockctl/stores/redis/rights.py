"""What a user may do in a Redis server, and whether it has room: asked without changing anything there."""

from __future__ import annotations

from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.redis.layout import keys_of, remembered, wake_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

ACL = Check(
    "redis.acl",
    "Without these rights a lock cannot be acquired, shared or recorded.",
    "redis-cli {at} ACL SETUSER {user} '~{prefix}*' '~{{{prefix}*' '&{{{prefix}*' +@all -@admin -@dangerous",
)
MEMORY = Check(
    "redis.memory",
    "A server whose memory is full refuses writes: no job starts, and those that run are stopped at their deadline.",
    "raise maxmemory (redis-cli {at} CONFIG SET maxmemory, and in redis.conf), or delete what fills it",
)


def commands(prefix: str) -> Iterator[tuple[str | int, ...]]:
    """One of each command that lockctl sends, by itself or in a script."""
    key, *companions = keys_of(prefix, "lockctl-doctor", "nobody")
    runs, channel = remembered(prefix, "lockctl-doctor", "runs"), wake_channel(key, "nobody")
    yield from ((name, key) for name in ("GET", "DEL", "EXISTS", "PTTL", "TYPE", "ZCARD"))
    yield from ((name, key, "x") for name in ("HDEL", "HGET", "HSCAN", "ZRANK", "ZREM", "ZSCORE"))
    yield from ((name, key, 1) for name in ("PEXPIRE", "PEXPIREAT", "EXPIRE"))
    yield from ((name, key, 0, 1) for name in ("GETRANGE", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE"))
    yield from (("SET", each, "x") for each in (key, *companions))
    yield from (("HSET", key, "x", "x"), ("ZADD", key, 1, "x"))
    yield from (("LINDEX", runs, 0), ("LREM", runs, 0, "x"), ("LPUSH", runs, "x"), ("LTRIM", runs, 0, 1))
    yield from (("LRANGE", runs, 0, 1), ("SCAN", 0), ("TIME",), ("EVAL", "return 1", 0), ("EVALSHA", "0" * 40, 0))
    yield from (("PUBLISH", channel, "1"), ("SUBSCRIBE", channel))


def check(client: Any, prefix: str, found: Examination) -> None:
    """Ask in a transaction that is discarded: the server refuses what is forbidden, and carries out nothing."""
    from redis import exceptions

    pool = client.connection_pool
    pool.disconnect()  # there may be no room for a second one
    connection = pool.connection_class(**pool.connection_kwargs)  # what a client does with answers is not wanted

    def ask(*command: str | int) -> Any:
        connection.send_command(*command)
        return connection.read_response()

    refused: dict[str, None] = {}
    full = ""
    try:
        if ask("MULTI") != b"OK":
            raise exceptions.NoPermissionError
        asked = list(commands(prefix))
        for command in asked:  # all at once: one after another would take too long where the server is far away
            connection.send_command(*command)
        for command in asked:
            try:
                connection.read_response()
            except exceptions.OutOfMemoryError as failure:
                full = printable(str(failure))
            except exceptions.ResponseError as failure:  # others are forbidden in a transaction: no matter of rights
                if isinstance(failure, exceptions.NoPermissionError) or str(failure).startswith("unknown command"):
                    refused[f"{command[0]}: {printable(str(failure))}"] = None
        ask("DISCARD")
    except exceptions.NoPermissionError:
        found.judge(ACL, "not known: the user may not use MULTI", warns=True)
        return
    finally:
        connection.disconnect()
    found.judge(MEMORY, full or "there is room", fails=bool(full))
    first = next(iter(refused), "")
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    found.judge(ACL, first + more or "all that a lock needs", fails=bool(refused))
