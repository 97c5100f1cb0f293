"""An ensemble of ZooKeeper with three members, as far as lockctl talks to it, in the protocol of its clients.

Writes go to the leader, one after the other. A follower applies them a moment later, answers reads from what it has,
and tells the leader every half tick which sessions it has heard of. The leader ends a session by its own clock, at the
earliest time at which ZooKeeper may; after an election all of them run anew. A member that fails is down, or cut off
from the leader: then it goes on answering reads until it notices.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.plan import KEPT
from tests.simulation.streams import StreamServer
from tests.simulation.world import Here
from tests.simulation.znodes import (
    CHILDREN,
    CHILDREN2,
    CLOSE,
    HEADER,
    INT,
    LONG,
    MULTI,
    MULTI_READ,
    OK,
    PING,
    SESSION_EXPIRED,
    SYNC,
    WRITES,
    Change,
    Node,
    Reader,
    Refused,
    look,
    packed,
    read_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.streams import Link

MEMBERS = 3
TICKS = (2.0, 3.0, 6.0)  # seconds; one of them, by chance
SHORTEST, LONGEST = 2, 60.0  # a session timeout, in ticks and in seconds
SYNC_LIMIT = 5  # ticks until a member that is cut off from the leader notices it
ELECTION = 0.5  # seconds, at most
JOINING = 0.1  # seconds until a member that comes back serves clients
LAGS = (0.0, 0.001, 0.1)  # seconds: the most that a follower is behind; one of them, by chance
FIRST = (0, 0, 2**31 - 3)  # one of these, by chance, has the first sequential child of a node: a counter may turn
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4  # events that a watch tells
PING_XID, WATCH_XID = -2, -1


class Session:
    """A session, as the leader knows it."""

    __slots__ = ("ends", "link", "number", "password", "timeout")

    def __init__(self, number: int, password: bytes, timeout: float) -> None:
        self.number = number
        self.password = password
        self.timeout = timeout  # seconds
        self.ends = 0.0  # by the clock of the leader
        self.link: Link | None = None  # on which it may write


class Connection:
    """A connection of a client, at a member."""

    __slots__ = ("busy", "closing", "come", "link", "session", "waiting", "works")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.session = 0
        self.come = b""  # of a request that is not complete
        self.waiting: deque[bytes] = deque()  # requests
        self.busy = False  # with one that the leader, or a transaction, is waited for
        self.works = False
        self.closing = False


class Applied(NamedTuple):
    """A transaction on its way to a member."""

    at: float
    number: int
    after: dict[str, Node | None]
    ended: int  # a session


class Ensemble:
    """What the members agree on."""

    def __init__(self) -> None:
        chance = Here.world.random.choice
        self.tick: float = chance(TICKS)
        self.lag: float = chance(LAGS)
        self.first: int = chance(FIRST)
        self.members: list[ZooKeeperServer] = []
        self.leader: ZooKeeperServer | None = None
        self.nodes: dict[str, Node] = {}
        self.sessions: dict[int, Session] = {}
        self.last = 0  # the last transaction
        self.remember(None)

    def remember(self, memory: Any) -> None:
        """Know that and nothing else; ``None``: nothing at all."""
        empty = {"/": Node(b"", 0, 0, 0, 0, children=("zookeeper",)), "/zookeeper": Node(b"", 0, 0, 0, 0)}
        nodes, self.last, sessions = memory or (empty, 0, ())
        self.nodes = dict(nodes)
        self.sessions = {each[0]: Session(*each) for each in sessions}

    def memory(self) -> Any:
        """A copy of all that it knows."""
        return dict(self.nodes), self.last, [(each.number, each.password, each.timeout) for each in self.alive()]

    def alive(self) -> list[Session]:
        """The sessions that the leader has not ended."""
        return list(self.sessions.values())

    # Elections

    def elect(self) -> None:
        """Have a leader, if a majority is up."""
        up = [each for each in self.members if each.up]
        if self.leader is not None or len(up) <= MEMBERS / 2:
            return
        self.leader = Here.world.random.choice(up)
        self.leader.elected.append(Here.world.now)
        Here.world.tell(self.leader.name, "leads")
        self.last = ((self.last >> 32) + 1) << 32
        for each in up:
            each.join()
        for session in self.alive():
            self.touch(session.number)
            self._look_later(session, self.last)

    def stumble(self) -> None:
        """There may be no leader any more, or no majority."""
        up = [each for each in self.members if each.up]
        if self.leader is not None and (not self.leader.up or len(up) <= MEMBERS / 2):
            self.leader = None
            for each in up:
                each.retreat()
            Here.world.at(Here.world.now + ELECTION * Here.world.chance(), self.elect)

    def welcome(self, member: ZooKeeperServer) -> None:
        """A member has come back."""
        Here.world.at(Here.world.now + JOINING, self._take_in, member)

    def _take_in(self, member: ZooKeeperServer) -> None:
        if self.leader is None:
            self.elect()
        elif member.up and not member.joined:
            member.join()

    # Sessions

    def open(self, timeout: float, link: Link) -> Session:
        """A new session."""
        chance = Here.world.random
        span = min(max(timeout, SHORTEST * self.tick), LONGEST)
        session = Session(chance.getrandbits(56) + 1, chance.randbytes(16), span)
        session.link = link
        self.sessions[session.number] = session
        self.touch(session.number)
        self._look_later(session, self.last)
        self.commit({})
        return session

    def touch(self, number: int) -> None:
        """The leader has heard of a session."""
        session = self.sessions.get(number)
        if session is not None and self.leader is not None:
            session.ends = self.leader.clock.boottime() + session.timeout

    def _look_later(self, session: Session, since: int) -> None:
        leader = self.leader
        assert leader is not None
        Here.world.at(leader.clock.true(session.ends) + 0.0005, self._look, session, since >> 32)

    def _look(self, session: Session, epoch: int) -> None:
        if self.leader is None or self.last >> 32 != epoch or self.sessions.get(session.number) is not session:
            return
        if session.ends <= self.leader.clock.boottime():
            Here.world.tell(self.leader.name, f"ends session {session.number:x}")
            self.end(session)
        else:
            self._look_later(session, self.last)

    def end(self, session: Session) -> int:
        """End a session with all its nodes; the number of that transaction."""
        del self.sessions[session.number]
        change = self.change(session.number)
        for path in [path for path, node in self.nodes.items() if node.owner == session.number]:
            change.remove(path)
        return self.commit(change.after, session.number)

    # Writes

    def change(self, session: int) -> Change:
        """The next transaction."""
        assert self.leader is not None
        change = Change(self.nodes, self.last + 1, int(self.leader.clock.wall() * 1000), session)
        change.first = self.first
        return change

    def commit(self, after: dict[str, Node | None], ended: int = 0) -> int:
        """Its number. One that is refused has a number, too."""
        self.last += 1
        _put(self.nodes, after)
        for each in self.members:
            if each.joined:
                each.take(self.last, after, ended)
        return self.last


class ZooKeeperServer(StreamServer):
    """One member."""

    def __init__(self, number: int, rate: float, ensemble: Ensemble) -> None:
        super().__init__(number, rate)
        self.name = f"member-{number}"
        self.ensemble = ensemble
        self.joined = False  # whether it serves clients
        self._nodes: dict[str, Node] = {}
        self._last = 0
        self._coming: deque[Applied] = deque()
        self._later: list[tuple[int, Callable[[], None]]] = []  # what waits for a transaction
        self._cut_until = 0.0
        self._stuck: list[Callable[[], None]] = []  # what waits for the leader
        self._connections: dict[Link, Connection] = {}
        self._data_watches: dict[str, dict[Connection, None]] = {}
        self._child_watches: dict[str, dict[Connection, None]] = {}
        self._heard: dict[int, None] = {}  # sessions, since the last report
        self._reports = False

    def memory(self) -> Any:
        """See ``Server``."""
        return self.ensemble.memory()

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.ensemble.remember(memory)

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``: one fails, or all of them when data is lost."""
        others = [each for each in self.ensemble.members if each is not self]
        spared = self.joined and self.ensemble.leader is not self and all(each.counts() for each in others)
        if kept == KEPT and spared and Here.world.chance() < 0.5:
            self._be_cut(seconds)
            return
        for each in [self] if kept == KEPT else self.ensemble.members:
            StreamServer.fail(each, seconds, kept, old)
            each.retreat()
        self.ensemble.stumble()

    def _come_back(self, kept: int, old: Any) -> None:
        super()._come_back(kept, old)
        self.ensemble.welcome(self)

    def join(self) -> None:
        """Know what the leader knows, and serve clients."""
        self._nodes, self._last = dict(self.ensemble.nodes), self.ensemble.last
        self.joined = True

    def retreat(self) -> None:
        """Close all connections."""
        self.joined = False
        self._coming.clear()
        self._later, self._stuck, self._cut_until = [], [], 0.0
        self._heard = {}
        for each in list(self._connections.values()):
            self._hang_up(each)

    def _be_cut(self, seconds: float) -> None:
        world, limit = Here.world, SYNC_LIMIT * self.ensemble.tick
        world.tell(self.name, f"is cut off from the leader for {seconds:.3f} s")
        self._cut_until = max(self._cut_until, world.now + seconds)
        if seconds > limit:
            world.at(world.now + limit, self._notice)
        world.at(world.now + seconds, self._heal)

    def _is_cut(self) -> bool:
        return Here.world.now < self._cut_until

    def counts(self) -> bool:
        """Whether it counts for a majority."""
        return self.joined and not self._is_cut()

    def _notice(self) -> None:
        if self._is_cut():
            Here.world.tell(self.name, "has noticed that it is cut off")
            until = self._cut_until
            self.retreat()
            self._cut_until = until

    def _heal(self) -> None:
        if self._is_cut() or not self.up:
            return
        if not self.joined:
            self.ensemble.welcome(self)
            return
        self._apply()
        stuck, self._stuck = self._stuck, []
        for each in stuck:
            each()

    # Requests

    def serve(self, data: bytes, link: Link) -> bytes:
        """See ``StreamServer``."""
        connection = self._connections.get(link)
        if connection is None:
            connection = self._connections[link] = Connection(link)
        come = connection.come + data
        while len(come) >= INT.size and len(come) >= (end := INT.size + INT.unpack_from(come)[0]):
            connection.waiting.append(come[INT.size : end])
            come = come[end:]
        connection.come = come
        self._work(connection)
        return b""

    def _work(self, connection: Connection) -> None:
        """Do what was asked, in its order, until something is waited for."""
        if connection.works:
            return
        connection.works = True
        while connection.waiting and not connection.busy:
            if not self.joined:
                self._hang_up(connection)
                break
            asked = Reader(connection.waiting.popleft())
            if connection.session:
                self._do(connection, asked)
            else:
                self._greet(connection, asked)
        connection.works = False

    def _do(self, connection: Connection, asked: Reader) -> None:
        xid, kind = asked.number(), asked.number()
        self._hear(connection.session)
        if kind == PING:
            self._say(connection, HEADER.pack(PING_XID, self._last, OK))
        elif kind in WRITES:
            self._ask_leader(connection, lambda: self._write(connection, xid, kind, asked))
        elif kind == SYNC:
            path = asked.text()
            self._ask_leader(
                connection,
                lambda: self._after(self.ensemble.last, lambda: self._answer(connection, xid, OK, packed(path))),
            )
        else:
            self._apply()
            self._read(connection, xid, kind, asked)

    def _read(self, connection: Connection, xid: int, kind: int, asked: Reader) -> None:
        if kind == MULTI_READ:
            self._answer(connection, xid, OK, read_all(self._nodes, asked))
            return
        path, watches = asked.text(), asked.flag()
        code, found = OK, b""
        try:
            found = look(self._nodes, kind, path)
        except Refused as refusal:
            code = refusal.code
        if watches and code == OK:
            below = kind in (CHILDREN, CHILDREN2)
            (self._child_watches if below else self._data_watches).setdefault(path, {})[connection] = None
        self._answer(connection, xid, code, found)

    def _ask_leader(self, connection: Connection, request: Callable[[], None]) -> None:
        connection.busy = True
        if self._is_cut():
            self._stuck.append(request)
        else:
            request()

    def _write(self, connection: Connection, xid: int, kind: int, asked: Reader) -> None:
        ensemble, code, answer = self.ensemble, OK, b""
        session = ensemble.sessions.get(connection.session)
        if session is not None and session.link is not connection.link:
            self._hang_up(connection)  # it has moved to another connection
            return
        if session is None:
            code, number = SESSION_EXPIRED, ensemble.commit({})
        elif kind == CLOSE:
            connection.closing = True
            number = ensemble.end(session)
        else:
            change = ensemble.change(session.number)
            try:
                answer = change.multi(asked) if kind == MULTI else change.do(kind, asked)
            except Refused as refusal:
                code, change.after = refusal.code, {}
            number = ensemble.commit(change.after)
        self._after(number, lambda: self._answer(connection, xid, code, answer))

    def _after(self, number: int, action: Callable[[], None]) -> None:
        """Do something when a transaction was applied here."""
        self._apply()
        if self._last >= number:
            action()
        else:
            self._later.append((number, action))
            Here.world.at(self._coming[-1].at, self._apply)

    def _answer(self, connection: Connection, xid: int, code: int, content: bytes) -> None:
        connection.busy = False
        self._say(connection, HEADER.pack(xid, self._last, code) + content)
        if connection.closing:
            self._hang_up(connection)
        self._work(connection)

    def _say(self, connection: Connection, content: bytes) -> None:
        connection.link.say(packed(content))

    def _hang_up(self, connection: Connection) -> None:
        connection.link.hang_up()
        connection.waiting.clear()
        self._connections.pop(connection.link, None)
        for watches in (*self._data_watches.values(), *self._child_watches.values()):
            watches.pop(connection, None)

    # Sessions

    def _greet(self, connection: Connection, asked: Reader) -> None:
        _, (seen,), timeout, (number,) = asked.number(), asked.take(LONG), asked.number(), asked.take(LONG)
        password = asked.content()
        self._apply()
        if seen > self._last:
            self._hang_up(connection)
        elif number:
            for each in list(self._connections.values()):
                if each.session == number:
                    self._hang_up(each)
            self._ask_leader(connection, lambda: self._reopen(connection, number, password))
        else:
            self._ask_leader(connection, lambda: self._open(connection, timeout / 1000))

    def _open(self, connection: Connection, timeout: float) -> None:
        session = self.ensemble.open(timeout, connection.link)
        self._after(self.ensemble.last, lambda: self._welcome(connection, session))

    def _reopen(self, connection: Connection, number: int, password: bytes) -> None:
        session = self.ensemble.sessions.get(number)
        if session is None or session.password != password:
            self._say(connection, INT.pack(0) + INT.pack(0) + LONG.pack(0) + packed(bytes(16)) + b"\0")
            self._hang_up(connection)
            return
        session.link = connection.link
        self.ensemble.touch(number)
        self._welcome(connection, session)

    def _welcome(self, connection: Connection, session: Session) -> None:
        connection.session, connection.busy = session.number, False
        Here.world.tell(self.name, f"has session {session.number:x} of {session.timeout:g} s")
        told = INT.pack(0) + INT.pack(int(session.timeout * 1000)) + LONG.pack(session.number)
        self._say(connection, told + packed(session.password) + b"\0")
        self._work(connection)

    def _hear(self, session: int) -> None:
        """A client of a session has said something."""
        if self.ensemble.leader is self:
            self.ensemble.touch(session)
            return
        self._heard[session] = None
        self._report_later()

    def _report_later(self) -> None:
        if not self._reports:
            self._reports = True
            half, now = self.ensemble.tick / 2, self.clock.boottime()
            Here.world.at(max(self.clock.true((now // half + 1) * half), self._cut_until), self._report)

    def _report(self) -> None:
        self._reports = False
        if self._is_cut():
            self._report_later()
            return
        for session in self._heard:
            self.ensemble.touch(session)
        self._heard = {}

    # Transactions of others

    def take(self, number: int, after: dict[str, Node | None], ended: int) -> None:
        """The leader has committed one."""
        now = Here.world.now
        if self.ensemble.leader is self:
            self._commit(Applied(now, number, after, ended))
            return
        at = max(now + self.ensemble.lag * Here.world.chance(), self._cut_until)
        if self._coming:
            at = max(at, self._coming[-1].at)
        self._coming.append(Applied(at, number, after, ended))
        if self._connections:
            Here.world.at(at, self._apply)

    def _apply(self) -> None:
        """Apply what has come, and do what waits for it."""
        now = Here.world.now
        while self._coming and self._coming[0].at <= now and not self._is_cut():
            self._commit(self._coming.popleft())
        while self._later and self._later[0][0] <= self._last:
            self._later.pop(0)[1]()

    def _commit(self, applied: Applied) -> None:
        if self._data_watches or self._child_watches:
            self._tell(applied.after)
        _put(self._nodes, applied.after)
        self._last = applied.number
        if applied.ended:
            for each in list(self._connections.values()):
                if each.session == applied.ended and not each.closing:
                    self._hang_up(each)

    def _tell(self, changes: dict[str, Node | None]) -> None:
        """What watches say of changes; each says it once."""
        for path, after in changes.items():
            before = self._nodes.get(path)
            if before is None and after is not None:
                self._fire(CREATED, path, self._data_watches)
            elif after is None:
                self._fire(DELETED, path, self._data_watches, self._child_watches)
            elif before is not None:
                if before.modified != after.modified:
                    self._fire(CHANGED, path, self._data_watches)
                if before.changed != after.changed:
                    self._fire(CHILD, path, self._child_watches)

    def _fire(self, event: int, path: str, *kinds: dict[str, dict[Connection, None]]) -> None:
        told: dict[Connection, None] = {}
        for each in kinds:
            told |= each.pop(path, {})
        for connection in told:
            event_is = INT.pack(event) + INT.pack(3) + packed(path)
            self._say(connection, HEADER.pack(WATCH_XID, -1, OK) + event_is)


def _put(nodes: dict[str, Node], changes: dict[str, Node | None]) -> None:
    for path, node in changes.items():
        if node is None:
            nodes.pop(path, None)
        else:
            nodes[path] = node


def ensemble_of(rate: float) -> list[ZooKeeperServer]:
    """The members of one, with clocks of this rate."""
    ensemble = Ensemble()
    ensemble.members = [ZooKeeperServer(number, rate, ensemble) for number in range(MEMBERS)]
    ensemble.elect()
    return ensemble.members
