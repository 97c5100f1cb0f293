"""Our node in the queue of a lock, and what the server shows around it: who is before us, and the record of the lock.

The node's data is the document of the holder or waiter (see :mod:`lockctl.stores.zookeeper.queue`). Each answer to a
write of the node tells what time it is by the leader's clock, which ends the holds.
"""

from __future__ import annotations

import os

from lockctl import documents
from lockctl.clock import wall
from lockctl.model import EXCLUSIVE, Claim
from lockctl.stores.zookeeper import queue, tokens
from lockctl.stores.zookeeper.errors import or_none, refusal
from lockctl.stores.zookeeper.queue import Vanished
from lockctl.stores.zookeeper.session import Session
from lockctl.stores.zookeeper.tokens import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.wire.deadline import Deadline


class Node:
    """The node of one claim. Methods that ask raise what ``Session.ask`` raises."""

    def __init__(self, place: Place, claim: Claim) -> None:
        """There is none yet."""
        self.claim = claim
        self.place = place
        self.parent = place.key(claim.name)
        self.record = place.kept(claim.name)
        self.stem = ""  # what the names of our nodes in this session begin with
        self.left: list[str] = []  # the stems of those that may be left of sessions which the servers refused
        self.name: str | None = None  # once its creation was answered
        self.version = -1
        self.data = b""
        self.acquired_at: float | None = None
        self.asked: tuple[str, str] | None = None  # who wants the lock back, and why
        self.token: int | None = None  # once granted
        self.issued: int | None = None  # the token in the document of the node
        self.raised = Record()  # the record since our grant, unless somebody has changed it
        self.floor = Record()  # of tokens, read before each record that a grant relies on
        self.leader_time = 0  # milliseconds since 1970 by the leader's clock, at our last write; 0: not known
        self._leader = 0  # the number of the leader whose clock that is
        self.root: Any = None  # the node above all locks, as an answer showed it

    @property
    def path(self) -> str:
        """The whole name, of a node that there is."""
        return f"{self.parent}/{self.name}"

    def forget(self) -> None:
        """Know of no node, as its session has ended."""
        self.name = self.token = None
        self.version = -1
        self.leader_time = 0  # the next leader may have another clock

    def begin_anew(self) -> None:
        """Forget what was said of an earlier node, if there was one."""
        self.acquired_at = self.asked = self.token = None

    def find(self, line: list[str]) -> bool:
        """Whether we have a position in a queue."""
        self.name = queue.mine(line, self.stem)
        return self.name is not None

    def ahead(self, line: list[str]) -> list[str]:
        """Those before us in a queue; all, if we have no position in it."""
        return line if self.name is None else line[: line.index(self.name)]

    def is_open(self, ahead: list[str]) -> bool:
        """Whether the lock is ours with these before us."""
        if not ahead or self.claim.mode == EXCLUSIVE:
            return not ahead
        from lockctl.stores.zookeeper import share

        return share.admits(ahead, self.claim)

    def check_slots(self, session: Session, deadline: Deadline, ahead: list[str]) -> None:
        """Raise ``ConfigError`` if the holder has another number of slots than we."""
        from lockctl.stores.zookeeper import share

        data = None
        if self.claim.slots > 1:
            path = f"{self.parent}/{ahead[0]}"
            (found,) = session.ask(deadline, lambda client: client.get(path))
            data = None if isinstance(found, Exception) else found[0]
        share.check_agrees(self.parent, ahead[0], data, self.claim)

    def ask_line(self, client: Any) -> Any:
        """Ask for the queue, for ``Session.ask``."""
        return client.children(self.parent)

    def ask_root(self, client: Any) -> Any:
        """Ask for the node above all locks, for ``Session.ask``."""
        return client.get(self.place.root)

    def ask_record(self, client: Any) -> Any:
        """Ask for what is kept of the lock, for ``Session.ask``."""
        return client.get(self.record)

    def ask_floor(self, client: Any) -> Any:
        """Ask for the floor of tokens, for ``Session.ask``."""
        return client.get(self.place.records)

    def look(self, session: Session, deadline: Deadline) -> tuple[list[str], Any]:
        """The queue as the leader knows it, and the answer to :meth:`ask_record`, which is not older.

        While we have a node, the node above all locks is the one that is seen here, too.
        """
        _, names, record, self.root = session.ask(
            deadline, lambda client: client.sync(self.parent), self.ask_line, self.ask_record, self.ask_root
        )
        return [] if isinstance(names, Exception) else queue.in_order(names), record

    def seen(self, session: Session, answer: Any) -> Record:
        """The record in an answer to :meth:`ask_record`; raises ``BackendUnavailable``."""
        record = tokens.known(session.place, answer, self.record)
        record.floor = self.floor
        if record.leader > self._leader:
            self.leader_time = 0  # the clock of another one says when its hold is over
        return record

    def note_floor(self, session: Session, answer: Any) -> None:
        """Know the floor in an answer to :meth:`ask_floor`; raises ``BackendUnavailable``."""
        self.floor = tokens.known(session.place, answer, self.place.records)

    def note_time(self, milliseconds: int, zxid: int) -> None:
        """What the leader's clock said at the transaction *zxid* of ours."""
        self.leader_time, self._leader = milliseconds, zxid >> tokens.EPOCH

    def free(self, session: Session, answer: Any) -> Record | None:
        """As :meth:`seen`; ``None``: a hold may keep us out."""
        seen = self.seen(session, answer)
        return None if seen.until > self.leader_time else seen

    def kept_out(self, session: Session, deadline: Deadline, answer: Any) -> float:
        """How many seconds the hold in an answer to :meth:`ask_record` still lasts by the leader's clock."""
        until = self.seen(session, answer).until
        while until > self.leader_time:
            # our last write may be long ago: only another one tells what time it is there
            if self.write(session, deadline, self.data or self.describe(None)):
                break
        return max(0, until - self.leader_time) / 1000

    def write(self, session: Session, deadline: Deadline, data: bytes) -> bool:
        """Renew the session by a write to our node; notices a revocation. False: it was refused, as the node changed.

        Raises ``Vanished`` when the node is not there, and what ``Session.ask`` raises.
        """
        from kazoo.exceptions import BadVersionError, NoNodeError

        path, version, self.data = self.path, self.version, data
        (stat,) = session.ask(deadline, lambda client: client.put(path, data, version))
        written = not isinstance(stat, BadVersionError)
        if not written:
            # a write of ours whose answer was lost, or a revocation: the refusal renewed the session all the same
            (answer,) = session.ask(deadline, lambda client: client.get(path))
            found = or_none(session.place, answer, path)
            if found is None:
                raise Vanished
            there, stat = found
            asked = queue.revocation(there, self.claim.owner)
            if asked is not None:
                self.asked = asked
                self.data = queue.with_revocation(data, self.claim.owner, *asked)  # for others to see
        elif isinstance(stat, NoNodeError):
            raise Vanished
        elif isinstance(stat, Exception):
            raise refusal(session.place, stat, path)
        else:
            self.note_time(stat.mtime, stat.mzxid)
        self.version = stat.version
        return written

    def remove(self, session: Session, deadline: Deadline) -> None:
        """Delete the node, if it is still there."""
        path = self.path
        session.ask(deadline, lambda client: client.delete(path))

    def describe(self, token: int | None) -> bytes:
        """The document of a holder with this token; without one, of a waiter."""
        if token is None:
            return documents.describe(self.claim, {"since": wall()})
        if self.acquired_at is None:
            self.acquired_at = wall()
        return documents.describe(self.claim, {"acquired_at": self.acquired_at, "token": token})


class NextSession:
    """The session to hold a lock in, which is made before that, with the stem of its node."""

    def __init__(self, place: Place, claim: Claim, timeout: float) -> None:
        """There is none until it is needed."""
        self._place = place
        self._claim = claim
        self._timeout = timeout
        self._made: tuple[Session, str] | None = None

    def get(self, beside: Session | None = None) -> tuple[Session, str]:
        """That of an earlier attempt if it is still alive, as far as is known; see ``Session`` for *beside*."""
        if self._made is None or self._made[0].expired:
            self.abandon()
            self._made = Session(self._place, self._timeout, beside), stem(self._place, self._claim)
        return self._made

    def take(self) -> tuple[Session, str]:
        """As :meth:`get`; the next time it is another one."""
        made, self._made = self.get(), None
        return made

    def give_up_with_refused(self) -> list[str]:
        """Abandon it if it has no connection, too: it has seen the same data as a refused one. Its stem."""
        if self._made is None or self.connected:
            return []
        stem = self._made[1]
        self.abandon()
        return [stem]

    @property
    def connected(self) -> bool:
        """Whether it is there and can be used at once."""
        return self._made is not None and self._made[0].connected

    def has_node_in(self, line: list[str]) -> bool:
        """Whether its node is in a queue."""
        return self._made is not None and queue.mine(line, self._made[1]) is not None

    def end(self, deadline: Deadline) -> None:
        """Leave nothing of it at the server. Raises as ``Session.end``."""
        if self._made is not None:
            self._made[0].end(deadline)
            self._made = None

    def abandon(self) -> None:
        """Tell nobody."""
        if self._made is not None:
            self._made[0].abandon()
            self._made = None


def stem(place: Place, claim: Claim) -> str:
    """What the name of a node begins with: new for each session, so that a node by this name is ours and no other's."""
    return queue.prefix(os.urandom(16).hex(), place.layout, claim.mode, claim.slots)
