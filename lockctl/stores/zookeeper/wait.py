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

import select

from lockctl import clock
from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE
from lockctl.stores.zookeeper.address import MADE_BY_US
from lockctl.stores.zookeeper.errors import SessionLost
from lockctl.stores.zookeeper.grant import cannot_make
from lockctl.stores.zookeeper.queue import Vanished
from lockctl.stores.zookeeper.session import LinkTurn
from lockctl.wire.deadline import NAP, READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.zookeeper.claim import Attempt
    from lockctl.stores.zookeeper.node import Node
    from lockctl.stores.zookeeper.session import Call, Session

LONGEST_STEP = 5.0  # seconds for one request of a wait, which may have no end itself
PAUSE = 0.1  # seconds between two attempts to connect to all servers
TICK = 0.002  # seconds: more than what is lost when the end of a hold is rounded to milliseconds


def wait(attempt: Attempt, has_lined_up: Callable[[], None], deadline: Deadline) -> None:
    """See ``Backend.wait``; returns early, or when the deadline has passed."""
    try:
        _until_turn(attempt, attempt.queue_up(deadline.sooner(LONGEST_STEP)), has_lined_up, deadline)
    except (SessionLost, Vanished):
        pass  # a new position in the queue is needed: the next attempt sees to it


def _until_turn(attempt: Attempt, session: Session, has_lined_up: Callable[[], None], deadline: Deadline) -> None:
    """Return when it may be our turn, which the attempt finds out; raises as ``Session.ask``, and ``Vanished``."""
    entered, attempt.turn = False, None
    while True:
        session.told.clear()
        line, record = attempt.node.look(session, deadline.sooner(LONGEST_STEP))
        if not attempt.node.find(line):
            if entered:
                raise Vanished
            _enter(attempt.node, session, deadline.sooner(LONGEST_STEP))
            entered = True
            continue
        entered = True
        has_lined_up()
        ahead, free = attempt.node.ahead(line), attempt.node.free(session, record)
        if attempt.node.is_open(ahead):
            if free is not None:
                attempt.turn = free
                return
            _outlast_hold(attempt, session, deadline)
        else:
            last = _last(attempt, ahead)
            if not _watch(attempt, ahead, last, session, deadline.sooner(LONGEST_STEP)):
                continue
            is_next = last is not None and attempt.node.is_open([name for name in ahead if name != last])
            _listen(session, attempt.next.get(session)[0] if is_next else None, deadline)
            if is_next and free is not None and (f"{attempt.node.parent}/{last}", True) in session.told:
                attempt.turn = free
                return
        _outlast(session, deadline)


def _enter(node: Node, session: Session, deadline: Deadline) -> None:
    """Make the node of a waiter."""
    from kazoo.exceptions import KazooException, NoNodeError

    node.begin_anew()
    data = node.describe(None)
    path = f"{node.parent}/{node.stem}"
    while True:
        (made,) = session.ask(
            deadline,
            lambda client: client.create(path, data, ephemeral=True, sequence=True, with_stat=True),
        )
        if not isinstance(made, NoNodeError):
            break
        session.make(node.parent, deadline, MADE_BY_US)
    if isinstance(made, KazooException):
        raise cannot_make(node, made)
    full, stat = made
    node.name = full.rpartition("/")[2]
    node.data, node.version = data, stat.version
    node.note_time(stat.ctime, stat.czxid)


def _last(attempt: Attempt, ahead: list[str]) -> str | None:
    """The last one before us whose end changes something; ``None``: it may be any of those who have a slot."""
    if attempt.claim.mode == EXCLUSIVE:
        return ahead[-1]
    from lockctl.stores.zookeeper import share

    return share.last_of_others(ahead, attempt.claim)


def _watch(attempt: Attempt, ahead: list[str], last: str | None, session: Session, deadline: Deadline) -> bool:
    """Be told when something changes for us; false: it has changed already."""
    if last is None:
        return _watch_slots(attempt, ahead, session, deadline)
    # nobody has children here: such a watch shows the end of the node, and is silent at each renewal of a holder
    path = f"{attempt.node.parent}/{last}"
    (found,) = session.ask(deadline, lambda client: client.children(path, watch=True))
    return not isinstance(found, Exception)


def _watch_slots(attempt: Attempt, ahead: list[str], session: Session, deadline: Deadline) -> bool:
    """As :func:`_watch`, when only others who want a slot are before us."""
    from lockctl.stores.zookeeper import queue

    before = f"{attempt.node.parent}/{ahead[-1]}"
    calls: list[Call] = [lambda client: client.children(attempt.node.parent, watch=True)]
    if len(ahead) > attempt.claim.slots:
        calls = [
            lambda client: client.get(before, watch=True),
            lambda client: client.children(attempt.node.parent),
        ]
    answers = session.ask(deadline, *calls)
    if any(isinstance(answer, Exception) for answer in answers):
        return False
    # somebody may have left before the watch was set, and then no notification would come
    line = queue.in_order(answers[-1])
    return attempt.node.find(line) and attempt.node.ahead(line) == ahead


def _outlast_hold(attempt: Attempt, session: Session, deadline: Deadline) -> None:
    """Return when the hold that keeps us out may have ended, or when something is told."""
    step = deadline.sooner(LONGEST_STEP)
    (record,) = session.ask(step, lambda client: client.get(attempt.node.record, watch=True))
    left = attempt.node.kept_out(session, step, record)
    if not left:
        return
    try:
        _listen(session, attempt.next.get(session)[0], deadline.sooner(left + TICK))
    except BackendUnavailable:
        if deadline.left() <= 0:
            raise


def _outlast(session: Session, deadline: Deadline) -> None:
    """Wait until there is a connection again, for as long as the session may still be there."""
    patience = deadline.sooner(session.timeout)
    while not session.connected:
        try:
            session.connect(patience)
        except BackendUnavailable:
            if patience.left() <= 0:
                raise
            if session.is_outlived(patience):
                raise SessionLost from None
            clock.pause(PAUSE, patience.interrupt)


def _listen(session: Session, beside: Session | None, deadline: Deadline) -> None:
    """Return when a watch of *session* has told something, or its connection was lost; raises as ``Deadline.wait``.

    Meanwhile both sessions live on.
    """
    both = [session] if beside is None else [session, beside]
    while session.connected and not session.told:
        poll, wake = select.poll(), NAP
        if deadline.interrupt is not None:
            poll.register(deadline.interrupt, READABLE)
        for each in both:
            with LinkTurn(each, deadline):
                wake = min(wake, each.link.keep_alive(deadline))
                if each.link.descriptor is not None:
                    poll.register(each.link.descriptor, READABLE)
        ready = [number for number, _ in poll.poll(min(wake, deadline.left()) * 1000 + 1)]
        for each in both:
            if each.link.descriptor in ready:
                with LinkTurn(each, deadline):
                    each.link.read()
        if not session.told:
            deadline.check(str(session.place))
