"""Functions of PostgreSQL that depend on the session, as SQLite calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.postgresql_session import WaitsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.postgresql_server import PostgresServer
    from tests.simulation.server_locks import Key

HALF = 1 << 32
DEFAULTS = {"synchronous_commit": "off"}


def functions(server: PostgresServer) -> dict[str, Callable[..., Any]]:
    """Those of a server, by their names there."""

    def notify(channel: str, payload: str) -> None:
        for session in server.sessions.values():
            if channel in session.listens:
                session.client.say(("note", payload))

    def set_config(name: str, content: str, is_local: int) -> str:
        (server.session.local if is_local else server.session.settings)[name] = content
        return content

    def wait(waits: WaitsError) -> None:
        server.problem = waits
        raise waits

    found: dict[str, Callable[..., Any]] = {
        "pg_backend_pid": lambda: server.session.pid,
        "clock_timestamp": lambda: round(server.clock.wall(), 6),
        "to_regclass": lambda name: 1 if name in server.tables.there() else None,
        "pg_advisory_unlock_all": lambda: server.locks.give_back_all(server.session.pid),
        "pg_terminate_backend": lambda pid: server.terminate(pid),  # noqa: PLW0108 - a method would keep the server
        "pg_notify": notify,
        "pg_sleep": lambda seconds: wait(WaitsError(None, seconds)),
        "set_config": set_config,
        "current_setting": lambda name, *_: server.session.setting(name) or DEFAULTS.get(name),
    }
    for shared, suffix in ((False, ""), (True, "_shared")):
        found[f"pg_advisory_unlock{suffix}"] = _unlocking(server, shared=shared)
        for of_transaction, kind in ((False, ""), (True, "_xact")):
            lock = _locking(server, shared=shared, of_transaction=of_transaction)
            found[f"pg_try_advisory{kind}_lock{suffix}"] = lock
            found[f"pg_advisory{kind}_lock{suffix}"] = _waiting(server, lock, shared=shared)
    return found


def _locking(server: PostgresServer, *, shared: bool, of_transaction: bool) -> Callable[..., bool]:
    return lambda *numbers: server.locks.take(
        server.session.pid, _key(numbers), shared=shared, of_transaction=of_transaction
    )


def _waiting(server: PostgresServer, lock: Callable[..., bool], *, shared: bool) -> Callable[..., str]:
    def wait(*numbers: int) -> str:
        if not lock(*numbers):
            server.problem = WaitsError((_key(numbers), shared))
            raise server.problem
        return ""

    return wait


def _unlocking(server: PostgresServer, *, shared: bool) -> Callable[..., bool]:
    return lambda *numbers: server.locks.give_back(server.session.pid, _key(numbers), shared=shared)


def _key(numbers: tuple[int, ...]) -> Key:
    if len(numbers) == 1:
        return (numbers[0] >> 32) % HALF, numbers[0] % HALF, 1
    return numbers[0] % HALF, numbers[1] % HALF, 2
