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
    from lockctl.stores.zookeeper.claim import Candidate
    from lockctl.stores.zookeeper.session import Bell, Call, Session
    from lockctl.wire.deadline import Deadline

TICK = 0.002  # seconds: more than what is lost when the end of a hold is rounded to milliseconds


def wait(candidate: Candidate, deadline: Deadline) -> None:
    """See ``Backend.wait``; returns early, or when the deadline has passed."""
    try:
        session = candidate.queue_up(deadline)
    except SessionLost:
        return
    session.keep_alive(wanted=True)
    bell = session.bell()
    try:
        _until_turn(candidate, session, deadline, bell)
    except (SessionLost, Vanished):
        pass  # a new place in the queue is needed: the next attempt sees to it
    finally:
        session.unhang(bell)
        session.keep_alive(wanted=False)


def _until_turn(candidate: Candidate, session: Session, deadline: Deadline, bell: Bell) -> None:
    """Return when it is our turn; raises as ``Session.ask``, and ``Vanished``."""
    if not candidate.find(candidate.line(session, deadline)):
        candidate.create(session, deadline, granted=False)
    while True:
        line = candidate.line(session, deadline)
        if not candidate.find(line):
            raise Vanished
        ahead = candidate.ahead(line)
        if candidate.is_open(ahead):
            if _hold_is_over(candidate, session, deadline, bell):
                return
        elif not _watch(candidate, ahead, session, deadline, bell):
            continue
        else:
            bell.wait(deadline, str(candidate.place))
        _outlast(session, deadline, bell, str(candidate.place))


def _watch(candidate: Candidate, ahead: list[str], session: Session, deadline: Deadline, bell: Bell) -> bool:
    """Have the bell rung when something changes for us; false: it has changed already."""
    last: str | None = ahead[-1]
    if candidate.claim.mode != EXCLUSIVE:
        from lockctl.stores.zookeeper import share

        last = share.last_of_others(ahead, candidate.claim)
    if last is not None:
        # nobody has children here: such a watch shows the end of the node, and is silent at each renewal of a holder
        path = f"{candidate.parent}/{last}"
        (found,) = session.ask(deadline, lambda client: client.get_children_async(path, watch=bell.ring))
        return not isinstance(found, Exception)
    return _watch_slots(candidate, ahead, session, deadline, bell)


def _watch_slots(candidate: Candidate, ahead: list[str], session: Session, deadline: Deadline, bell: Bell) -> bool:
    """As :func:`_watch`, when only others who want a slot are before us."""
    from lockctl.stores.zookeeper import queue

    before = f"{candidate.parent}/{ahead[-1]}"
    calls: list[Call] = [lambda client: client.get_children_async(candidate.parent, watch=bell.ring)]
    if len(ahead) > candidate.claim.slots:
        calls = [
            lambda client: client.get_async(before, watch=bell.ring),
            lambda client: client.get_children_async(candidate.parent),
        ]
    answers = session.ask(deadline, *calls)
    if any(isinstance(answer, Exception) for answer in answers):
        return False
    # somebody may have left before the watch was set, and then nothing would ever ring
    line = queue.in_order(answers[-1])
    return candidate.find(line) and candidate.ahead(line) == ahead


def _hold_is_over(candidate: Candidate, session: Session, deadline: Deadline, bell: Bell) -> bool:
    """Whether no hold keeps us out; else false, when it may have ended, or when the bell rang."""
    (record,) = session.ask(deadline, lambda client: client.get_async(candidate.record, watch=bell.ring))
    left = candidate.kept_out(session, deadline, record)
    if not left:
        return True
    try:
        bell.wait(deadline.sooner(left + TICK), str(candidate.place))
    except BackendUnavailable:
        if deadline.left() <= 0:
            raise
    return False


def _outlast(session: Session, deadline: Deadline, bell: Bell, where: str) -> None:
    """Wait until there is a connection again, for as long as the session may still be there."""
    if session.connected or session.expired:
        return
    patience = deadline.sooner(session.timeout)
    while not session.connected and not session.expired:
        bell.wait(patience, where)
        if session.is_outlived(patience):
            raise SessionLost
