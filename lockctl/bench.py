"""How quick the locks of a backend are here: one who has no rival, then several who want the same lock.

Each measures in a process of its own and tells what it saw through a pipe. It takes its locks as a run does, by
``lease.acquire``, and on a signal it leaves no trace, like a run that waits.
"""

from __future__ import annotations

import os
import select
from itertools import pairwise
from signal import SIG_SETMASK, SIGINT, SIGTERM, pthread_sigmask

from lockctl import kernel, registry
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, LockctlError
from lockctl.lease.acquire import acquire
from lockctl.lease.schedule import plan
from lockctl.model import Claim
from lockctl.supervise.signals import Signals
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Grant
    from lockctl.url import Url

    Pair = tuple[float, float]

LATENCY, CONTENTION = "latency", "contention"  # what is measured
REQUEST = 10.0  # seconds for one request
END_LIMIT = 5.0  # seconds for a process to give back its lock and end
FORGET_LIMIT = 2.0  # seconds until the name is not in use any more
READ_SIZE = 1 << 16
FAILURE = b"!"  # begins the line of an error


class Bench(Value):
    """What is to be measured, where."""

    url: Url
    name: str  # of the lock, which nobody else uses
    ttl: float
    rounds: int
    contenders: int
    seconds: float  # for which they contend


class Result(Value):
    """What was seen. All times are in seconds."""

    acquires: tuple[float, ...]
    releases: tuple[float, ...]
    handoffs: tuple[float, ...]  # from the beginning of a release to the next grant
    grants: int  # of all contenders together
    span: float  # from the first of them to the last
    forgotten: bool  # whether nothing is left of the name


def measure(bench: Bench, tell: Callable[[str, float], None]) -> Result:
    """The result; *tell* is told what is measured, and which part of that is done. Raises ``LockctlError``.

    That is also ``Interrupted``, after all was given back.
    """
    signals = Signals()  # a signal is read where all is given back, and not in the middle of something
    try:
        alone = []
        for pair in _pairs([_start(bench, _alone)], signals):
            alone.append(pair)
            tell(LATENCY, len(alone) / bench.rounds)
        until = boottime() + bench.seconds
        held = []
        for pair in _pairs([_start(bench, _contend, until) for _ in range(bench.contenders)], signals):
            held.append(pair)
            tell(CONTENTION, min(1.0, 1 - (until - boottime()) / bench.seconds))
    finally:
        forgotten = _forget(bench)
        os.close(signals.descriptor)
        pthread_sigmask(SIG_SETMASK, signals.original_mask)
    held.sort()
    return Result(
        acquires=tuple(pair[0] for pair in alone),
        releases=tuple(pair[1] for pair in alone),
        handoffs=tuple(later[0] - earlier[1] for earlier, later in pairwise(held)),
        grants=len(held),
        span=held[-1][1] - held[0][0] if held else 0.0,
        forgotten=forgotten,
    )


def percentile(times: tuple[float, ...], part: float) -> float | None:
    """The time that this *part* of all does not exceed; ``None`` if there are none."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def _alone(bench: Bench, backend: Backend, signals: Signals) -> Iterator[Pair]:
    """How long each acquire and each release took."""
    for _ in range(bench.rounds):
        began = boottime()
        held = _take(bench, backend, signals, 0.0)
        if held is None:
            raise BackendUnavailable(f"the lock {bench.name} was refused, although nobody else uses it")
        taken = boottime()
        backend.release(held, timeout=REQUEST)
        yield taken - began, boottime() - taken


def _contend(bench: Bench, backend: Backend, signals: Signals, until: float) -> Iterator[Pair]:
    """When the lock was granted, and when its release began."""
    while (left := until - boottime()) > 0:
        held = _take(bench, backend, signals, left)
        if held is None:
            return
        taken = boottime()
        backend.release(held, timeout=REQUEST)
        yield taken, taken


def _take(bench: Bench, backend: Backend, signals: Signals, wait: float) -> Grant | None:
    schedule: Schedule = plan(bench.ttl, None, backend.capabilities)
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


def _start(bench: Bench, work: Callable[..., Iterator[Pair]], *more: float) -> tuple[int, int]:
    """A process that does the *work*: its pid, and where it writes two numbers for each lock it had."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = 1
    try:
        signals = Signals()
        kernel.set_death_signal(SIGTERM)
        backend = registry.open_backend(bench.url)
        for one, other in work(bench, backend, signals, *more):
            os.write(writing, b"%r %r\n" % (one, other))
        backend.close()
        status = 0
    except Interrupted:
        pass
    except BrokenPipeError:
        pass  # nobody wants to know any more
    except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits for it
        os.write(writing, FAILURE + f"{type(error).__name__} {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _pairs(processes: list[tuple[int, int]], signals: Signals) -> Iterator[Pair]:
    """The numbers of all processes as they come. Afterwards none of them is left.

    Raises the first error, ``Interrupted``.
    """
    rest = {reading: b"" for _, reading in processes}
    poller = select.poll()
    for reading in (signals.descriptor, *rest):
        poller.register(reading, select.POLLIN)
    try:
        while rest:
            ending = signals.ending()
            if ending is not None:
                raise Interrupted(ending)
            for reading, _ in poller.poll():
                if reading == signals.descriptor:
                    continue
                data = os.read(reading, READ_SIZE)
                *lines, tail = (rest[reading] + data).split(b"\n")
                for line in lines:
                    if line.startswith(FAILURE):
                        raise _error(line[1:].decode("utf-8", "replace"))
                    one, _, other = line.partition(b" ")
                    yield float(one), float(other)
                rest[reading] = tail
                if not data:
                    poller.unregister(reading)
                    del rest[reading]
    finally:
        for pid, reading in processes:
            os.close(reading)
            _end(pid)


def _error(text: str) -> Exception:
    kind, _, said = text.partition(" ")
    known = {each.__name__: each for each in (BackendUnavailable, ConfigError)}
    return known[kind](said) if kind in known else RuntimeError(text)


def _end(pid: int) -> None:
    """Have a process give back its lock and end; kill it if it does not."""
    try:
        os.kill(pid, SIGINT)
    except ProcessLookupError:
        return
    ended = kernel.process_descriptor(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    if not poller.poll(END_LIMIT * 1000):
        os.kill(pid, 9)
    os.close(ended)
    os.waitpid(pid, 0)


def _forget(bench: Bench) -> bool:
    """Leave nothing of the lock's name; whether that was done."""
    from lockctl.clock import pause

    backend = registry.open_backend(bench.url)
    until = boottime() + FORGET_LIMIT
    try:
        while True:
            backend.forget(bench.name, older_than=0.0, timeout=REQUEST)
            if not any(backend.unused(bench.name, older_than=0.0, timeout=REQUEST)):
                return not any(backend.list(bench.name, timeout=REQUEST))
            if boottime() >= until:
                return False
            pause(0.1)
    except LockctlError:
        return False
    finally:
        backend.close()
