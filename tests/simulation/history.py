"""One history: the programs of a plan in a world of their own.

Of a run everything is real from ``runner.run`` on in the keeper and from ``Guard.run`` on in the guard. Mirrored here is
what ``supervise.fork.fork_guard`` and ``cli`` do before: the pair of sockets, the process of the guard, the request.
"""

from __future__ import annotations

from signal import SIGCONT, SIGKILL
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import runner
from lockctl.errors import LockctlError
from lockctl.lease.schedule import plan as schedule_of
from lockctl.locks.inspect import lock_info
from lockctl.model import Revocation
from lockctl.request import Request
from lockctl.supervise import channel, guard, starting
from lockctl.supervise.fork import GuardProcess
from tests.simulation import modules, rubbish, sockets, streams
from tests.simulation.cells import CellServer
from tests.simulation.consul import ConsulServer
from tests.simulation.dynamodb import DynamoServer
from tests.simulation.etcd import EtcdServer
from tests.simulation.files import Files
from tests.simulation.flock import Flock
from tests.simulation.jobs import Job
from tests.simulation.kubernetes import KubernetesServer
from tests.simulation.marks import MarkServer
from tests.simulation.mysql_server import MysqlServer
from tests.simulation.nats import NatsServer
from tests.simulation.network import Host, Network
from tests.simulation.objects import ObjectServer
from tests.simulation.others import Elector, LockClient, Other, RedisClient
from tests.simulation.plan import (
    BY_SIGNAL,
    DENIED,
    DESCRIPTORS,
    DISK,
    ENDS_A_PROGRAM,
    ENDS_A_WAIT,
    GUARD,
    HELPER,
    KEPT,
    LOCK,
    NEAR,
    OLD,
    OLDER,
    PARKED,
    SENTINELS,
)
from tests.simulation.postgresql_program import Program
from tests.simulation.postgresql_server import PostgresServer
from tests.simulation.processes import Process, System
from tests.simulation.record import RunRecord, recorded
from tests.simulation.redis import RedisServer
from tests.simulation.sqlite import Database
from tests.simulation.stores import STORES
from tests.simulation.world import INFINITE, Here, World

if TYPE_CHECKING:
    from lockctl.model import LockInfo, Run
    from lockctl.wire.deadline import Deadline
    from tests.simulation.network import Server
    from tests.simulation.plan import Fault, Plan
    from tests.simulation.world import Clock

LEAVING = 0.2  # seconds: some runs tell a server that they leave, and do not wait for its answer
SOON = 8.0  # messages
ASK_TIMEOUT = 10.0  # seconds for a request of an operator
REPEATING = {"marks", "lose", "late", "twice"}  # with these, requests are repeated, and servers do what they are asked
MOMENT = 0.001  # seconds
GUARD_LATENESS = 0.003  # seconds from its fork to its first step
RECORDED = {name: recorded(store.backend) for name, store in STORES.items()}


class Forgotten(NamedTuple):
    """What an operator did with a name that was not to be used for so long."""

    asked: float
    answered: float
    older_than: float
    done: bool


class Revoked(NamedTuple):
    """What an operator did: to whom, and what was answered."""

    owner: str | None
    token: int | None
    asked: float
    now: bool
    done: bool = False
    answered: float = INFINITE
    floor: int = 0  # the smallest token that may come after that, as is said
    stays: bool = False  # whether the server had something of its owner then
    seen: float = 0.0  # when this one was


class History:
    """One history; :meth:`run` lets it happen."""

    def __init__(self, plan: Plan, *, telling: bool = False) -> None:
        self.plan = plan
        self.world = Here.world = World(plan.seed, telling=telling)
        self.network = Network(plan)
        self.system = System()
        self.wrong: list[str] = self.world.bugs
        self.store = STORES[plan.store]
        self.servers: list[Server] = self.store.servers(plan.rates[-1])
        if any(each.kind == "expired" for each in plan.faults):
            for server in self.servers:
                server.login = 0
        watched = any((each.kind, each.more) == ("failover", SENTINELS) for each in plan.faults)
        for server in self.servers if watched else ():
            assert isinstance(server, RedisServer)
            server.is_watched = True
        self.marks = MarkServer(self.network, plan)
        self.world.connect, self.world.open_socket = self._connect, self._open_socket
        self.capabilities = self.store.backend.capabilities
        self.backend = RECORDED[plan.store]
        self.records = [RunRecord(number, each) for number, each in enumerate(plan.runs)]
        self.revoked: list[Revoked] = []
        self.looks: list[tuple[float, float, LockInfo]] = []  # when it was asked for and answered, and what was shown
        self.listed: list[tuple[float, float, LockInfo]] = []  # the same of looks at all locks
        self.unused: list[tuple[float, float]] = []  # when it was asked for and answered that the lock is not used
        self.forgets: list[Forgotten] = []
        self.left_of_forgotten: tuple[Any, ...] = ()  # its history and its success, where nothing went wrong
        self.there: list[tuple[float, set[str]]] = []  # whose locks and places there were as a run began or ended
        self.sessions_left = 0  # of a server, or leases, soon after the last run
        self.remembered: dict[str, tuple[Run, ...]] = {}  # by lock: its history, where no server was away
        self.programs: list[Program | Flock | Other] = []  # that are not lockctl
        self._jobs: dict[Process, RunRecord] = {}
        self._descriptors: list[Any] = []

    def run(self) -> None:
        """From the first start to the time when every lease is over."""
        modules.Child.make = lambda process: Job(self._jobs[process], process, is_command=True)
        registry = SimpleNamespace(
            capabilities_of=lambda _: self.capabilities, open_backend=lambda url, *_: url(), load_more=lambda *_: None
        )
        modules.put(runner, "registry", registry)
        world = self.world
        for record in self.records:
            world.at(record.plan.start, self._start, record)
        for fault in self.plan.faults:
            world.at(fault.at, self._apply, fault)
        self.drained = world.run(self.horizon())
        self.left_at_end = self._owners()
        kinds = {each.kind for each in self.plan.faults}
        if self.plan.slowest <= NEAR and (kinds == {"forget"} or kinds <= REPEATING):
            self.network.hosts[0].faults = {}  # those that are left are of messages that the runs did not send
            reader = Process(self.system, "reader", self.network.hosts[0].clock, None)
            reader.start(self._read_forgotten if "forget" in kinds else self._read_histories)
            world.run(world.now + 2 * ASK_TIMEOUT)
        world.now += 2 * max(each.ttl + each.min_hold for each in self.plan.runs)
        self.left_for_ever = self._owners()
        self.rubbish = rubbish.left_in(self.servers)
        self._descriptors = list(world.descriptors.values())
        world.end()
        for record in self.records:
            record.close()

    def forget(self) -> None:
        """Take apart what refers to each other, when nobody asks for it any more: it would wait for the collector."""
        parts = (*self._descriptors, *self.system.processes.values(), *self.records, *self.servers, self.world, self)
        for each in parts:
            vars(each).clear()

    def _owners(self) -> set[str]:
        """Whose locks, and places in queues, are there."""
        return set().union(*(self.store.owners(self.servers, name) for name in self.plan.locks))

    def _connect(self, clock: Clock, name: str, deadline: Deadline, where: str) -> Any:
        host, server = self._ends(clock, name)
        assert isinstance(server, streams.StreamServer)
        return streams.connected(self.network, host, server, deadline, where)

    def _open_socket(self, process: Process, name: str, patience: float) -> sockets.Socket:
        host, server = self._ends(process.clock, name)
        assert isinstance(server, sockets.SocketServer)
        socket = sockets.Socket(self.network, host, server, name, patience)
        process.receive(socket)
        return socket

    def _ends(self, clock: Clock, name: str) -> tuple[Host, Server]:
        return self.network.host_of(clock), next(server for server in self.servers if server.name == name)

    def horizon(self) -> float:
        """When all must be over."""
        faults = sum(
            abs(each.value)
            for each in self.plan.faults
            if abs(each.value) < INFINITE and each.kind not in ("wrong", "power")
        )
        runs = self.plan.runs
        longest = max(each.start + each.wait + 4 * each.ttl for each in runs) + sum(each.length for each in runs)
        longest += 2 * sum(each.dying for each in runs)
        return longest + 2 * faults + 100 * self.plan.slowest + 90.0

    def backend_at(self, host: Host) -> Any:
        """A client."""
        return self.store.client(self.backend, self.network, host, self.servers)

    def _start(self, record: RunRecord) -> None:
        plan = record.plan
        host = self.network.hosts[plan.host]
        keeper = Process(self.system, f"{record.name}, keeper", host.clock, None)
        keeper.reaps = True
        record.keeper = keeper
        for fault in self.plan.faults:
            if fault.kind == "stop" and fault.whom == record.number and fault.more != GUARD:
                keeper.will_meet(fault)
        self.world.tell(record.name, f"starts on {host.name}")
        self.there.append((self.world.now, self._owners()))
        keeper.start(lambda: self._keep(record, host))

    def _keep(self, record: RunRecord, host: Host) -> None:
        """What the process of `lockctl run` does."""
        world, keeper = self.world, record.keeper
        assert keeper is not None

        def note(_: str, text: str, *__: object, **___: object) -> None:
            record.said.append(text)
            if text.startswith("acquired"):
                record.ordered, record.kept_at_first = world.now, dict(record.kept)
            world.tell(f"{record.name}, keeper", text)

        signals = modules.Signals()
        mine, its = channel.pair()
        keeper.owned.append(world.descriptors[mine.fileno])
        process = self._fork_guard(record, its)
        handle = GuardProcess(process.pid, mine, on_terminal=self._is_on_terminal(record), strangers=frozenset())

        def client() -> Any:
            backend = self.backend_at(host)
            backend.record, backend.wrong = record, self.wrong
            backend.seen, backend.there = lambda: self.store.seen(self.servers), self._owners
            backend.parts = lambda: self._part(host)
            return backend

        try:
            record.outcome = runner.run(self._request(record, host, client), handle, signals, note, self._begin_wait)
            world.tell(record.name, f"is over: {record.outcome.kind} {record.outcome.detail}")
        except LockctlError as failure:
            record.failure = f"{type(failure).__name__}: {failure}"
            world.tell(record.name, f"fails: {record.failure}")
        handle.dismiss()
        record.ended = world.now
        there = self._owners()
        record.left = record.owners.keys() & there
        self.there.append((world.now, there))
        if self.plan.store == "redlock":
            world.at(world.now + LEAVING, self._look_at_nodes, record)
        if all(each.ended < INFINITE for each in self.records):
            world.at(world.now + LEAVING + 20 * self.plan.slowest, self._count_sessions)

    def _part(self, host: Host) -> None:
        """Cut a host off that gives something back."""
        host.gives_back += 1
        for fault in self.plan.faults:
            if (fault.kind, fault.whom, fault.at) == ("parted", host.number, host.gives_back):
                begin = self.world.now + SOON * self.plan.slowest * self.world.chance() ** 2
                host.cuts.append((begin, begin + fault.value, fault.more))

    def _look_at_nodes(self, record: RunRecord) -> None:
        nodes = [self.store.owners([each], name) for each in self.servers for name in record.plan.locks]
        record.on_nodes = record.owners.keys() & set().union(*nodes)

    def _is_on_terminal(self, record: RunRecord) -> bool:
        return any((each.kind, each.whom) == ("halt", record.number) for each in self.plan.faults)

    def _halt(self, record: RunRecord, seconds: float, *, by_signal: bool) -> None:
        """The command of a run is stopped on its terminal, and continued there; its keeper follows it.

        With *by_signal* the keeper alone is told to go on, and tells the command.
        """
        command = next((process for process, of in self._jobs.items() if of is record), None)
        if command is None or record.keeper is None:
            return
        record.keeper.suspended_until = self.world.now + seconds
        for job in command.children:
            if isinstance(job, Job):
                job.halt(seconds, by_signal=by_signal)
        if by_signal:
            self.world.at(self.world.now + seconds + MOMENT, record.keeper.take, int(SIGCONT), 0, 1)

    def _count_sessions(self) -> None:
        self.sessions_left = self.store.sessions(self.servers)

    @staticmethod
    def _begin_wait(_: object) -> Any:
        return lambda: None

    def _request(self, record: RunRecord, host: Host, client: Any) -> Request:
        plan = record.plan
        return Request(
            locks=plan.locks,
            words=("job",),
            url=client,
            host=host.name,
            user="ops",
            schedule=schedule_of(plan.ttl, plan.kill_after, self.capabilities),
            wait=plan.wait,
            splay=0.0,
            first_signal=plan.first_signal,
            leftover="leave" if plan.leaves_rest else "wait" if plan.waits_for_rest else "kill",
            kill_on_loss=plan.kills_on_loss,
            contain="no",
            max_runtime=plan.max_runtime,
            correctness=False,
            run_unlocked=False,
            mode=plan.mode,
            slots=plan.slots,
            min_hold=plan.min_hold,
            once_per=plan.once_per,
            fence=plan.locks[0] if plan.fence else None,
            labels=(),
            says_holder=False,
            pgoptions="",
        )

    def _fork_guard(self, record: RunRecord, link: channel.Channel) -> Process:
        world, keeper = self.world, record.keeper
        assert keeper is not None
        process = record.guard = Process(self.system, f"{record.name}, guard", keeper.clock, keeper)
        self._jobs[process] = record
        process.owned.append(world.descriptors[link.fileno])
        for fault in self.plan.faults:
            if fault.kind == "stop" and fault.whom == record.number and fault.more == GUARD:
                process.will_meet(fault)

        def note(_: str, text: str, *__: object, **___: object) -> None:
            world.tell(process.name, text)

        def body() -> None:
            signals = modules.Signals()
            on_terminal = self._is_on_terminal(record)
            start = starting.Starting(link, signals, ("job",), None, on_terminal=on_terminal)
            guard.Guard(link, start, note, on_terminal=on_terminal).run({})

        world.at(world.now + GUARD_LATENESS * world.chance(), process.start, body)
        return process

    def _stop(self, fault: Fault) -> None:
        """A process of a run is stopped, or ended."""
        record = self.records[fault.whom]
        helper = record.helper
        process = {GUARD: record.guard, HELPER: helper, PARKED: record.parked}.get(fault.more, record.keeper)
        if fault.more == HELPER:
            record.stopped_waiting.clear()  # it frees nothing in time for a keeper that is stopped
        elif process is record.keeper and helper is not None and not helper.stopped:
            record.stopped_waiting.add(self.world.now)
        if process is not None and not (fault.more == PARKED and record.ordered < INFINITE):
            process.meet(fault)

    def _apply(self, fault: Fault) -> None:
        """What happens at a time, and not at a step or to a message."""
        kind = fault.kind
        if kind == "pause":
            self._stop(fault)
        elif kind in ("down", "jump", "busy"):
            self._apply_to_server(fault, self.servers[fault.whom % len(self.servers)])
        elif kind in ("deposed", "removed", "ended", "winter", "expired", "failover"):
            self._apply_to_server(fault, self.servers[0])
        elif kind == "sleep":
            self._put_to_sleep(self.network.hosts[fault.whom], fault.value)
        elif kind == "wrong":
            self.network.hosts[fault.whom].clock.wall_base += fault.value
        elif kind == "replaced":
            database = self.servers[0]
            assert isinstance(database, Database)
            database.replace()
        elif kind == "power":
            self._lose_power(fault)
        elif kind == "emptied":
            server = self.servers[0]
            assert isinstance(server, (CellServer, ObjectServer))
            if not self.store.owners(self.servers, LOCK):
                self.world.tell(server.name, "somebody removes the lock")
                server.drop(f"lock:{LOCK}")
        elif kind in ("threads", "halt", "signal"):
            self._apply_to_run(fault, self.records[fault.whom])
        elif kind == "table":
            server = self.servers[0]
            assert isinstance(server, PostgresServer)
            server.lock_tables(fault.value)
        elif kind == "other":
            self._start_another(fault.value, by_force=fault.more > 0)
        elif kind in ("revoke", "forget", "look"):
            host = self.network.hosts[fault.whom]
            operator = Process(self.system, f"operator on {host.name}", host.clock, None)
            does = {"revoke": self._revoke, "forget": self._forget, "look": self._look}[kind]
            operator.start(lambda: does(fault, host))

    def _apply_to_run(self, fault: Fault, record: RunRecord) -> None:
        if fault.kind == "signal":
            self._signal(record, int(fault.value))
        elif fault.kind == "halt":
            self._halt(record, fault.value, by_signal=fault.more == BY_SIGNAL)
        elif record.keeper is not None:
            record.keeper.threadless_until = self.world.now + fault.value
            record.keeper.full_until = record.keeper.threadless_until if fault.more == DESCRIPTORS else 0.0

    def _apply_to_server(self, fault: Fault, server: Server) -> None:
        world, kind = self.world, fault.kind
        if kind == "down":
            old = server.memory() if fault.more == OLD else None
            if fault.more == KEPT:
                server.fail(fault.value, fault.more, None)
            else:
                world.at(world.now + OLDER, server.fail, max(fault.value, OLDER), fault.more, old)
        elif kind == "jump":
            world.tell("server", f"its wall clock jumps by {fault.value:.3f} s")
            server.clock.wall_base += fault.value
        elif kind == "failover":
            assert isinstance(server, RedisServer)
            server.hand_over(fault.value)
        elif kind == "busy":
            server.be_busy(fault.value, denies=fault.more == DENIED)
        elif kind == "expired":
            world.tell(server.name, f"accepts the credentials no more; others are to be had in {fault.value:.3f} s")
            server.expire()
            world.at(world.now + fault.value, world.renew_login, server.login)
        elif kind == "deposed":
            assert isinstance(server, (EtcdServer, MysqlServer, NatsServer))
            server.depose(self.network.hosts[fault.whom], fault.value)
        elif isinstance(server, ConsulServer):
            server.deregister(self.network.hosts[fault.whom].name)
        else:
            assert isinstance(server, (MysqlServer, PostgresServer))
            if kind == "ended":
                server.kill(self.network.hosts[fault.whom])
            elif isinstance(server, MysqlServer):
                server.twice_until = server.clock.wall()

    def _lose_power(self, fault: Fault) -> None:
        """The only host starts again, or its disk alone does."""
        world, clock, files = self.world, self.network.hosts[0].clock, self.servers[0]
        assert isinstance(files, (Files, Database))
        world.tell("the host", f"loses its power, and its wall clock moves by {fault.value:.3f} s")
        for process in list(self.system.processes.values()):
            process.end(SIGKILL)
        files.lose_power(0 if fault.more == DISK else 1)
        if fault.more != DISK:
            clock.base = -clock.rate * world.now
        clock.wall_base += fault.value

    def _put_to_sleep(self, host: Host, seconds: float) -> None:
        """All programs of a host stand still, and one of its clocks; what jobs do meanwhile does not matter."""
        host.clock.slept += seconds
        for process in self.system.processes.values():
            if process.clock is host.clock and not (process.dead or isinstance(process, Job)):
                process.stop(seconds)

    def _start_another(self, seconds: float, *, by_force: bool) -> None:
        """A program that is not lockctl."""
        server = self.servers[0]
        program: Program | Flock | Other
        if isinstance(server, MysqlServer):
            server.lock_rows(seconds)
            return
        if isinstance(server, Files):
            program = Flock(Process(self.system, "flock", self.network.hosts[0].clock, None), LOCK, seconds)
        elif isinstance(server, KubernetesServer):
            program = Elector(server, LOCK, seconds, by_force=by_force)
        elif isinstance(server, RedisServer):
            program = RedisClient(server, LOCK, seconds, by_force=by_force)
        elif isinstance(server, DynamoServer):
            program = LockClient(server, LOCK, seconds, by_force=by_force)
        else:
            assert isinstance(server, PostgresServer)
            program = Program(server, LOCK, seconds)
        self.programs.append(program)
        program.start()

    def _signal(self, record: RunRecord, signum: int) -> None:
        keeper = record.keeper
        if keeper is None or keeper.dead:
            return
        self.world.tell(keeper.name, f"gets signal {signum}")
        # until then, one that ends no wait is not heeded
        if record.ordered < INFINITE and record.outcome is None and (record.command_status is None or record.living()):
            record.passed_on = self.world.now
        if record.outcome is None and keeper.signals and not keeper.stopped:
            if signum in ENDS_A_WAIT:
                record.asked_to_end.append(self.world.now)
            if signum in ENDS_A_PROGRAM:
                record.told_to_end.append(self.world.now)
        keeper.take(signum, 0, 1)

    def _seen(self, backend: Any) -> LockInfo:
        asked = self.world.now
        info: LockInfo = backend.inspect(LOCK, timeout=ASK_TIMEOUT)
        self.looks.append((asked, self.world.now, info))
        return info

    def _look(self, fault: Fault, host: Host) -> None:
        backend = self._operators(host)
        try:
            if fault.value:
                self._list(backend)
            else:
                self.world.tell("operator", f"sees {len(self._seen(backend).holders)} holders")
        except LockctlError as failure:
            self.world.tell("operator", f"fails: {failure}")

    def _list(self, backend: Any) -> None:
        asked, free = self.world.now, lock_info(self.capabilities.scheme, "", LOCK, LOCK, (), None)
        found = {each.name: each for each in backend.list("night*", timeout=ASK_TIMEOUT)}
        self.listed.append((asked, self.world.now, found.get(LOCK, free)))
        self.world.tell("operator", f"has a list with {len(self.listed[-1][2].holders)} holders of the lock")
        asked = self.world.now
        if LOCK in dict(backend.unused("*", older_than=0.0, timeout=ASK_TIMEOUT)):
            self.unused.append((asked, self.world.now))

    def _revoke(self, fault: Fault, host: Host) -> None:
        backend = self._operators(host)
        try:
            holders = self._seen(backend).holders
            if not holders:
                return
            self.world.tell("operator", f"sees the holder with token {holders[0].token}")
            seen = self.world.now
            modules.TIME.sleep(fault.value)
            asked, now = self.world.now, bool(fault.more)
            number = len(self.revoked)
            self.revoked.append(Revoked(holders[0].owner, holders[0].token, asked, now, seen=seen))
            answer = backend.revoke(
                LOCK, holders[0], Revocation(now=now, by="ops", reason="why not"), timeout=ASK_TIMEOUT
            )
            self.world.tell("operator", f"{'frees the lock' if now else 'asks for the lock'}: {answer}")
            done = self.revoked[number]._replace(done=answer is not None, answered=self.world.now, floor=answer or 0)
            self.revoked[number] = done._replace(stays=holders[0].owner in self._owners())
        except LockctlError as failure:
            self.world.tell("operator", f"fails: {failure}")

    def _forget(self, fault: Fault, host: Host) -> None:
        if fault.more:
            self._forget_others(fault, host)
            return
        asked = self.world.now
        try:
            done = self._operators(host).forget(LOCK, older_than=fault.value, timeout=ASK_TIMEOUT)
            self.forgets.append(Forgotten(asked, self.world.now, fault.value, done))
            self.world.tell("operator", f"forgets the lock: {done}")
        except LockctlError as failure:
            self.world.tell("operator", f"fails: {failure}")

    def _forget_others(self, fault: Fault, host: Host) -> None:
        for name in self.plan.locks:
            try:
                if name != LOCK:
                    done = self._operators(host).forget(name, older_than=fault.value, timeout=ASK_TIMEOUT)
                    self.world.tell("operator", f"forgets {name}: {done}")
            except LockctlError as failure:
                self.world.tell("operator", f"fails: {failure}")

    def _read_histories(self) -> None:
        backend = self._operators(self.network.hosts[0])
        for name in self.plan.locks:
            self.remembered[name] = backend.history(name, timeout=ASK_TIMEOUT)

    def _read_forgotten(self) -> None:
        backend = self._operators(self.network.hosts[0])
        success = backend.last_success(LOCK, timeout=ASK_TIMEOUT)
        self.left_of_forgotten = backend.history(LOCK, timeout=ASK_TIMEOUT), success

    def _operators(self, host: Host) -> Any:
        return self.store.client(self.store.backend, self.network, host, self.servers)
