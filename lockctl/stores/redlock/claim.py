"""What a claim needs when not all nodes say the same: the others are to keep the lock, too, or another has it."""

from __future__ import annotations

import _thread

from lockctl import documents
from lockctl.errors import ConfigError
from lockctl.stores.redis import entry
from lockctl.stores.redis.lock import milliseconds
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant
    from lockctl.stores.redlock.nodes import Node


def join(wanted: dict[str, bytes], grant: Grant, nodes: list[Node], timeout: float) -> None:
    """Have *nodes* keep a lock that a majority has just confirmed, too; nobody waits for them.

    Each was slow or away, or it lost the lock. It takes it only if no other has it there, and it counts from the
    next round on. So a majority that another has cannot become ours: whoever has one has a node in common
    with the one that confirmed, for as long as that is good for, which is what our deadline counts from.
    *wanted* has the documents of the owners whose locks are not given back.
    """
    document, ttl = wanted.get(grant.claim.owner), milliseconds(grant.ttl)
    deadline = Deadline(timeout)

    def ask(node: Node) -> bool:
        if document is None or grant.claim.owner not in wanted or not deadline.left():
            return False  # given back meanwhile
        return node.join(grant.claim, grant.token, document, ttl, deadline)

    def serve(node: Node) -> None:
        try:
            node.alone(lambda: ask(node), deadline.left())
        except Exception:  # noqa: BLE001, S110 - the node is left out, as before
            pass

    for node in nodes:
        try:
            _thread.start_new_thread(serve, (node,))
        except RuntimeError:
            return  # no thread: the next renewal tries again


def check_nodes(name: str, values: list[bytes], identity: str) -> None:
    """Raise ``ConfigError`` if one of these values of a lock is of a client that names other nodes than we."""
    for value in values:
        found = entry.read(value)
        other = documents.text(found.document.get("nodes")) if found else None
        if other is not None and other != identity:
            raise ConfigError(
                f"redlock: the lock {name} is held by a client whose URL names another set of nodes, or names them"
                " otherwise: all clients of a lock must name the same ones"
            )
