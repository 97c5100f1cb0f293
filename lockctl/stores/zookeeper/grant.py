"""The transaction that grants a lock: it makes the node of the holder and raises the counter of the tokens.

Who has not waited makes a node at the end of the queue, and has the lock if nobody is before it then (:func:`begin`).
Who has waited replaces its node by one with the same number in the session to hold the lock in (:func:`replace`).
"""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.errors import BackendUnavailable
from lockctl.stores.zookeeper import queue, tokens
from lockctl.stores.zookeeper.address import MADE_BY_US
from lockctl.stores.zookeeper.errors import check_rights, refusal, usable
from lockctl.stores.zookeeper.queue import Overtaken, Vanished
from lockctl.stores.zookeeper.tokens import MISSING, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.node import Node
    from lockctl.stores.zookeeper.protocol import Requests
    from lockctl.stores.zookeeper.session import Call, Session
    from lockctl.wire.deadline import Deadline


def begin(node: Node, session: Session, deadline: Deadline, record: Record) -> bool:
    """Make the node of a holder; false if the lock is not ours with it: then it is removed again.

    Raises as ``Session.ask``, and ``Vanished``: the node was deleted, or what is known is to be read again.
    """
    node.begin_anew()
    while True:
        token = record.next_token(wall())
        data = node.describe(token)
        granting = _granting(node, record, token, node.stem, data)
        said, names, seen = session.ask(deadline, granting, node.ask_line, node.ask_record)
        answers = _of_nodes(record, said)
        line = [] if isinstance(names, Exception) else queue.in_order(names)
        if not any(isinstance(answer, Exception) for answer in answers):
            break
        check_rights(session.place, answers)
        seen = _seen_anew(node, session, deadline, said, seen)
        record = _after_refusal(node, session, deadline, record, (*answers, seen))
        if not node.is_open(line):
            raise Overtaken
    stat = answers[0] if record.version != MISSING else None if isinstance(seen, Exception) else seen[1]
    node.name = answers[1].rpartition("/")[2]
    node.data, node.version, node.issued, node.raised = data, 0, token, record.after(token)
    if stat is not None:
        node.note_time(stat.mtime, stat.mzxid)
    if stat is None or queue.mine(line, node.stem) != node.name:
        # deleted already; or not the first of ours: an earlier answer was lost, and a follower was behind
        node.remove(session, deadline)
        raise Vanished
    ahead = node.ahead(line)
    if node.is_open(ahead) and record.until <= node.leader_time:
        return True
    node.remove(session, deadline)
    node.name = None
    if not node.is_open(ahead):
        node.check_slots(session, deadline, ahead)
    return False


def replace(node: Node, session: Session, stem: str, deadline: Deadline, record: Record) -> bool:
    """Replace the node of a waiter by one of *session*, in which we have the lock then; its name begins with *stem*.

    False: the *record* has changed so that it may not be our turn, and nothing was changed here. Who was asked
    meanwhile to give the lock back learns of it. Raises as ``Session.ask``, and ``Vanished``: we have no node any
    more.
    """
    name = stem + (node.name or "")[len(node.stem) :]
    waiting, path = node.data, f"{node.parent}/{name}"

    def ask_node(client: Requests) -> Any:
        return client.get(path)

    while True:
        token = record.next_token(wall())
        node.data = node.describe(token)
        if node.asked is not None:
            node.data = queue.with_revocation(node.data, node.claim.owner, *node.asked)
        session.refresh(deadline)
        # the server has seen our transaction when it answers the next one: who is before us now, nobody can join
        calls = [_granting(node, record, token, name, node.data), node.ask_line]
        if record.version == MISSING:
            calls.append(ask_node)  # else the record shows the time
        said, names, *made = session.ask(deadline, *calls)
        answers = _of_nodes(record, said)
        if not (isinstance(answers, Exception) or any(isinstance(answer, Exception) for answer in answers)):
            _note_grant(node, token, answers[0], made)
            break
        found, names, seen = session.ask(deadline, ask_node, node.ask_line, node.ask_record)
        if _is_replaced(session, path, answers, found):
            node.issued, node.data = tokens.token_in(found[0]), found[0]  # by an earlier attempt
            node.note_time(found[1].ctime, found[1].czxid)
            break
        line = _in_order(names)
        if not tokens.is_other(answers[0]):
            _judge_refusal(node, session, deadline, answers, path)
            continue
        seen = _seen_anew(node, session, deadline, said, seen)
        record = _next_record(node, session, deadline, record, (answers[0], seen))
        if node.name not in line or record.until > node.leader_time or not node.is_open(node.ahead(line)):
            node.data, node.acquired_at = waiting, None
            return False
    node.raised, node.name, node.version = record.after(token), name, 0  # not that of a revocation: it is noticed
    _check_turn(node, session, deadline, _in_order(names))
    return True


def _granting(node: Node, record: Record, token: int, name: str, data: bytes) -> Call:
    """The transaction that makes the node *name* of a holder, for ``Session.ask``.

    It replaces the node of a waiter, whose number is in *name*; if we have none, the server adds a number.
    """

    def commit(client: Requests) -> Any:
        parts = [record.write(client, node.record, record.raised(token, node.leader_time))]
        if node.name is not None:
            parts.append(client.delete(node.path, node.version))
        parts.append(client.create(f"{node.parent}/{name}", data, ephemeral=True, sequence=node.name is None))
        if record.version == MISSING:
            # so that the first run finds where to be added
            parts.append(client.create(node.place.runs(node.claim.name)))
        unchanged = 0 if record.floor is None else record.floor.written_version
        parts.append(client.check(node.place.records, unchanged))
        return client.transaction(*parts)

    return commit


def _note_grant(node: Node, token: int, written: Any, made: list[Any]) -> None:
    """The token, and the time by the record that was *written*; by our node, as it was *made*, if there was none."""
    stat = made[0][1] if made and not isinstance(made[0], Exception) else written
    node.issued = token
    node.note_time(getattr(stat, "mtime", 0), getattr(stat, "mzxid", 0))


def _in_order(names: Any) -> list[str]:
    """The queue in an answer to ``Node.ask_line``."""
    return [] if isinstance(names, Exception) else queue.in_order(names)


def _seen_anew(node: Node, session: Session, deadline: Deadline, said: Any, seen: Any) -> Any:
    """The answer to ``Node.ask_record`` after a refusal: *seen*, or a later one if the floor has changed."""
    if isinstance(said, Exception) or not tokens.is_reason(said[-1]):
        return seen
    floor, seen = session.ask(deadline, node.ask_floor, node.ask_record)
    node.note_floor(session, floor)
    return seen


def _of_nodes(record: Record, answers: Any) -> Any:
    """The answers to a transaction of :func:`_granting` without those about the runs and the floor.

    That one of those has changed is said as if the record had.
    """
    if isinstance(answers, Exception):
        return answers
    count = 2 if record.version == MISSING else 1
    others, reasons = answers[:-count], [answer for answer in answers[-count:] if tokens.is_reason(answer)]
    return [*reasons, *others[1:]] if reasons else others


def _is_replaced(session: Session, path: str, answers: Any, found: Any) -> bool:
    """Whether the node at *path* is there: made now, or by an earlier attempt whose answer was lost."""
    from kazoo.exceptions import NoNodeError

    usable(session.place, answers, path)
    if isinstance(found, Exception) and not isinstance(found, NoNodeError):
        raise refusal(session.place, found, path)
    if isinstance(found, NoNodeError):
        check_rights(session.place, answers)
        return False
    return True


def _check_turn(node: Node, session: Session, deadline: Deadline, line: list[str]) -> None:
    """Remove our new node and raise ``Vanished`` if it gives us no lock.

    It was deleted already, or somebody is before us all the same, as after a change by hand.
    """
    if node.issued is None or node.name not in line or not node.is_open(node.ahead(line)):
        node.remove(session, deadline)
        node.name = None
        raise Vanished


def _judge_refusal(node: Node, session: Session, deadline: Deadline, answers: Any, path: str) -> None:
    """Return if the transaction of :func:`replace` can be repeated, as our node was changed; else raise."""
    from kazoo.exceptions import BadVersionError, NoNodeError

    kept, deleted, made = answers
    if isinstance(deleted, BadVersionError):
        node.write(session, deadline, node.data)
    elif not isinstance(made, Exception) or isinstance(deleted, NoNodeError):
        raise Vanished
    else:
        raise refusal(session.place, *((kept, node.record) if tokens.is_reason(kept) else (made, path)))


def _after_refusal(node: Node, session: Session, deadline: Deadline, before: Record, found: tuple[Any, ...]) -> Record:
    """The record to try with after the transaction of :func:`begin` was refused; raises for another reason.

    *found* are the answers to its two parts, and the record as the server had it then.
    """
    from kazoo.exceptions import NoNodeError

    kept, made, seen = found
    if tokens.is_reason(kept) and not tokens.is_other(kept):
        raise refusal(session.place, kept, node.record)
    if tokens.is_reason(made) and not isinstance(made, NoNodeError):
        raise cannot_make(node, made)
    after = _next_record(node, session, deadline, before, (kept, seen))
    if isinstance(made, NoNodeError) or (isinstance(kept, NoNodeError) and before.version == MISSING):
        session.make(node.parent, deadline, MADE_BY_US)
    return after


def _next_record(node: Node, session: Session, deadline: Deadline, before: Record, found: tuple[Any, Any]) -> Record:
    """The record to try with when the one of *before* was refused; *found*: how, and what the server had then."""
    from kazoo.exceptions import NoNodeError

    refused, seen = found
    if isinstance(refused, NoNodeError) and before.version == MISSING:
        session.make(node.place.records, deadline)
    return node.seen(session, seen)


def cannot_make(node: Node, refused: Exception) -> BackendUnavailable:
    """The error that says that the server refuses to make a node in the queue."""
    return BackendUnavailable(f"{node.place}: cannot make a node below {node.parent}: {type(refused).__name__}")


def remove_left(node: Node, session: Session, deadline: Deadline) -> None:
    """Delete nodes of ours whose sessions the servers refused: they are before us until the servers end those."""
    if node.left:
        for name in node.look(session, deadline)[0]:
            if name.startswith(tuple(node.left)):
                session.ask(deadline, lambda client: client.delete(f"{node.parent}/{name}"))  # noqa: B023 - called now
        node.left.clear()
