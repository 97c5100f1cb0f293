"""Messages between hosts and servers, and what becomes of them; servers that are down and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockctl.wire.deadline import READABLE
from tests.simulation.plan import ANSWER, BOTH, KEPT, LOST, REQUEST
from tests.simulation.system import Pipe
from tests.simulation.world import Clock, Here

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline
    from tests.simulation.plan import Fault, Plan

SLOW = 3.0  # seconds for which a network stays slow
WAYS = ("request", "answer")
REFUSED = object()  # the answer of a host on which no server runs


class Host:
    """A machine with clients."""

    def __init__(self, number: int, rate: float) -> None:
        chance = Here.world.chance
        self.number = number
        self.name = f"host {'abcdef'[number]}"
        self.clock = Clock(rate, 1000 + 1000 * chance(), 1.8e9 + 1000 * (chance() - 0.5))
        self.sent = [0, 0]
        self.cuts: list[tuple[float, float, int]] = []
        self.slows: list[Fault] = []
        self.faults: dict[tuple[int, int], Fault] = {}  # by way and number of the message
        self.gives_back = 0  # requests for that which its runs have sent
        self.names_others = False  # whether its URL has other names of the servers


class Network:
    """Carries messages, with the faults of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._fastest, self._spread = plan.fastest, plan.slowest - plan.fastest
        self.hosts = [Host(number, rate) for number, rate in enumerate(plan.rates[:-1])]
        for fault in plan.faults:
            if fault.kind in ("lose", "late", "twice"):
                self.hosts[fault.whom].faults[fault.more, int(fault.at)] = fault
            elif fault.kind == "renamed":
                self.hosts[fault.whom].names_others = True
            elif fault.kind == "slow":
                self.hosts[fault.whom].slows.append(fault)
            elif fault.kind == "cut":
                self.hosts[fault.whom].cuts.append((fault.at, fault.at + fault.value, fault.more))

    def host_of(self, clock: Clock) -> Host:
        """The host with this clock, on which a process runs that has it."""
        return next(host for host in self.hosts if host.clock is clock)

    def carry(
        self, host: Host, way: int, what: tuple[Any, ...], arrive: Callable[..., object], *arguments: Any
    ) -> bool:
        """One message: it arrives, late, twice or not at all; whether it is on its way."""
        world = Here.world
        number = host.sent[way]
        host.sent[way] = number + 1
        now = world.now
        for begin, end, cut in host.cuts:
            if begin <= now < end and cut in (way, BOTH):
                world.tell(host.name, f"{WAYS[way]} {number} is lost in a cut network: {what[:2]}")
                return False
        due = now + self._fastest + self._spread * world.chance()
        for slow in host.slows:
            if slow.more == way and slow.at <= now < slow.at + SLOW:
                due += slow.value
        fault = host.faults.get((way, number)) if host.faults else None
        if fault is not None:
            world.tell(host.name, f"{WAYS[way]} {number}: {fault.kind} ({fault.value:.3f} s): {what[:2]}")
            if fault.kind == "lose":
                return False
            if world.telling:
                again = "again" if fault.kind == "twice" else "late"
                world.at(due + fault.value, world.tell, host.name, f"{WAYS[way]} {number} arrives {again}: {what[:2]}")
            if fault.kind == "late":
                due += fault.value
            else:
                world.at(due + fault.value, arrive, *arguments)
        world.at(due, arrive, *arguments)
        return True


REFUSING = 0.8  # part of what is asked that a busy server refuses
DOING = 0.3  # part of that which it has done, or does all the same

# seconds by which the wall clocks of the servers of one store differ
WRONG_BY = (0.0, 20.0, -20.0, 5.0, -5.0)


class Server:
    """A server with a clock, that is down at times. Subclasses answer requests and keep a memory."""

    def __init__(self, number: int, rate: float) -> None:
        self.number = number
        self.name = "server" if number == 0 else f"server {number}"
        self.clock = Clock(rate, 5000.0, 1.8e9 + WRONG_BY[number])
        self.up = True
        self.went_down: list[float] = []
        self.untold: list[float] = []  # when it did what was asked, and hung up without an answer
        self.cut_off: list[float] = []  # when connections were ended there
        self.elected: list[float] = []  # when it became the leader of several
        self.tells = False  # its clients, when it goes down
        self.refuses = False  # who connects while it is down
        self.ever_forgot: list[float] = []  # when it came back without all that it had
        self.busy_until = 0.0  # true time: before, it refuses most of what it is asked, if it can say so
        self.denies = False  # because we may not ask, and not because it has too much to do
        self.login: int | None = None  # number of the credentials that it accepts; None: any, or none

    def expire(self) -> None:
        """Accept the credentials of before no more."""
        self.login = (self.login or 0) + 1

    def be_busy(self, seconds: float, *, denies: bool) -> None:
        """Refuse most of what is asked for so long, and tell nothing else but that."""
        Here.world.tell(self.name, f"is busy for {seconds:.3f} s")
        self.busy_until, self.denies = Here.world.now + seconds, denies

    def refuses_now(self) -> bool:
        """Whether it is too busy for a request that has come."""
        return Here.world.now < self.busy_until and Here.world.chance() < REFUSING

    def answer(self, request: Any) -> Any:
        """What it answers."""
        raise NotImplementedError

    def memory(self) -> Any:
        """A copy of all that it knows."""
        raise NotImplementedError

    def remember(self, memory: Any) -> None:
        """Know that and nothing else; ``None``: nothing at all."""
        raise NotImplementedError

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """Go down, and come back with what was *kept*."""
        world = Here.world
        world.tell(self.name, f"goes down for {seconds:.3f} s")
        self.up = False
        self.went_down.append(world.now)
        world.at(world.now + seconds, self._come_back, kept, old)

    def _come_back(self, kept: int, old: Any) -> None:
        if kept != KEPT:
            self.ever_forgot.append(Here.world.now)
            self.remember(None if kept == LOST else old)
        Here.world.tell(self.name, ("is back", "is back, empty", "is back with old data")[kept])
        self.up = True


class Call(Pipe):
    """A request that waits for its answer."""

    answer: Any = None

    def come(self, answer: Any) -> None:
        """The answer is there; only the first one counts."""
        if not self.content:
            self.answer, self.content = answer, 1
            self.changed()


def ask(network: Network, host: Host, server: Server, request: Any, deadline: Deadline, where: str) -> Any:
    """The answer of a server to one request; raises as ``Deadline.wait`` does."""
    call = Call()
    deadline.check(where)

    def arrive() -> None:
        if server.up:
            answer = server.answer(request)
            network.carry(host, ANSWER, request, call.come, answer)
        elif server.refuses:
            network.carry(host, ANSWER, request, call.come, REFUSED)
        else:
            Here.world.tell(server.name, f"is down: {request[:2]}")

    network.carry(host, REQUEST, request, arrive)
    deadline.wait(call.number, READABLE, where)
    return call.answer
