"""Locks that nobody is granted for a while after their holder has gone: a record beside the lock.

The record is the data of ``ROOT/.kept/NAME``: the document of the last holder, with ``hold`` seconds counted from
the moment at which the leader wrote it, and the counter of :mod:`lockctl.stores.zookeeper.tokens`. It is written in
the same transaction that removes the holder's node, so whoever sees that node gone sees the record. It ends by the
leader's clock alone: whoever wants the lock compares it with the time of a write of its own. Who is granted the lock
then replaces it. Who does not know yet what time it is there keeps it, with its end as ``until``.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.stores.zookeeper import tokens
from lockctl.stores.zookeeper.errors import SessionLost, check_rights, refusal, usable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Grant, Holder
    from lockctl.stores.zookeeper.protocol import Requests
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline


def begin(session: Session, grant: Grant, node: str, hold: float, seen: tokens.Record, deadline: Deadline) -> None:
    """Remove the holder's *node* and keep everybody out for *hold* seconds more, both or neither.

    *seen* is the record as it should be: another one is read. Does nothing if the node has gone: then the lock is not
    ours, or this was done before and its answer lost.
    Raises as ``Session.ask``, but not ``SessionLost``.
    """
    from kazoo.exceptions import NoNodeError

    record = session.place.kept(grant.claim.name)
    extra: dict[str, int | float | str | None] = {
        "token": grant.token,
        "acquired_at": grant.at,
        "ended_at": wall(),
        "hold": hold,
    }

    def commit(client: Requests) -> Any:
        data = documents.describe(grant.claim, {**extra, "last": max(seen.last, grant.token)})
        return client.transaction(client.delete(node), seen.write(client, record, data))

    try:
        while True:
            answers, found = session.ask(deadline, commit, lambda client: client.get(record))
            usable(session.place, answers, record)
            # of a transaction that was refused, only one answer says why
            check_rights(session.place, answers)
            if not any(isinstance(answer, Exception) for answer in answers) or isinstance(answers[0], NoNodeError):
                return
            current = tokens.read(found)
            if not tokens.is_other(answers[-1]) or current is None:
                raise refusal(session.place, answers[-1], record)
            if isinstance(answers[-1], NoNodeError) and seen.version == tokens.MISSING:
                session.make(record.rpartition("/")[0], deadline)
            seen = current
    except SessionLost:
        return


def holder(data: bytes, stat: Any, now: float) -> Holder | None:
    """Whom a record shows as the holder, if *now*, in seconds, is before the end of its hold."""
    left = tokens.Record(data, stat).until / 1000 - now
    document = documents.read(data)
    if left <= 0 or document is None:
        return None
    ended_at = documents.seconds(document.get("ended_at"))
    document["ended_at"] = stat.mtime / 1000 if ended_at is None else ended_at
    return documents.holder(document, token=documents.whole(document.get("token")), expires_in=left)


def end(session: Session, path: str, record: tuple[bytes, Any], deadline: Deadline) -> bool:
    """End the hold that was seen in the *record* at *path*; false: it has changed since."""
    seen, place = tokens.Record(*record), session.place
    answer, found = session.ask(deadline, lambda client: client.get(place.records), lambda client: client.get(path))
    floor = tokens.known(place, answer, place.records)
    if isinstance(found, Exception) or found[1].mzxid != record[1].mzxid:
        return False

    def commit(client: Requests) -> Any:
        put = client.put(path, tokens.plain(seen.last), seen.version)
        return client.transaction(put, client.check(place.records, floor.written_version))

    (answers,) = session.ask(deadline, commit)
    usable(place, answers, path)
    check_rights(place, answers)
    return not any(map(tokens.is_other, answers))
