"""One claim: its sessions, its node in the queue of the lock, and what becomes of them.

A holder's session lasts twice its lease. Who waits has none to rely on, so its session lasts only one: if it is
killed, it holds up those behind it for no longer. When its turn comes, one transaction deletes its node and makes
another one with the same number, and so at the same position, in a new session. Every transaction that makes the node
of a holder also raises the counter beside the lock (see :mod:`lockctl.stores.zookeeper.tokens`) to the token that is
written into the node. So the token is newer than all before it, whoever queued up first.

That a turn has come is only a reason to try (:attr:`Attempt.turn`). The proof is what the new session reads after the
transaction: the queue as it is then, with our node open for the lock. The transaction also shows that both sessions are
alive, and that the record of the lock is as it was seen.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import Claim, Grant, Run
from lockctl.stores.zookeeper import grant as grants
from lockctl.stores.zookeeper import queue
from lockctl.stores.zookeeper.address import Place, token_domain
from lockctl.stores.zookeeper.errors import SessionLost
from lockctl.stores.zookeeper.node import NextSession, Node, stem
from lockctl.stores.zookeeper.queue import Overtaken, Vanished
from lockctl.stores.zookeeper.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.tokens import Record
    from lockctl.wire.deadline import Deadline

SAFE_PART = 0.5  # of the session timeout: see `session`


class Attempt:
    """One claim, from its first request until its session has ended."""

    def __init__(self, place: Place, claim: Claim) -> None:
        """Nothing is sent yet."""
        self.claim = claim
        self.place = place
        self.node = Node(place, claim)
        # when it may be our turn: the record as it was seen, which keeps nobody out; ``None``: nothing is known
        self.turn: Record | None = None
        self._session: Session | None = None
        self._queues = False  # whether the session is that of a waiter
        self._former: Session | None = None  # in which we have waited: to be ended when there is time
        self.next = NextSession(place, claim, claim.ttl / SAFE_PART)  # to hold the lock in
        self._granted_at = 0  # milliseconds since the epoch by the leader's clock

    def take(self, deadline: Deadline) -> Grant | None:
        """See ``Backend.try_acquire``.

        A session that the servers refuse for good is only known by its failures: it has half of the time.
        """
        is_new_try = True
        while True:
            session = self._open(deadline)
            in_doubt = is_new_try and session.last_zxid > 0 and not session.connected
            try:
                return self._take(session, deadline.sooner(deadline.left() / 2) if in_doubt else deadline)
            except (SessionLost, Vanished):
                deadline.check(str(self.place))
            except BackendUnavailable:
                if not in_doubt:
                    raise
            is_new_try = False

    def queue_up(self, deadline: Deadline) -> Session:
        """The session to wait in: with our node, if there is one already, or one that is soon over when we die.

        Raises ``SessionLost``.
        """
        session = self._open(deadline)
        grants.remove_left(self.node, session, deadline)
        if self._queues or self.node.find(self.node.look(session, deadline)[0]):
            return session
        lease = session.timeout * SAFE_PART
        self._forget()
        session.leave(deadline)
        self._session, self.node.stem, self._queues = Session(self.place, lease), stem(self.place, self.claim), True
        return self._session

    def renew(self, grant: Grant, deadline: Deadline) -> Grant:
        """See ``Backend.renew``."""
        if self._session is None or self.node.name is None or self.node.token != grant.token:
            raise LeaseLost("the lock was given back")
        session = self._session
        try:
            session.refresh(deadline)
            self.node.write(session, deadline, self.node.data)
        except SessionLost:
            raise LeaseLost("the server has ended the session: it had not heard of us for too long") from None
        except Vanished:
            raise LeaseLost("the node of the lock was deleted") from None
        self._leave_former(deadline)
        if self.node.asked is not None:
            raise LeaseRevoked(*self.node.asked)
        return Grant(grant.claim, grant.token, grant.domain, grant.key, session.timeout * SAFE_PART, grant.at)

    def end(self, deadline: Deadline) -> None:
        """Leave nothing at the server. Raises ``BackendUnavailable``, ``ConfigError``; may be repeated."""
        self.next.end(deadline)
        if self._session is not None:
            self._session.end(deadline)
            self._forget()
        self._leave_former(deadline)

    def end_with_run(self, run: Run, deadline: Deadline) -> bool:
        """As :meth:`end`; whether a run was added to the history.

        The next one has its turn when our node is gone: that is asked for first, and all else when it is done.
        """
        session, added = self.held_in, False
        if session is not None and session.connected:
            from lockctl.stores.zookeeper import records

            path, runs = self.node.path, session.place.runs(self.claim.name)
            try:
                _, names = session.ask(
                    deadline, lambda client: client.delete(path), lambda client: client.children(runs)
                )
                added = records.add_at_the_end(session, self.claim.name, names, run, deadline)
            except (SessionLost, BackendUnavailable, ConfigError):
                pass  # not known, or only a part of it is permitted: with the session the lock is certainly given back
        self.end(deadline)
        return added

    def hold(self, grant: Grant, seconds: float, deadline: Deadline) -> None:
        """Remove our node and keep everybody out for so long, but keep the session; raises as :meth:`end`."""
        if self._session is not None and self.node.name is not None:
            from lockctl.stores.zookeeper import hold

            hold.begin(self._session, grant, self.node.path, seconds, self.node.raised, deadline)

    def abandon(self) -> None:
        """Tell nobody: what there is ends with the session."""
        for session in (self.next, self._session, self._former):
            if session is not None:
                session.abandon()
        self._former = None
        self._forget()

    @property
    def held_in(self) -> Session | None:
        """The session in which the lock is held, as far as is known."""
        session = self._session
        return None if session is None or self.node.token is None or session.expired else session

    def _open(self, deadline: Deadline) -> Session:
        """The session; a new one if there is none, the server ended it, or a waiter's is refused for good."""
        session = self._session
        if session is not None and (session.expired or (self.node.token is None and session.is_outlived(deadline))):
            if not session.expired:
                self.node.left += [self.node.stem, *self.next.give_up_with_refused()]
            session.abandon()
            self._forget()
        if self._session is None:
            self._session, self.node.stem = self.next.take()
        return self._session

    def _inherit(self, deadline: Deadline) -> Session:
        """Go on in the session to hold the lock in; the one before it is ended when there is time."""
        self._leave_former(deadline)
        self._former, (session, self.node.stem) = self._session, self.next.take()
        self._session, self._queues = session, False
        return session

    def _begin_anew(self, deadline: Deadline) -> Session:
        """As :meth:`_inherit`, when what the session before has in the queue must not be in our way."""
        session = self._inherit(deadline)
        self._leave_former(deadline)
        session.refresh(deadline)
        return session

    def _leave_former(self, deadline: Deadline) -> None:
        former, self._former = self._former, None
        if former is not None:
            former.leave(deadline)

    def _forget(self) -> None:
        self._session = self.turn = None
        self._queues = False
        self.node.forget()

    def _take(self, session: Session, deadline: Deadline) -> Grant | None:
        turn, self.turn = self.turn, None
        if turn is not None and self.node.name is not None and self.node.token is None:
            held_in = self._hand_over(deadline, turn)
            if held_in is not None:
                return self._grant(held_in, deadline)
        session.refresh(deadline)
        grants.remove_left(self.node, session, deadline)
        names, self.node.root, floor, record = session.ask(
            deadline, self.node.ask_line, self.node.ask_root, self.node.ask_floor, self.node.ask_record
        )
        self.node.note_floor(session, floor)
        line = [] if isinstance(names, Exception) else queue.in_order(names)
        if not self.node.find(line) and self.next.has_node_in(line):
            # our position was handed over, and the answer was lost
            session = self._begin_anew(deadline)
            self.node.find(line)
        ahead = self.node.ahead(line)
        if not self.node.is_open(ahead):
            # what a follower shows may be old: nobody is refused for that
            line, record = self.node.look(session, deadline)
            self.node.find(line)
            ahead = self.node.ahead(line)
            if not self.node.is_open(ahead):
                self.node.check_slots(session, deadline, ahead)
                return None
        taken_in = self._grasp(session, deadline, record)
        return None if taken_in is None else self._grant(taken_in, deadline)

    def _grant(self, session: Session, deadline: Deadline) -> Grant:
        """The grant of the lock that is held in this session."""
        if self.node.root is None or isinstance(self.node.root, Exception):
            (self.node.root,) = session.ask(deadline, self.node.ask_root)
            if isinstance(self.node.root, Exception):
                raise Vanished
        if self.node.token is None:
            if self.node.issued is None:
                raise Vanished
            self.node.token, self._granted_at = self.node.issued, self.node.leader_time
        lease = session.timeout * SAFE_PART
        return Grant(
            self.claim, self.node.token, token_domain(*self.node.root), self.node.parent, lease, self._granted_at / 1000
        )

    def _grasp(self, session: Session, deadline: Deadline, record: Any) -> Session | None:
        """Take the lock that is open for us; the session that has it then, or ``None``: something keeps us out."""
        if self.node.name is None:
            if self._queues:  # somebody has deleted our node
                session = self._begin_anew(deadline)
            return session if grants.begin(self.node, session, deadline, self.node.seen(session, record)) else None
        if self.node.kept_out(session, deadline, record):
            return None
        if self.node.token is None:
            held_in = self._hand_over(deadline, self.node.seen(session, record))
            if held_in is None:
                raise Overtaken
            return held_in
        while not self.node.write(session, deadline, self.node.data):
            pass  # so that the lock is held at the time of a write of ours
        return session

    def _hand_over(self, deadline: Deadline, record: Record) -> Session | None:
        """Have the lock in the session to hold it in, see :func:`grants.replace`; ``None``: it may not be our turn."""
        return self._inherit(deadline) if grants.replace(self.node, *self.next.get(), deadline, record) else None
