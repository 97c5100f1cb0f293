"""What the processes have seen, one after the other alone, and several that want the same lock."""

from __future__ import annotations

import os
import select
from itertools import pairwise
from signal import SIG_SETMASK, SIGINT, SIGKILL, pthread_sigmask

from lockctl import kernel, registry
from lockctl.bench.worker import FAILURE, READ_SIZE, READY, REQUEST, TOLD, alone, contend, start
from lockctl.clock import boottime, pause
from lockctl.errors import BackendUnavailable, Interrupted, LockctlError
from lockctl.supervise.signals import Signals
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from lockctl.bench.worker import Bench, Pair

LATENCY, CONTENTION = "latency", "contention"  # what is measured
END_LIMIT = 5.0  # seconds for processes to give back their locks and end
FORGET_LIMIT = 2.0  # seconds until the name is not in use any more, and for all of that after an interrupt


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
    limit = REQUEST
    try:
        times: list[Pair] = []
        for pair in _pairs([start(bench, alone)], signals):
            times.append(pair)
            tell(LATENCY, len(times) / bench.rounds)
        held: list[Pair] = []
        for pair in _pairs([start(bench, contend) for _ in range(bench.contenders)], signals):
            held.append(pair)
            tell(CONTENTION, min(1.0, (boottime() - held[0][0]) / bench.seconds))
    except Interrupted:
        limit = FORGET_LIMIT  # somebody waits for the end
        raise
    finally:
        os.close(signals.descriptor)
        pthread_sigmask(SIG_SETMASK, signals.original_mask)  # nobody has the lock any more: a signal ends us at once
        forgotten = _forget(bench, limit)
    held.sort()
    return Result(
        acquires=tuple(pair[0] for pair in times),
        releases=tuple(pair[1] for pair in times),
        handoffs=tuple(later[0] - earlier[1] for earlier, later in pairwise(held)),
        grants=len(held),
        span=held[-1][1] - held[0][0] if held else 0.0,
        forgotten=forgotten,
    )


def percentile(times: tuple[float, ...], part: float) -> float | None:
    """The time that this *part* of all does not exceed; ``None`` if there are none."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def _pairs(processes: list[tuple[int, socket.socket]], signals: Signals) -> Iterator[Pair]:
    """The numbers of all processes as they come. Afterwards none of them is left.

    Raises the first error, ``Interrupted``.
    """
    rest = {connection.fileno(): b"" for _, connection in processes}
    by_number = {connection.fileno(): connection for _, connection in processes}
    poller = select.poll()
    for number in (signals.descriptor, *rest):
        poller.register(number, select.POLLIN)
    unready = len(processes)
    try:
        while rest:
            ready = poller.poll()
            ending = signals.ending()  # before it is looked at who else ended by a signal to all of the group
            if ending is not None:
                raise Interrupted(ending)
            for number, _ in ready:
                if number == signals.descriptor:
                    continue
                data = by_number[number].recv(READ_SIZE)
                *lines, rest[number] = (rest[number] + data).split(b"\n")
                unready -= lines.count(READY)
                if READY in lines and not unready:
                    began = b"%r" % boottime()
                    for connection in by_number.values():
                        connection.sendall(began)
                yield from (_read(line) for line in lines if line != READY)
                if not data:
                    if unready:
                        raise BackendUnavailable("a process that was to measure has ended before it began")
                    poller.unregister(number)
                    del rest[number]
    finally:
        for _, connection in processes:
            connection.close()
        _end([pid for pid, _ in processes], signals)


def _read(line: bytes) -> Pair:
    if line.startswith(FAILURE):
        raise _error(line[1:].decode("utf-8", "replace"))
    one, _, other = line.partition(b" ")
    return float(one), float(other)


def _error(text: str) -> Exception:
    kind, _, said = text.partition(" ")
    known = {each.__name__: each for each in TOLD}
    return known[kind](said) if kind in known else RuntimeError(text)


def _end(pids: list[int], signals: Signals) -> None:
    """Have processes of ours give back their locks and end; kill those that do not, or when we are told so again."""
    for pid in pids:
        os.kill(pid, SIGINT)  # one that has ended is there until it is waited for
    until = boottime() + END_LIMIT
    for pid in pids:
        ended = kernel.process_descriptor(pid)
        poller = select.poll()
        for number in (ended, signals.descriptor):
            poller.register(number, select.POLLIN)
        while ended not in (ready := dict(poller.poll(max(0.0, until - boottime()) * 1000))):
            if not ready or signals.ending() is not None:
                until = 0.0
                os.kill(pid, SIGKILL)
                break
        os.close(ended)
        os.waitpid(pid, 0)


def _forget(bench: Bench, limit: float) -> bool:
    """Leave nothing of the lock's name; whether that was done within *limit* seconds."""
    backend = registry.open_backend(bench.url)
    began = boottime()

    def left() -> float:
        return max(0.0, began + limit - boottime())

    try:
        while True:
            backend.forget(bench.name, older_than=0.0, timeout=left())
            if not any(backend.unused(bench.name, older_than=0.0, timeout=left())):
                return not any(backend.list(bench.name, timeout=left()))
            if boottime() >= began + FORGET_LIMIT:
                return False
            pause(0.1)
    except LockctlError:
        return False
    finally:
        backend.close()
