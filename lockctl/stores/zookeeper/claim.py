"""One claim: its session, its node in the queue of the lock, and what becomes of it.

The node's data is the document of the holder or waiter on the first line. Who wants the lock back adds a
second line (:func:`with_revocation`): it is gone with the node, and can hit nobody else.

A holder's session lasts twice its lease. Who waits has none to rely on, so its session lasts only one: if it is
killed, it holds up those behind it for no longer. When its turn comes, one transaction deletes its node and makes
another one with the same number, and so at the same position, in a new session. The token is the number of that
transaction, and so newer than all tokens before it, whoever queued up first.

That a turn has come is only a reason to try (:attr:`Attempt.turn`). The proof is what the new session reads after the
transaction: the queue as it is then, with our node open for the lock. The transaction also shows that both sessions are
alive, and that the record of holds is as it was seen.
"""

from __future__ import annotations

import os

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import EXCLUSIVE, Grant
from lockctl.names import printable
from lockctl.stores.zookeeper import queue
from lockctl.stores.zookeeper.address import MADE_BY_US
from lockctl.stores.zookeeper.queue import Vanished
from lockctl.stores.zookeeper.session import Session, SessionLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim, Run
    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.session import Call
    from lockctl.wire.deadline import Deadline

SAFE_PART = 0.5  # of the session timeout: see `session`
MISSING = -1  # the version of a record that there is not
BY_CURATOR = b"__REVOKE__"  # what Curator's Revoker writes into the node of a holder


class Attempt:
    """One claim, from its first request until its session has ended."""

    def __init__(self, place: Place, claim: Claim) -> None:
        """Nothing is sent yet."""
        self.claim = claim
        self.place = place
        self.parent = place.key(claim.name)
        self.record = place.kept(claim.name)
        self.node: str | None = None  # the name of our node, once its creation was answered
        self.token: int | None = None  # once granted
        # when it may be our turn: the version of the record, which keeps nobody out; ``None``: nothing is known
        self.turn: int | None = None
        self._session: Session | None = None
        self._stem = ""
        self._queues = False  # whether the session is that of a waiter
        self._next: tuple[Session, str] | None = None  # the session to hold the lock in, and the stem of its node
        self._version = -1
        self._data = b""
        self._acquired_at: float | None = None
        self._asked: tuple[str, str] | None = None
        self._created = 0  # the czxid of our node
        self._leader_time = 0  # milliseconds since the epoch by the leader's clock, at our last write
        self._granted_at = 0
        self._root: Any = None  # the node above all locks, as an answer showed it

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
        """The session of a waiter, with its node in the queue. Raises ``SessionLost``."""
        return self._queue_up(self._open(deadline), deadline)

    def renew(self, grant: Grant, deadline: Deadline) -> Grant:
        """See ``Backend.renew``."""
        if self._session is None or self.node is None or self.token != grant.token:
            raise LeaseLost("the lock was given back")
        session = self._session
        try:
            session.refresh(deadline)
            self._write(session, deadline, self._data)
        except SessionLost:
            raise LeaseLost("the server has ended the session: it had not heard of us for too long") from None
        except Vanished:
            raise LeaseLost("the node of the lock was deleted") from None
        if self._asked is not None:
            raise LeaseRevoked(*self._asked)
        return Grant(grant.claim, grant.token, grant.domain, grant.key, session.timeout * SAFE_PART, grant.at)

    def end(self, deadline: Deadline) -> None:
        """Leave nothing at the server. Raises ``BackendUnavailable``, ``ConfigError``; may be repeated."""
        if self._next is not None:
            self._next[0].end(deadline)
            self._next = None
        if self._session is not None:
            self._session.end(deadline)
            self._forget()

    def end_with_run(self, run: Run, deadline: Deadline) -> bool:
        """As :meth:`end`; whether a run was added to the history, in the request that removes our node.

        The next one has its turn when our node is gone, and does not wait for the end of our session.
        """
        session = self.held_in
        if session is not None and session.connected:
            from lockctl.stores.zookeeper.records import add_after_release

            try:
                added = add_after_release(session, f"{self.parent}/{self.node}", self.claim.name, run, deadline)
            except (SessionLost, BackendUnavailable, ConfigError):
                pass  # not known, or only a part of it is permitted: with the session the lock is certainly given back
            else:
                session.leave(deadline)
                self._forget()
                return added
        self.end(deadline)
        return False

    def hold(self, grant: Grant, seconds: float, deadline: Deadline) -> None:
        """Remove our node and keep everybody out for so long, but keep the session; raises as :meth:`end`."""
        if self._session is not None and self.node is not None:
            from lockctl.stores.zookeeper import hold

            hold.begin(self._session, grant, f"{self.parent}/{self.node}", seconds, deadline)

    def abandon(self) -> None:
        """Tell nobody: what there is ends with the session."""
        if self._next is not None:
            self._next[0].abandon()
            self._next = None
        if self._session is not None:
            self._session.abandon()
            self._forget()

    @property
    def held_in(self) -> Session | None:
        """The session in which the lock is held, as far as is known."""
        session = self._session
        return None if session is None or self.token is None or session.expired else session

    def _open(self, deadline: Deadline) -> Session:
        """The session; a new one if there is none, the server ended it, or a waiter's is refused for good."""
        session = self._session
        if session is not None and (session.expired or (self.token is None and session.is_outlived(deadline))):
            if self._next is not None and not session.expired and not self._next[0].connected:
                self._next[0].abandon()  # it has seen the same data
                self._next = None
            session.abandon()
            self._forget()
        if self._session is None:
            self._session, self._stem = self._next_session()
            self._next = None
        return self._session

    def _next_session(self) -> tuple[Session, str]:
        """A session for a holder, with the stem of its node; that of an earlier attempt if it is still alive."""
        if self._next is None or self._next[0].expired:
            if self._next is not None:
                self._next[0].abandon()
            self._next = Session(self.place, self.claim.ttl / SAFE_PART), self._new_stem()
        return self._next

    def _new_stem(self) -> str:
        # new for each session, so that a node by this name is ours and no other's
        return queue.prefix(os.urandom(16).hex(), self.place.layout, self.claim.mode, self.claim.slots)

    def _queue_up(self, session: Session, deadline: Deadline) -> Session:
        """The session to wait in: with our node, if there is one already, or one that is soon over when we die."""
        if self._queues or self.find(self.line(session, deadline)):
            return session
        lease = session.timeout * SAFE_PART
        self._forget()
        session.leave(deadline)
        self._session, self._stem, self._queues = Session(self.place, lease), self._new_stem(), True
        return self._session

    def stand_by(self, *, wanted: bool) -> None:
        """Whether the session to hold the lock in is kept ready: connected, and alive while nothing is asked."""
        try:
            if wanted:
                self._next_session()
        except BackendUnavailable:
            pass  # no threads for it now: it is made when it is needed
        if self._next is not None:
            self._next[0].keep_alive(wanted)

    def _inherit(self) -> tuple[Session, Session | None]:
        """Go on in the session to hold the lock in; that one, and the one before it, which is to be ended."""
        before, (session, self._stem) = self._session, self._next_session()
        session.keep_alive(wanted=False)  # from now on it lives by writes
        self._session, self._next, self._queues = session, None, False
        return session, before

    def _begin_anew(self, deadline: Deadline) -> Session:
        """As :meth:`_inherit`, when what the session before has in the queue must not be in our way."""
        session, before = self._inherit()
        if before is not None:
            before.leave(deadline)
        session.refresh(deadline)
        return session

    def _forget(self) -> None:
        self._session = self.node = self.token = self.turn = None
        self._queues = False
        self._version = -1
        self._leader_time = 0  # the next leader may have another clock

    def _take(self, session: Session, deadline: Deadline) -> Grant | None:
        turn, self.turn = self.turn, None
        if turn is not None and self.node is not None and self.token is None:
            held_in = self._hand_over(deadline, turn)
            if held_in is not None:
                return self._grant(held_in, deadline)
        session.refresh(deadline)
        from kazoo.exceptions import NoNodeError

        calls: list[Call] = [
            lambda client: client.get_children_async(self.parent),
            lambda client: client.exists_async(self.place.root),
        ]
        if self.node is not None:
            calls.append(self.ask_record)  # it has waited: now may be its turn
        names, self._root, *record = session.ask(deadline, *calls)
        line = [] if isinstance(names, NoNodeError) else queue.in_order(names)
        if not self.find(line) and self._next is not None and queue.mine(line, self._next[1]):
            # our position was handed over, and the answer was lost
            session = self._begin_anew(deadline)
            self.find(line)
        ahead = self.ahead(line)
        if not self.is_open(ahead):
            # what a follower shows may be old: nobody is refused for that
            line, record = self.line(session, deadline), []
            self.find(line)
            ahead = self.ahead(line)
            if not self.is_open(ahead):
                self._check_slots(session, deadline, ahead)
                return None
        held_in = self._grasp(session, deadline, record)
        return None if held_in is None else self._grant(held_in, deadline)

    def _grant(self, session: Session, deadline: Deadline) -> Grant:
        """The grant of the lock that is held in this session."""
        if self._root is None or isinstance(self._root, Exception):
            (self._root,) = session.ask(deadline, lambda client: client.exists_async(self.place.root))
            if self._root is None:
                raise Vanished
        if self.token is None:
            self.token, self._granted_at = self._created, self._leader_time
        # the node above all locks is as old as the ensemble's data: made anew after a loss, it is another
        domain = f"zookeeper:{self._root.czxid:x}-{self._root.ctime:x}"
        lease = session.timeout * SAFE_PART
        return Grant(self.claim, self.token, domain, self.parent, lease, self._granted_at / 1000)

    def _grasp(self, session: Session, deadline: Deadline, record: list[Any]) -> Session | None:
        """Take the lock that is open for us; the session that has it then, or ``None``: something keeps us out."""
        if self.node is None:
            if self._queues:  # somebody has deleted our node
                session = self._begin_anew(deadline)
            return session if self.create(session, deadline, granted=True) else None
        if self.kept_out(session, deadline, *(record or session.ask(deadline, self.ask_record))):
            return None
        if self.token is None:
            return self._hand_over(deadline)
        while not self._write(session, deadline, self._data):
            pass  # so that the lock is held at the time of a write of ours
        return session

    def _hand_over(self, deadline: Deadline, turn: int = MISSING) -> Session | None:
        """Replace our node by one of the session to hold the lock in; that session, which has the lock then.

        ``None``: the record is not in the version *turn* any more, and nothing was changed. Who was asked meanwhile to
        give the lock back learns of it. Raises as ``Session.ask``, and ``Vanished``: we have no node any more.
        """
        from kazoo.exceptions import BadVersionError, NoNodeError

        session, stem = self._next_session()
        name = stem + (self.node or "")[len(self._stem) :]
        waiting, self._data = self._data, self._describe(granted=True)
        if self._asked is not None:
            self._data = with_revocation(self._data, self.claim.owner, *self._asked)
        while True:
            session.refresh(deadline)
            answers, stat, names, self._root = session.ask(
                deadline,
                lambda client: self._replacement(client, name, turn),
                lambda client: client.exists_async(f"{self.parent}/{name}"),
                # the server has seen our transaction when it answers: who is before us now, nobody can join
                lambda client: client.get_children_async(self.parent),
                lambda client: client.exists_async(self.place.root),
            )
            if self._is_replaced(session, name, answers, stat):
                break
            if turn != MISSING and isinstance(answers[0], (BadVersionError, NoNodeError)):
                self._data, self._acquired_at = waiting, None
                return None
            if not isinstance(answers[-2], BadVersionError):
                vanished = not isinstance(answers[-1], Exception) or isinstance(answers[-2], NoNodeError)
                raise Vanished if vanished else session.strange(answers[-1], name)
            self._write(session, deadline, self._data)
        self.node, self._version = name, 0  # not that of a revocation: it is to be noticed
        self._created, self._leader_time = stat.czxid, stat.ctime
        line = [] if isinstance(names, Exception) else queue.in_order(names)
        if name not in line or not self.is_open(self.ahead(line)):
            # deleted already; or somebody is before us all the same, as after a change by hand
            session.ask(deadline, lambda client: client.delete_async(f"{self.parent}/{name}"))
            self.node = None
            raise Vanished
        _, before = self._inherit()
        if before is not None:
            before.dismiss()
        return session

    def _replacement(self, client: Any, name: str, turn: int) -> Any:
        """The transaction that makes the node *name* in the place of ours, for ``Session.ask``."""
        transaction = client.transaction()
        if turn != MISSING:
            transaction.check(self.record, turn)
        transaction.delete(f"{self.parent}/{self.node}", self._version)
        transaction.create(f"{self.parent}/{name}", self._data, ephemeral=True)
        return transaction.commit_async()

    def _is_replaced(self, session: Session, name: str, answers: Any, stat: Any) -> bool:
        """Whether the node *name* is there: made now, or by an earlier attempt whose answer was lost."""
        from kazoo.exceptions import InvalidACLError, NoAuthError

        for answer in (answers, stat):
            if isinstance(answer, Exception):
                raise session.strange(answer, f"{self.parent}/{name}")
        if stat is None and any(isinstance(answer, (NoAuthError, InvalidACLError)) for answer in answers):
            raise session.forbidden()
        return stat is not None

    def is_open(self, ahead: list[str]) -> bool:
        """Whether the lock is ours with these before us."""
        if not ahead or self.claim.mode == EXCLUSIVE:
            return not ahead
        from lockctl.stores.zookeeper import share

        return share.admits(ahead, self.claim)

    def ahead(self, line: list[str]) -> list[str]:
        """Those before us in a queue; all, if we have no position in it."""
        return line if self.node is None else line[: line.index(self.node)]

    def ask_record(self, client: Any) -> Any:
        """Ask for what is kept of the lock, for ``Session.ask``."""
        return client.get_async(self.record)

    def kept_out(self, session: Session, deadline: Deadline, record: Any) -> float:
        """How many seconds the hold in *record*, an answer to :meth:`ask_record`, still lasts by the leader's clock."""
        until = self._hold_until(session, record)
        while until > self._leader_time:
            # our last write may be long ago: only another one tells what time it is there
            if self._write(session, deadline, self._data or self._describe(granted=False)):
                break
        return max(0, until - self._leader_time) / 1000

    def free_version(self, session: Session, record: Any) -> int | None:
        """The version of *record*, as :meth:`kept_out` has it; ``None``: a hold may keep us out."""
        if self._hold_until(session, record) > self._leader_time:
            return None
        return MISSING if isinstance(record, Exception) else record[1].version

    def _hold_until(self, session: Session, record: Any) -> int:
        """When the hold in *record* ends, in milliseconds of the leader's clock; 0: there is none."""
        if isinstance(record, Exception):
            from kazoo.exceptions import NoNodeError

            if isinstance(record, NoNodeError):
                return 0
            raise session.strange(record, self.record)
        data, stat = record
        if not data:
            return 0
        from lockctl.stores.zookeeper import hold

        return hold.until(data, stat)

    def _check_slots(self, session: Session, deadline: Deadline, ahead: list[str]) -> None:
        """Raise ``ConfigError`` if the holder has another number of slots than we."""
        from lockctl.stores.zookeeper import share

        data = None
        if self.claim.slots > 1:
            path = f"{self.parent}/{ahead[0]}"
            (found,) = session.ask(deadline, lambda client: client.get_async(path))
            data = None if isinstance(found, Exception) else found[0]
        wrong = share.disagreement(self.parent, ahead[0], data, self.claim)
        if wrong:
            raise ConfigError(wrong)

    def line(self, session: Session, deadline: Deadline) -> list[str]:
        """The queue as the leader knows it."""
        return self.look(session, deadline)[0]

    def look(self, session: Session, deadline: Deadline) -> tuple[list[str], Any]:
        """The queue as the leader knows it, and the answer to :meth:`ask_record`, which is not older."""
        from kazoo.exceptions import NoNodeError

        _, names, record = session.ask(
            deadline,
            lambda client: client.sync_async(self.parent),
            lambda client: client.get_children_async(self.parent),
            self.ask_record,
        )
        return [] if isinstance(names, NoNodeError) else queue.in_order(names), record

    def find(self, line: list[str]) -> bool:
        """Whether we have a position in a queue."""
        self.node = queue.mine(line, self._stem)
        return self.node is not None

    def create(self, session: Session, deadline: Deadline, *, granted: bool) -> bool:
        """Make our node. With *granted*: false if the lock is not ours with it; then it is removed again."""
        from kazoo.exceptions import KazooException, NoNodeError

        self._acquired_at = self._asked = self.token = None  # of an earlier node, if there was one
        data = self._describe(granted=granted)
        path = f"{self.parent}/{self._stem}"
        calls: list[Call] = [
            lambda client: client.create_async(path, data, ephemeral=True, sequence=True, include_data=True),
            lambda client: client.get_children_async(self.parent),
        ]
        if granted:
            calls.append(self.ask_record)
        while True:
            made, names, *record = session.ask(deadline, *calls)
            if not isinstance(made, NoNodeError):
                break
            session.make(self.parent, deadline, MADE_BY_US)
        if isinstance(made, KazooException):
            message = f"{self.place}: cannot make a node below {self.parent}: {type(made).__name__}"
            raise BackendUnavailable(message)
        full, stat = made
        self.node = full.rpartition("/")[2]
        self._data, self._version = data, stat.version
        self._created, self._leader_time = stat.czxid, stat.ctime
        if not granted:
            return True
        line = [] if isinstance(names, KazooException) else queue.in_order(names)
        if queue.mine(line, self._stem) != self.node:
            # deleted already; or not the first of ours: an earlier answer was lost, and a follower was behind
            session.ask(deadline, lambda client: client.delete_async(full))
            raise Vanished
        ahead = self.ahead(line)
        if self.is_open(ahead) and self._hold_until(session, record[0]) <= self._leader_time:
            return True
        session.ask(deadline, lambda client: client.delete_async(full))
        self.node = None
        if not self.is_open(ahead):
            self._check_slots(session, deadline, ahead)
        return False

    def _write(self, session: Session, deadline: Deadline, data: bytes) -> bool:
        """Renew the session by a write to our node; notices a revocation. False: it was refused, as the node changed.

        Raises ``Vanished`` when the node is not there, and what ``Session.ask`` raises.
        """
        from kazoo.exceptions import BadVersionError, NoNodeError

        path = f"{self.parent}/{self.node}"
        version, self._data = self._version, data
        (stat,) = session.ask(deadline, lambda client: client.set_async(path, data, version))
        written = not isinstance(stat, BadVersionError)
        if not written:
            # a write of ours whose answer was lost, or a revocation: the refusal renewed the session all the same
            (found,) = session.ask(deadline, lambda client: client.get_async(path))
            if isinstance(found, NoNodeError):
                raise Vanished
            if isinstance(found, Exception):
                raise session.strange(found, path)
            there, stat = found
            asked = revocation(there, self.claim.owner)
            if asked is not None:
                self._asked = asked
                self._data = with_revocation(data, self.claim.owner, *asked)  # for others to see
        elif isinstance(stat, NoNodeError):
            raise Vanished
        elif isinstance(stat, Exception):
            raise session.strange(stat, path)
        else:
            self._leader_time = stat.mtime
        self._version, self._created = stat.version, stat.czxid
        return written

    def _describe(self, *, granted: bool) -> bytes:
        if not granted:
            return documents.describe(self.claim, {"since": wall()})
        if self._acquired_at is None:
            self._acquired_at = wall()
        return documents.describe(self.claim, {"acquired_at": self._acquired_at})


def with_revocation(data: bytes, owner: str, by: str, reason: str) -> bytes:
    """The data of a holder's node with a request to give the lock back."""
    return data.partition(b"\n")[0] + b"\n" + documents.describe_revocation(owner, by, reason)


def revocation(data: bytes, owner: str) -> tuple[str, str] | None:
    """Who wants the lock back from *owner*, and why; ``None``: nobody."""
    if data == BY_CURATOR:
        return "a Curator client", ""
    asked = documents.read_revocation(data.partition(b"\n")[2], owner)
    return None if asked is None else (printable(asked[0]), printable(asked[1]))
