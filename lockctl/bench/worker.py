"""One process that takes a lock again and again, and tells how long that took.

It takes its locks as a run does, by ``lease.acquire``, and on a signal it leaves no trace, like a run that waits.
"""

from __future__ import annotations

import os
import select
import socket
from signal import SIGTERM

from lockctl import kernel, registry
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted
from lockctl.lease.acquire import acquire
from lockctl.lease.schedule import plan
from lockctl.model import Claim, Grant
from lockctl.supervise.signals import Signals
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from lockctl.url import Url

    Pair = tuple[float, float]

REQUEST = 10.0  # seconds for one request
READ_SIZE = 1 << 16
READY = b"+"  # the line of a process that can begin
FAILURE = b"!"  # begins the line of an error
TOLD = (BackendUnavailable, ConfigError)  # the kinds of errors that are raised again as what they are


class Bench(Value):
    """What is to be measured, where."""

    url: Url
    name: str  # of the lock, which nobody else uses
    ttl: float
    rounds: int
    contenders: int
    seconds: float  # for which they contend


def start(bench: Bench, work: Callable[..., Iterator[Pair]]) -> tuple[int, socket.socket]:
    """A process that does the *work*: its pid, and the connection to it.

    It says when it is ready, is told when it is the beginning, and says two numbers for each lock that it had.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    status = 1
    try:
        signals = Signals()
        kernel.set_death_signal(SIGTERM)
        backend = registry.open_backend(bench.url, signals.descriptor, signals.ending)
        backend.inspect(bench.name, timeout=REQUEST)  # loads what it needs, and connects
        theirs.sendall(READY + b"\n")
        for one, other in work(bench, backend, signals, _beginning(theirs, signals)):
            theirs.sendall(b"%r %r\n" % (one, other))
        backend.close()
        status = 0
    except (Interrupted, BrokenPipeError):
        pass  # nobody wants to know any more
    except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits for it
        kind = next((each for each in TOLD if isinstance(error, each)), type(error))
        theirs.sendall(FAILURE + f"{kind.__name__} {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _beginning(connection: socket.socket, signals: Signals) -> float:
    poller = select.poll()
    for number in (connection.fileno(), signals.descriptor):
        poller.register(number, select.POLLIN)
    while connection.fileno() not in dict(poller.poll()):
        ending = signals.ending()
        if ending is not None:
            raise Interrupted(ending)
    return float(connection.recv(READ_SIZE))


def alone(bench: Bench, backend: Backend, signals: Signals, _: float) -> Iterator[Pair]:
    """How long each acquire and each release took."""
    for _ in range(bench.rounds):
        began = boottime()
        held = _take(bench, backend, signals, 0.0)
        if held is None:
            raise BackendUnavailable(f"the lock {bench.name} was refused, although nobody else uses it")
        taken = boottime()
        backend.release(held, timeout=REQUEST)
        yield taken - began, boottime() - taken


def contend(bench: Bench, backend: Backend, signals: Signals, began: float) -> Iterator[Pair]:
    """When the lock was granted, and when its release began."""
    until = began + bench.seconds
    while (left := until - boottime()) > 0:
        held = _take(bench, backend, signals, left)
        if held is None:
            return
        taken = boottime()
        backend.release(held, timeout=REQUEST)
        yield taken, taken


def _take(bench: Bench, backend: Backend, signals: Signals, wait: float) -> Grant | None:
    schedule = plan(bench.ttl, None, backend.capabilities)
    claim = Claim(
        name=bench.name,
        owner=os.urandom(16).hex(),
        ttl=bench.ttl,
        host=os.uname().nodename,
        pid=os.getpid(),
        user="",
        command=("lockctl", "bench"),
    )
    lease = acquire(
        backend,
        claim,
        schedule=schedule,
        wait=wait,
        now=boottime,
        interrupt=signals.descriptor,
        ending_signal=signals.ending,
    )
    return None if lease is None else lease.grant
