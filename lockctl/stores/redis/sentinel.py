"""Asking sentinels which server is the primary: https://redis.io/docs/latest/develop/reference/sentinel-clients/ ."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.names import printable, some_of
from lockctl.stores.redis import address as addresses
from lockctl.stores.redis.errors import code_of, refusal, refused_authentication
from lockctl.wire.resp import Connection, ReplyError
from lockctl.wire.stream import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.resp import Reply
    from lockctl.wire.stream import Endpoint

    Command = tuple[bytes | str | int, ...]

LONGEST_TRY = 2.0  # seconds for a sentinel while there are others: a dead one must leave time for the next
FILE = "name its file with sentinel_password_file="
DOWN = frozenset({"s_down", "o_down"})  # flags: this sentinel takes it for down, or as many as must agree


class _Down(BackendUnavailable):
    """A sentinel knows the primary, and says that it is down: its name in the URL is right."""


def find_primary(watched: addresses.Watched, deadline: Deadline) -> Endpoint:
    """Where the primary is now, as the first sentinel says that knows one which is not down.

    Raises ``BackendUnavailable``, ``ConfigError``, ``RequestInterrupted``.
    """
    greeting = watched.login.greeting(deadline)
    problems: list[LockctlError] = []
    count = len(watched.sentinels)
    for number, sentinel in enumerate(watched.sentinels):
        share = deadline
        if number < count - 1:
            share = deadline.sooner(min(deadline.left() / (count - number), LONGEST_TRY))
        try:
            host, port = _address(watched, sentinel, _masters(watched, sentinel, greeting, share))
        except (BackendUnavailable, ConfigError) as problem:
            problems.append(problem)
        else:
            return addresses.endpoint("redis", host, port, watched.tls)
        if deadline.left() <= 0:
            break
    raise _all_failed(watched, problems)


def _masters(watched: addresses.Watched, sentinel: Endpoint, greeting: list[Command], deadline: Deadline) -> Reply:
    """What a sentinel knows of all primaries."""
    connection = Connection(sentinel.connect(deadline))
    try:
        *login, reply = connection.pipeline([*greeting, ("SENTINEL", "MASTERS")], deadline=deadline)
    except Closed as failure:
        if watched.tls is None:
            raise Closed(f"{failure} at once (does it want TLS? then add tls=yes)") from None
        raise
    finally:
        connection.close()
    for error in login:
        if isinstance(error, ReplyError):
            raise _refused_login(watched, sentinel, error)
    if isinstance(reply, ReplyError):
        raise _refusal(watched, sentinel, reply)
    return reply


def _refused_login(watched: addresses.Watched, sentinel: Endpoint, error: ReplyError) -> LockctlError:
    """The error for an answer to AUTH; its text may repeat the password, so it is not shown."""
    refused = refused_authentication(sentinel.where, error)
    if isinstance(refused, BackendUnavailable):
        return refused
    if "without any password configured" in error.text:
        return ConfigError(f"{watched.where}: the sentinels have no password: leave out sentinel_password_file")
    return ConfigError(f"{watched.where}: the sentinels want another password: {FILE}")


def _refusal(watched: addresses.Watched, sentinel: Endpoint, error: ReplyError) -> LockctlError:
    if code_of(error) == "NOAUTH":
        return ConfigError(f"{watched.where}: the sentinels want a password: {FILE}")
    if error.text.startswith("unknown command"):
        return ConfigError(
            f"{sentinel.where}: no sentinel: redis+sentinel:// names sentinels (port {addresses.SENTINEL_PORT}),"
            " and redis:// a server"
        )
    return refusal(sentinel.where, error)


def _address(watched: addresses.Watched, sentinel: Endpoint, reply: Reply) -> tuple[str, int]:
    """Host and port of the primary, of all that a sentinel knows."""
    if not isinstance(reply, list):
        raise _strange(sentinel)
    known = [_state(sentinel, fields) for fields in reply]
    for state in known:
        if state["name"] != watched.name:
            continue
        flags = set(state.get("flags", "").split(","))
        if "master" not in flags or flags & DOWN:
            raise _Down(f"{sentinel.where}: the primary is down: {printable(','.join(sorted(flags)))[:100]}")
        host, port = state.get("ip", ""), state.get("port", "")
        if not (host and host.isprintable() and port.isascii() and port.isdigit() and len(port) <= 5):
            raise _strange(sentinel)
        return host, int(port)
    others = some_of(state["name"] for state in known)
    raise ConfigError(
        f"{watched.where}: they know no primary of this name, {f'only {others}' if others else 'and no other'}"
    )


def _state(sentinel: Endpoint, fields: Reply) -> dict[str, str]:
    """The pairs of names and values of one primary."""
    if not isinstance(fields, list) or len(fields) % 2 or not all(isinstance(each, bytes) for each in fields):
        raise _strange(sentinel)
    texts = [each.decode("utf-8", "replace") for each in fields]
    state = dict(zip(texts[::2], texts[1::2], strict=True))
    if "name" not in state:
        raise _strange(sentinel)
    return state


def _strange(sentinel: Endpoint) -> BackendUnavailable:
    return BackendUnavailable(f"{sentinel.where}: an answer that is not a sentinel's")


def _all_failed(watched: addresses.Watched, problems: list[LockctlError]) -> LockctlError:
    """The error to raise when no sentinel has named a primary.

    One that must be mended counts, although other sentinels are out of reach: they would hide it.
    """
    if not any(isinstance(problem, _Down) for problem in problems):
        for problem in problems:
            if isinstance(problem, ConfigError):
                return problem
    return BackendUnavailable(f"{watched.where}: {'; '.join(dict.fromkeys(str(problem) for problem in problems))}")
