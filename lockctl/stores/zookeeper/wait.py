"""Waiting in the queue of a lock. A release wakes those who get the lock by it, and hardly anybody else.

Who gets it replaces its node (see :mod:`lockctl.stores.zookeeper.claim`), which wakes who watches that one.

- Who wants the lock alone watches the contender before it.
- A reader watches the last contender before it that is no reader: all readers behind a writer are woken by its end.
- Who wants one of N slots watches as a reader does while contenders of another kind are before it. Then, the first
  one behind the N who are inside watches the whole queue, as any of them may leave; each of the others watches the
  one before it, whose node changes when it gets in. So a slot that is given back wakes two.

Who is next has the session for the lock ready. When the end of the node that it watches is told, it tries at once.

Whoever is to have the lock next looks for a hold (see :mod:`lockctl.stores.zookeeper.hold`) and sleeps until its end.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE
from lockctl.stores.zookeeper.address import MADE_BY_US
from lockctl.stores.zookeeper.grant import cannot_make
from lockctl.stores.zookeeper.queue import Vanished
from lockctl.stores.zookeeper.session import SessionLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.claim import Attempt
    from lockctl.stores.zookeeper.node import Node
    from lockctl.stores.zookeeper.session import Call, Notifier, Session
    from lockctl.wire.deadline import Deadline

TICK = 0.002  # seconds: more than what is lost when the end of a hold is rounded to milliseconds


def wait(attempt: Attempt, deadline: Deadline) -> None:
    """See ``Backend.wait``; returns early, or when the deadline has passed."""
    try:
        session = attempt.queue_up(deadline)
    except SessionLost:
        return
    session.keep_alive(wanted=True)
    notifier = session.notifier()
    try:
        _until_turn(attempt, session, deadline, notifier)
    except (SessionLost, Vanished):
        pass  # a new position in the queue is needed: the next attempt sees to it
    finally:
        session.remove(notifier)
        session.keep_alive(wanted=False)
        attempt.next.stand_by(wanted=False)


def _until_turn(attempt: Attempt, session: Session, deadline: Deadline, notifier: Notifier) -> None:
    """Return when it may be our turn, which the attempt finds out; raises as ``Session.ask``, and ``Vanished``."""
    where, ends, entered, attempt.turn = str(attempt.place), _Ends(notifier), False, None
    while True:
        line, record = attempt.node.look(session, deadline)
        if not attempt.node.find(line):
            if entered:
                raise Vanished
            _enter(attempt.node, session, deadline)
            entered = True
            continue
        entered = True
        ahead, free = attempt.node.ahead(line), attempt.node.free(session, record)
        if attempt.node.is_open(ahead):
            if free is not None:
                attempt.turn = free
                return
            attempt.next.stand_by(wanted=True)
            _outlast_hold(attempt, session, deadline, notifier)
        else:
            last = _last(attempt, ahead)
            if not _watch(attempt, ahead, last, session, deadline, ends):
                continue
            is_next = last is not None and attempt.node.is_open([name for name in ahead if name != last])
            if is_next:
                attempt.next.stand_by(wanted=True)
            notifier.wait(deadline, where)
            if is_next and ends.last == last and free is not None:
                attempt.turn = free
                return
        _outlast(session, deadline, notifier, where)


def _enter(node: Node, session: Session, deadline: Deadline) -> None:
    """Make the node of a waiter."""
    from kazoo.exceptions import KazooException, NoNodeError

    node.begin_anew()
    data = node.describe(None)
    path = f"{node.parent}/{node.stem}"
    while True:
        (made,) = session.ask(
            deadline,
            lambda client: client.create_async(path, data, ephemeral=True, sequence=True, include_data=True),
        )
        if not isinstance(made, NoNodeError):
            break
        session.make(node.parent, deadline, MADE_BY_US)
    if isinstance(made, KazooException):
        raise cannot_make(node, made)
    full, stat = made
    node.name = full.rpartition("/")[2]
    node.data, node.version, node.leader_time = data, stat.version, stat.ctime


class _Ends:
    """The node whose end was told last."""

    def __init__(self, notifier: Notifier) -> None:
        self.last: str | None = None
        self.notifier = notifier

    def tell(self, event: Any) -> None:
        """What kazoo calls, from a thread of its own; also when the connection is lost."""
        if event.type == "DELETED":
            self.last = event.path.rpartition("/")[2]
        self.notifier.notify()


def _last(attempt: Attempt, ahead: list[str]) -> str | None:
    """The last one before us whose end changes something; ``None``: it may be any of those who have a slot."""
    if attempt.claim.mode == EXCLUSIVE:
        return ahead[-1]
    from lockctl.stores.zookeeper import share

    return share.last_of_others(ahead, attempt.claim)


def _watch(
    attempt: Attempt, ahead: list[str], last: str | None, session: Session, deadline: Deadline, ends: _Ends
) -> bool:
    """Be notified when something changes for us; false: it has changed already."""
    if last is None:
        return _watch_slots(attempt, ahead, session, deadline, ends.notifier)
    ends.last = None
    # nobody has children here: such a watch shows the end of the node, and is silent at each renewal of a holder
    path = f"{attempt.node.parent}/{last}"
    (found,) = session.ask(deadline, lambda client: client.get_children_async(path, watch=ends.tell))
    return not isinstance(found, Exception)


def _watch_slots(attempt: Attempt, ahead: list[str], session: Session, deadline: Deadline, notifier: Notifier) -> bool:
    """As :func:`_watch`, when only others who want a slot are before us."""
    from lockctl.stores.zookeeper import queue

    before = f"{attempt.node.parent}/{ahead[-1]}"
    calls: list[Call] = [lambda client: client.get_children_async(attempt.node.parent, watch=notifier.notify)]
    if len(ahead) > attempt.claim.slots:
        calls = [
            lambda client: client.get_async(before, watch=notifier.notify),
            lambda client: client.get_children_async(attempt.node.parent),
        ]
    answers = session.ask(deadline, *calls)
    if any(isinstance(answer, Exception) for answer in answers):
        return False
    # somebody may have left before the watch was set, and then no notification would come
    line = queue.in_order(answers[-1])
    return attempt.node.find(line) and attempt.node.ahead(line) == ahead


def _outlast_hold(attempt: Attempt, session: Session, deadline: Deadline, notifier: Notifier) -> None:
    """Return when the hold that keeps us out may have ended, or at a notification."""
    (record,) = session.ask(deadline, lambda client: client.get_async(attempt.node.record, watch=notifier.notify))
    left = attempt.node.kept_out(session, deadline, record)
    if not left:
        return
    try:
        notifier.wait(deadline.sooner(left + TICK), str(attempt.place))
    except BackendUnavailable:
        if deadline.left() <= 0:
            raise


def _outlast(session: Session, deadline: Deadline, notifier: Notifier, where: str) -> None:
    """Wait until there is a connection again, for as long as the session may still be there."""
    if session.connected or session.expired:
        return
    patience = deadline.sooner(session.timeout)
    while not session.connected and not session.expired:
        notifier.wait(patience, where)
        if session.is_outlived(patience):
            raise SessionLost
