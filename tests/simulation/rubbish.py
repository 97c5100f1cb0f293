"""What servers have when all is over that never ends, and that nobody keeps on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import excuses
from tests.simulation.etcd import EtcdServer
from tests.simulation.files import Files
from tests.simulation.objects import ObjectServer
from tests.simulation.plan import NEAR
from tests.simulation.redis import RedisServer
from tests.simulation.world import INFINITE
from tests.simulation.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.network import Server

KEPT_IN_ETCD = (b"lockctl/.token/", b"lockctl/.floor")
KEPT_IN_ZOOKEEPER = "/lockctl/.kept"
TEMPORARY = (".new.", ".gone.")  # names of files


def left_in(servers: list[Server]) -> list[str]:
    """Its names, whatever they are to the store."""
    server = servers[0]
    if isinstance(server, RedisServer):
        each_has = [each.data.keys for each in servers if isinstance(each, RedisServer)]
        keys = [(key, ends) for has in each_has for key, (_, ends) in has.items()]
        return [key.decode() for key, ends in keys if ends == INFINITE and not key.endswith(b":fence")]
    if isinstance(server, ObjectServer):
        return [name for name in server.objects if "proof" in name]
    if isinstance(server, EtcdServer):
        found = [key for key, entry in server.data.keys.items() if not entry.lease]
        return [key.decode() for key in found if not key.startswith(KEPT_IN_ETCD)]
    if isinstance(server, ZooKeeperServer):
        paths = [path for path, node in server.ensemble.nodes.items() if not node.owner]
        return [path for path in paths if path.startswith("/lockctl/.") and not path.startswith(KEPT_IN_ZOOKEEPER)]
    if isinstance(server, Files):
        return [name for name in server.names if name.startswith(TEMPORARY)]
    return []


def violations(history: History) -> Iterator[str]:
    """What is wrong, in one line."""
    if history.rubbish and not (excuses.forgot(history) or _may_stay(history)):
        yield f"left: {', '.join(history.rubbish[:3])} is there for ever"


def _may_stay(history: History) -> bool:
    """Whether somebody may have been kept from removing it."""
    plan = history.plan
    if isinstance(history.servers[0], ObjectServer):  # a proof that cannot be finished leaves its object
        return bool(plan.faults) or plan.slowest > NEAR
    if isinstance(history.servers[0], RedisServer):  # one that refuses most may add to a list, and not say when it ends
        return any(each.kind == "busy" for each in plan.faults)
    is_killed = any(each.kind in ("stop", "pause") and each.value == INFINITE for each in plan.faults)
    return isinstance(history.servers[0], Files) and is_killed
