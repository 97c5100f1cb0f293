"""The stores of histories: their servers, their clients, and what a server has of whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import json_text
from tests.simulation.cells import CellServer, ExactBackend, ExactCells, WholeSecondsBackend, WholeSecondsCells

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import Host, Network, Server


class Store(NamedTuple):
    """One kind of store."""

    backend: type[Any]
    servers: Callable[[float], list[Server]]  # with clocks of this rate
    client: Callable[[type[Any], Network, Host, list[Server]], Any]  # a backend of this class
    owners: Callable[[list[Server]], set[str]]  # of which a server has a lock or a place in the queue
    success: Callable[[list[Server]], float | None]  # the newest that is noted
    looks: float  # seconds until a waiter without faults has seen that the lock is free


def _document(servers: list[Server]) -> dict[str, Any]:
    server = servers[0]
    assert isinstance(server, CellServer)
    data = server.cells.get("lock:nightly", (b"", 0))[0]
    if server.whole_seconds:
        data = data.rpartition(b"\n")[0]
    found: dict[str, Any] = json_text.parse(data) if data else {"holders": [], "queue": [], "success": None}
    return found


def _owners_in_cells(servers: list[Server]) -> set[str]:
    now, content = servers[0].clock.wall(), _document(servers)
    members = (*content["holders"], *content["queue"])
    return {each["owner"] for each in members if each["until"] > now and "ended_at" not in each}


def _success_in_cells(servers: list[Server]) -> float | None:
    success: float | None = _document(servers)["success"]
    return success


def _cells(backend: type[Any], cells: type[Any], *, whole_seconds: bool, looks: float) -> Store:
    return Store(
        backend,
        lambda rate: [CellServer(0, rate, whole_seconds=whole_seconds)],
        lambda made, network, host, servers: made(cells(network, host, servers[0])),
        _owners_in_cells,
        _success_in_cells,
        looks,
    )


STORES = {
    "exact": _cells(ExactBackend, ExactCells, whole_seconds=False, looks=0.7),
    "seconds": _cells(WholeSecondsBackend, WholeSecondsCells, whole_seconds=True, looks=13.0),
}
