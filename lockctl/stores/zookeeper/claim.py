"""One claim: its session, its node in the queue of the lock, and what becomes of it.

The node's data is the document of the holder or waiter on the first line. Who wants the lock back adds a
second line (:func:`with_revocation`): it is gone with the node, and can hit nobody else.

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

import os

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.locks.native import next_token
from lockctl.model import EXCLUSIVE, Grant
from lockctl.names import printable
from lockctl.stores.zookeeper import queue, tokens
from lockctl.stores.zookeeper.address import KEPT, MADE_BY_US, token_domain
from lockctl.stores.zookeeper.queue import Overtaken, Vanished
from lockctl.stores.zookeeper.session import Session, SessionLost
from lockctl.stores.zookeeper.tokens import MISSING, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim, Run
    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.session import Call
    from lockctl.wire.deadline import Deadline

SAFE_PART = 0.5  # of the session timeout: see `session`
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
        # when it may be our turn: the record as it was seen, which keeps nobody out; ``None``: nothing is known
        self.turn: Record | None = None
        self._session: Session | None = None
        self._stem = ""
        self._queues = False  # whether the session is that of a waiter
        self._next: tuple[Session, str] | None = None  # the session to hold the lock in, and the stem of its node
        self._version = -1
        self._data = b""
        self._acquired_at: float | None = None
        self._asked: tuple[str, str] | None = None
        self._issued: int | None = None  # the token in the document of our node
        self._raised = Record()  # the record since our grant, unless somebody has changed it
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

            hold.begin(self._session, grant, f"{self.parent}/{self.node}", seconds, self._raised, deadline)

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

        names, self._root, record = session.ask(deadline, self._ask_line, self._ask_root, self.ask_record)
        line = [] if isinstance(names, NoNodeError) else queue.in_order(names)
        if not self.find(line) and self._next is not None and queue.mine(line, self._next[1]):
            # our position was handed over, and the answer was lost
            session = self._begin_anew(deadline)
            self.find(line)
        ahead = self.ahead(line)
        if not self.is_open(ahead):
            # what a follower shows may be old: nobody is refused for that
            line, record = self.look(session, deadline)
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
            (self._root,) = session.ask(deadline, self._ask_root)
            if isinstance(self._root, Exception):
                raise Vanished
        if self.token is None:
            if self._issued is None:
                raise Vanished
            self.token, self._granted_at = self._issued, self._leader_time
        lease = session.timeout * SAFE_PART
        return Grant(self.claim, self.token, token_domain(*self._root), self.parent, lease, self._granted_at / 1000)

    def _grasp(self, session: Session, deadline: Deadline, record: Any) -> Session | None:
        """Take the lock that is open for us; the session that has it then, or ``None``: something keeps us out."""
        if self.node is None:
            if self._queues:  # somebody has deleted our node
                session = self._begin_anew(deadline)
            return session if self._begin(session, deadline, self.seen(session, record)) else None
        if self.kept_out(session, deadline, record):
            return None
        if self.token is None:
            held_in = self._hand_over(deadline, self.seen(session, record))
            if held_in is None:
                raise Overtaken
            return held_in
        while not self._write(session, deadline, self._data):
            pass  # so that the lock is held at the time of a write of ours
        return session

    def _hand_over(self, deadline: Deadline, record: Record) -> Session | None:
        """Replace our node by one of the session to hold the lock in; that session, which has the lock then.

        ``None``: the *record* has changed so that it may not be our turn, and nothing was changed here. Who was asked
        meanwhile to give the lock back learns of it. Raises as ``Session.ask``, and ``Vanished``: we have no node any
        more.
        """
        session, stem = self._next_session()
        name = stem + (self.node or "")[len(self._stem) :]
        waiting, path = self._data, f"{self.parent}/{name}"
        while True:
            token = next_token(record.last, wall())
            self._data = self._describe(token)
            if self._asked is not None:
                self._data = with_revocation(self._data, self.claim.owner, *self._asked)
            session.refresh(deadline)
            answers, found, names, self._root, seen = session.ask(
                deadline,
                self._replacement(name, record, token),
                lambda client: client.get_async(path),
                # the server has seen our transaction when it answers: who is before us now, nobody can join
                self._ask_line,
                self._ask_root,
                self.ask_record,
            )
            line = [] if isinstance(names, Exception) else queue.in_order(names)
            if self._is_replaced(session, name, answers, found):
                break
            if not tokens.is_other(answers[0]):
                self._judge_refusal(session, deadline, answers, path)
                continue
            record = self._next_record(session, deadline, record, answers[0], seen)
            if self.node not in line or record.until > self._leader_time or not self.is_open(self.ahead(line)):
                self._data, self._acquired_at = waiting, None
                return None
        self._issued, self._raised, self._leader_time = token, record.after(token), found[1].ctime
        if isinstance(answers[0], Exception):
            self._issued, self._data = tokens.token_in(found[0]), found[0]  # by an earlier attempt
        self.node, self._version = name, 0  # not that of a revocation: it is to be noticed
        if self._issued is None or name not in line or not self.is_open(self.ahead(line)):
            # deleted already; or somebody is before us all the same, as after a change by hand
            session.ask(deadline, lambda client: client.delete_async(path))
            self.node = None
            raise Vanished
        _, before = self._inherit()
        if before is not None:
            before.dismiss()
        return session

    def _replacement(self, name: str, record: Record, token: int) -> Call:
        """The transaction that makes the node *name* in the place of ours, for ``Session.ask``."""

        def commit(client: Any) -> Any:
            transaction = client.transaction()
            record.write(transaction, self.record, record.raised(token, self._leader_time))
            transaction.delete(f"{self.parent}/{self.node}", self._version)
            transaction.create(f"{self.parent}/{name}", self._data, ephemeral=True)
            return transaction.commit_async()

        return commit

    def _is_replaced(self, session: Session, name: str, answers: Any, found: Any) -> bool:
        """Whether the node *name* is there: made now, or by an earlier attempt whose answer was lost."""
        from kazoo.exceptions import NoNodeError

        if isinstance(answers, Exception):
            raise session.strange(answers, f"{self.parent}/{name}")
        if isinstance(found, Exception) and not isinstance(found, NoNodeError):
            raise session.strange(found, f"{self.parent}/{name}")
        if isinstance(found, NoNodeError):
            self._check_rights(session, answers)
            return False
        return True

    def _judge_refusal(self, session: Session, deadline: Deadline, answers: Any, path: str) -> None:
        """Return if the transaction of a hand-over can be repeated, as our node was changed; else raise."""
        from kazoo.exceptions import BadVersionError, NoNodeError

        kept, deleted, made = answers
        if isinstance(deleted, BadVersionError):
            self._write(session, deadline, self._data)
        elif not isinstance(made, Exception) or isinstance(deleted, NoNodeError):
            raise Vanished
        else:
            raise session.strange(*((kept, self.record) if tokens.is_reason(kept) else (made, path)))

    def _check_rights(self, session: Session, answers: Any) -> None:
        from kazoo.exceptions import InvalidACLError, NoAuthError

        if any(isinstance(answer, (NoAuthError, InvalidACLError)) for answer in answers):
            raise session.forbidden()

    def _next_record(self, session: Session, deadline: Deadline, before: Record, refused: Any, seen: Any) -> Record:
        """The record to try with after the one of *before* was *refused*; *seen* is how the server had it then."""
        from kazoo.exceptions import NoNodeError

        if isinstance(refused, NoNodeError) and before.version == MISSING:
            session.make(f"{self.place.root}/{KEPT}", deadline)
        return self.seen(session, seen)

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

    def _ask_line(self, client: Any) -> Any:
        return client.get_children_async(self.parent)

    def _ask_root(self, client: Any) -> Any:
        return client.get_async(self.place.root)

    def kept_out(self, session: Session, deadline: Deadline, record: Any) -> float:
        """How many seconds the hold in *record*, an answer to :meth:`ask_record`, still lasts by the leader's clock."""
        until = self.seen(session, record).until
        while until > self._leader_time:
            # our last write may be long ago: only another one tells what time it is there
            if self._write(session, deadline, self._data or self._describe(None)):
                break
        return max(0, until - self._leader_time) / 1000

    def free(self, session: Session, record: Any) -> Record | None:
        """The *record*, as :meth:`kept_out` has it; ``None``: a hold may keep us out."""
        seen = self.seen(session, record)
        return None if seen.until > self._leader_time else seen

    def seen(self, session: Session, answer: Any) -> Record:
        """The record in an answer to :meth:`ask_record`; raises ``BackendUnavailable``."""
        record = tokens.read(answer)
        if record is None:
            raise session.strange(answer, self.record)
        return record

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
            self._ask_line,
            self.ask_record,
        )
        return [] if isinstance(names, NoNodeError) else queue.in_order(names), record

    def find(self, line: list[str]) -> bool:
        """Whether we have a position in a queue."""
        self.node = queue.mine(line, self._stem)
        return self.node is not None

    def create(self, session: Session, deadline: Deadline) -> None:
        """Make the node of a waiter."""
        from kazoo.exceptions import KazooException, NoNodeError

        self._acquired_at = self._asked = self.token = None  # of an earlier node, if there was one
        data = self._describe(None)
        path = f"{self.parent}/{self._stem}"
        while True:
            (made,) = session.ask(
                deadline,
                lambda client: client.create_async(path, data, ephemeral=True, sequence=True, include_data=True),
            )
            if not isinstance(made, NoNodeError):
                break
            session.make(self.parent, deadline, MADE_BY_US)
        if isinstance(made, KazooException):
            raise self._cannot_make(made)
        full, stat = made
        self.node = full.rpartition("/")[2]
        self._data, self._version, self._leader_time = data, stat.version, stat.ctime

    def _begin(self, session: Session, deadline: Deadline, record: Record) -> bool:
        """Make the node of a holder; false if the lock is not ours with it: then it is removed again."""
        self._acquired_at = self._asked = self.token = None  # of an earlier node, if there was one
        while True:
            token = next_token(record.last, wall())
            data = self._describe(token)
            answers, names, seen = session.ask(
                deadline,
                self._beginning(record, data, token),
                self._ask_line,
                self.ask_record,
            )
            line = [] if isinstance(names, Exception) else queue.in_order(names)
            if not any(isinstance(answer, Exception) for answer in answers):
                break
            self._check_rights(session, answers)
            record = self._next_beginning(session, deadline, record, answers, seen)
            if not self.is_open(line):
                raise Overtaken
        stat = answers[0] if record.version != MISSING else None if isinstance(seen, Exception) else seen[1]
        full = answers[1]
        self.node = full.rpartition("/")[2]
        self._data, self._version, self._issued, self._raised = data, 0, token, record.after(token)
        self._leader_time = 0 if stat is None else stat.mtime
        if stat is None or queue.mine(line, self._stem) != self.node:
            # deleted already; or not the first of ours: an earlier answer was lost, and a follower was behind
            session.ask(deadline, lambda client: client.delete_async(full))
            raise Vanished
        ahead = self.ahead(line)
        if self.is_open(ahead) and record.until <= self._leader_time:
            return True
        session.ask(deadline, lambda client: client.delete_async(full))
        self.node = None
        if not self.is_open(ahead):
            self._check_slots(session, deadline, ahead)
        return False

    def _beginning(self, record: Record, data: bytes, token: int) -> Call:
        """The transaction that makes the node of a holder, for ``Session.ask``."""

        def commit(client: Any) -> Any:
            transaction = client.transaction()
            record.write(transaction, self.record, record.raised(token, self._leader_time))
            transaction.create(f"{self.parent}/{self._stem}", data, ephemeral=True, sequence=True)
            return transaction.commit_async()

        return commit

    def _next_beginning(self, session: Session, deadline: Deadline, record: Record, answers: Any, seen: Any) -> Record:
        """The record to try with after the transaction of :meth:`_begin` was refused; raises for another reason."""
        from kazoo.exceptions import NoNodeError

        kept, made = answers
        if tokens.is_reason(kept) and not tokens.is_other(kept):
            raise session.strange(kept, self.record)
        if tokens.is_reason(made) and not isinstance(made, NoNodeError):
            raise self._cannot_make(made)
        after = self._next_record(session, deadline, record, kept, seen)
        if isinstance(made, NoNodeError) or (isinstance(kept, NoNodeError) and record.version == MISSING):
            session.make(self.parent, deadline, MADE_BY_US)
        return after

    def _cannot_make(self, refused: Exception) -> BackendUnavailable:
        return BackendUnavailable(f"{self.place}: cannot make a node below {self.parent}: {type(refused).__name__}")

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
        self._version = stat.version
        return written

    def _describe(self, token: int | None) -> bytes:
        """The document of a holder with this token; without one, of a waiter."""
        if token is None:
            return documents.describe(self.claim, {"since": wall()})
        if self._acquired_at is None:
            self._acquired_at = wall()
        return documents.describe(self.claim, {"acquired_at": self._acquired_at, "token": token})


def with_revocation(data: bytes, owner: str, by: str, reason: str) -> bytes:
    """The data of a holder's node with a request to give the lock back."""
    return data.partition(b"\n")[0] + b"\n" + documents.describe_revocation(owner, by, reason)


def revocation(data: bytes, owner: str) -> tuple[str, str] | None:
    """Who wants the lock back from *owner*, and why; ``None``: nobody."""
    if data == BY_CURATOR:
        return "a Curator client", ""
    asked = documents.read_revocation(data.partition(b"\n")[2], owner)
    return None if asked is None else (printable(asked[0]), printable(asked[1]))
