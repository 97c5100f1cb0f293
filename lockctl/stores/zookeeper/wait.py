"""Waiting in the queue of a lock. A release wakes those who get the lock by it, and hardly anybody else.

Who gets it replaces its node (see :mod:`lockctl.stores.zookeeper.claim`), which wakes who watches that one.

- Who wants the lock alone watches the contender before it.
- A reader watches the last contender before it that is no reader: all readers behind a writer are woken by its end.
- Who wants one of N slots watches as a reader does while contenders of another kind are before it. Then, the first
  one behind the N who are inside watches the whole queue, as any of them may leave; each of the others watches the
  one before it, whose node changes when it gets in. So a slot that is given back wakes two.

Whoever is to have the lock next looks for a hold (see :mod:`lockctl.stores.zookeeper.hold`) and sleeps until its end.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE
from lockctl.stores.zookeeper.queue import Vanished
from lockctl.stores.zookeeper.session import SessionLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.zookeeper.claim import Attempt
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


def _until_turn(attempt: Attempt, session: Session, deadline: Deadline, notifier: Notifier) -> None:
    """Return when it is our turn; raises as ``Session.ask``, and ``Vanished``."""
    if not attempt.find(attempt.line(session, deadline)):
        attempt.create(session, deadline, granted=False)
    while True:
        line = attempt.line(session, deadline)
        if not attempt.find(line):
            raise Vanished
        ahead = attempt.ahead(line)
        if attempt.is_open(ahead):
            if _hold_is_over(attempt, session, deadline, notifier):
                return
        elif not _watch(attempt, ahead, session, deadline, notifier):
            continue
        else:
            notifier.wait(deadline, str(attempt.place))
        _outlast(session, deadline, notifier, str(attempt.place))


def _watch(attempt: Attempt, ahead: list[str], session: Session, deadline: Deadline, notifier: Notifier) -> bool:
    """Be notified when something changes for us; false: it has changed already."""
    last: str | None = ahead[-1]
    if attempt.claim.mode != EXCLUSIVE:
        from lockctl.stores.zookeeper import share

        last = share.last_of_others(ahead, attempt.claim)
    if last is not None:
        # nobody has children here: such a watch shows the end of the node, and is silent at each renewal of a holder
        path = f"{attempt.parent}/{last}"
        (found,) = session.ask(deadline, lambda client: client.get_children_async(path, watch=notifier.notify))
        return not isinstance(found, Exception)
    return _watch_slots(attempt, ahead, session, deadline, notifier)


def _watch_slots(attempt: Attempt, ahead: list[str], session: Session, deadline: Deadline, notifier: Notifier) -> bool:
    """As :func:`_watch`, when only others who want a slot are before us."""
    from lockctl.stores.zookeeper import queue

    before = f"{attempt.parent}/{ahead[-1]}"
    calls: list[Call] = [lambda client: client.get_children_async(attempt.parent, watch=notifier.notify)]
    if len(ahead) > attempt.claim.slots:
        calls = [
            lambda client: client.get_async(before, watch=notifier.notify),
            lambda client: client.get_children_async(attempt.parent),
        ]
    answers = session.ask(deadline, *calls)
    if any(isinstance(answer, Exception) for answer in answers):
        return False
    # somebody may have left before the watch was set, and then no notification would come
    line = queue.in_order(answers[-1])
    return attempt.find(line) and attempt.ahead(line) == ahead


def _hold_is_over(attempt: Attempt, session: Session, deadline: Deadline, notifier: Notifier) -> bool:
    """Whether no hold keeps us out; else false, when it may have ended, or at a notification."""
    (record,) = session.ask(deadline, lambda client: client.get_async(attempt.record, watch=notifier.notify))
    left = attempt.kept_out(session, deadline, record)
    if not left:
        return True
    try:
        notifier.wait(deadline.sooner(left + TICK), str(attempt.place))
    except BackendUnavailable:
        if deadline.left() <= 0:
            raise
    return False


def _outlast(session: Session, deadline: Deadline, notifier: Notifier, where: str) -> None:
    """Wait until there is a connection again, for as long as the session may still be there."""
    if session.connected or session.expired:
        return
    patience = deadline.sooner(session.timeout)
    while not session.connected and not session.expired:
        notifier.wait(patience, where)
        if session.is_outlived(patience):
            raise SessionLost
