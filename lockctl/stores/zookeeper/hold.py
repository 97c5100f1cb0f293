"""Locks that nobody is granted for a while after their holder has gone: a record beside the lock.

The record is the data of ``ROOT/.kept/NAME``: the document of the last holder, with ``hold`` seconds counted from
the moment at which the leader wrote it. It is written in the same transaction that removes the holder's node, so
whoever sees that node gone sees the record. It ends by the leader's clock alone: whoever wants the lock compares it
with the time of a write of its own. Nobody removes it; the next hold replaces it.
"""

from __future__ import annotations

import math

from lockctl import documents
from lockctl.clock import wall
from lockctl.stores.zookeeper.session import SessionLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Grant, Holder
    from lockctl.stores.zookeeper.protocol import Client
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline


def begin(session: Session, grant: Grant, node: str, hold: float, deadline: Deadline) -> None:
    """Remove the holder's *node* and keep everybody out for *hold* seconds more, both or neither.

    Does nothing if the node has gone: then the lock is not ours, or this was done before and its answer lost.
    Raises as ``Session.ask``, but not ``SessionLost``.
    """
    from kazoo.exceptions import InvalidACLError, NoAuthError, NoNodeError

    record = session.place.kept(grant.claim.name)
    extra: dict[str, int | float | str | None] = {
        "token": grant.token,
        "acquired_at": grant.at,
        "ended_at": wall(),
        "hold": hold,
    }
    data = documents.describe(grant.claim, extra)

    def commit(client: Client) -> Any:
        transaction = client.transaction()
        transaction.delete(node)
        transaction.set_data(record, data)
        return transaction.commit_async()

    try:
        while True:
            (answers,) = session.ask(deadline, commit)
            if isinstance(answers, Exception):
                raise session.strange(answers, record)
            # of a transaction that was refused, only one answer says why
            if any(isinstance(answer, (NoAuthError, InvalidACLError)) for answer in answers):
                raise session.forbidden()
            if not any(isinstance(answer, Exception) for answer in answers) or isinstance(answers[0], NoNodeError):
                return
            if not isinstance(answers[-1], NoNodeError):
                raise session.strange(answers[-1], record)
            session.make(record, deadline)
    except SessionLost:
        return


def until(data: bytes, stat: Any) -> int:
    """When a hold ends, in milliseconds of the leader's clock; 0: there is none in this record."""
    document = documents.read(data)
    hold = documents.seconds(document.get("hold")) if document is not None else None
    return stat.mtime + 1 + math.ceil(hold * 1000) if hold else 0


def holder(data: bytes, stat: Any, now: float) -> Holder | None:
    """Whom a record shows as the holder, if *now*, in seconds, is before the end of its hold."""
    left = until(data, stat) / 1000 - now
    document = documents.read(data)
    if left <= 0 or document is None:
        return None
    ended_at = documents.seconds(document.get("ended_at"))
    document["ended_at"] = stat.mtime / 1000 if ended_at is None else ended_at
    return documents.holder(document, token=documents.whole(document.get("token")), expires_in=left)


def end(session: Session, path: str, stat: Any, deadline: Deadline) -> bool:
    """End the hold that was seen in the record at *path*; false: the record has changed since."""
    from kazoo.exceptions import BadVersionError, NoNodeError

    (answer,) = session.ask(deadline, lambda client: client.set_async(path, b"", stat.version))
    if isinstance(answer, (BadVersionError, NoNodeError)):
        return False
    if isinstance(answer, Exception):
        raise session.strange(answer, path)
    return True
