"""The channel between keeper and guard: whole frames over a socket pair, and descriptors beside them.

A frame is its kind and the values of ``SHAPES``, encoded by ``marshal``: both ends are forks of one interpreter. The
kernel keeps frames whole and in order; the end of one side is seen by the other as an empty frame, however that side
ended. Only the two ends can write there, which the command does not inherit, so what is not a frame is a bug.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys
from errno import EIO, EMFILE

from lockctl import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from _socket import socket
    from collections.abc import Iterable
    from typing import Any

    Frame = tuple[str, tuple[Any, ...], tuple[int, ...]]  # kind, values, descriptors

MOST_DESCRIPTORS = 200  # beside one frame; the kernel's limit is 253
ROOM_BESIDE = 64 + 4 * MOST_DESCRIPTORS
LARGEST = 1 << 20  # bytes of a frame: the kernel's usual limit for one is 208 KiB

# keeper to guard
START = "start"  # orders, spans of the lease, variables; the descriptors of the locks beside it, if they have any
DEADLINE = "deadline"  # seconds
STOP = "stop"  # cause, and whether at once: without grace
SIGNAL = "signal"  # number, and how many stops of the command its sender knew of
MANNER = "manner"  # how what is noted is said: as JSON, verbose, quiet, and a second place for it
# guard to keeper
STARTED = "started"  # pid of the command
FAILED = "failed"  # errno of the exec that failed, or of what lockctl needs before it, and then a line about that
ACK = "ack"  # seconds: this deadline is now the guard's
HALTED = "halted"  # the command was stopped: the signal, and how often it was stopped by now
LEFTOVERS = "leftovers"  # how many processes outlived the command and are being stopped, and which ones for people
KILLED = "killed"  # KILL was sent to the job; later on, for people, whom it has not ended
UNHELD = "unheld"  # the connection that held the lock has ended: the job is being stopped
CAUSE = "cause"  # why the job is being stopped, said before the first signal; the last one counts
ENDED = "ended"  # status of the command
FINISHED = "finished"  # no process of the job is left; status of the command, if that was not told before
# guard to the process that becomes the command
GO = "go"  # variables; the descriptors of the locks beside it, if the command is to have them

REAL = frozenset((int, float))
NAME = frozenset((str, type(None)))
WHOLE = frozenset((int, type(None)))
VARIABLES = [bytes]  # any number of NAME=content
# the types of the values of each kind: a type or several; a list for any number of one, a tuple for one of each
SHAPES: dict[str, tuple[object, ...]] = {
    START: ((int, str, REAL | {type(None)}, bool, bool, bool, str, bool, WHOLE), [REAL], VARIABLES),
    DEADLINE: (REAL,),
    STOP: (str, bool),
    SIGNAL: (int, int),
    MANNER: (bool, bool, bool, NAME),
    STARTED: (int,),
    FAILED: (int, str),
    ACK: (REAL,),
    HALTED: (int, int),
    LEFTOVERS: (int, str),
    KILLED: (str,),
    UNHELD: (),
    CAUSE: (str,),
    ENDED: (int,),
    FINISHED: (WHOLE,),
    GO: (VARIABLES,),
}


class Channel:
    """One end. Sending never blocks; receiving gives what is there."""

    def __init__(self, end: socket) -> None:
        """Take over one end of a pair."""
        self._end = end
        self.fileno = end.fileno()
        self.open = True
        self.failure = 0

    def send(self, kind: str, *values: Any, descriptors: tuple[int, ...] = ()) -> bool:
        """Send one frame; ``False`` if it was not sent: :attr:`failure` is the errno, 0 when the other side is gone."""
        beside = []
        if descriptors:
            numbers = b"".join([descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors])
            beside.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers))
        try:
            self._end.sendmsg([marshal.dumps((kind, *values))], beside, _socket.MSG_NOSIGNAL)
        except OSError as failure:
            self.failure = 0 if isinstance(failure, ConnectionError) else failure.errno or EIO
            return False
        return True

    def receive(self) -> list[Frame]:
        """All waiting frames as (kind, values, descriptors); :attr:`open` turns false at the end.

        Raises ``ValueError`` for what is not a frame, ``OSError`` when there is no room for the descriptors beside one.
        """
        frames: list[Frame] = []
        while self.open:
            try:
                # its length first: room for the largest would take longer to get than all the rest
                length = self._end.recv_into(bytearray(1), 1, _socket.MSG_PEEK | _socket.MSG_TRUNC)
                if length > LARGEST:
                    raise ValueError(f"a frame of {length} bytes, but at most {LARGEST} are allowed")
                data, beside, flags, _ = self._end.recvmsg(length, ROOM_BESIDE, _socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except ConnectionResetError:
                continue  # it ended without reading all of ours, told once; what it had sent comes now, then the end
            if not data:
                self.open = False
                break
            numbers = beside[0][2] if beside else b""
            starts = range(0, len(numbers) // 4 * 4, 4)
            descriptors = tuple([int.from_bytes(numbers[start : start + 4], sys.byteorder) for start in starts])
            if flags & _socket.MSG_CTRUNC:  # what did not fit is gone: a job would run without its lock
                for descriptor in descriptors:
                    os.close(descriptor)
                raise OSError(EMFILE, os.strerror(EMFILE))
            frames.append((*_decoded(data), descriptors))
        return frames

    def close(self) -> None:
        """Close this end; the other side sees it."""
        self.open = False
        self._end.close()


def sockets() -> tuple[socket, socket]:
    """Two ends that keep messages whole, never block and are not inherited. Raises ``ConfigError``, ``OSError``."""
    try:
        return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_NONBLOCK)
    except OSError as failure:
        raise kernel.refusal("socketpair", failure.errno or EIO) from None


def pair() -> tuple[Channel, Channel]:
    """Two connected ends. Raises as ``sockets``."""
    one, other = sockets()
    return Channel(one), Channel(other)


def _decoded(data: bytes) -> tuple[str, tuple[Any, ...]]:
    """Kind and values of a frame; raises ``ValueError``."""
    try:
        content = marshal.loads(data)  # noqa: S302 - from the other end, which is this program
    except (EOFError, MemoryError, TypeError, ValueError):
        content = None
    if type(content) is not tuple or not content or type(content[0]) is not str:
        raise ValueError(f"not a frame: {len(data)} bytes")
    kind, values = content[0], content[1:]
    if kind not in SHAPES or not _fits(values, SHAPES[kind]):
        raise ValueError(f"not a frame: {kind[:20]!r} with {len(values)} values of wrong types")
    return kind, values


def _fits(value: object, shape: object) -> bool:
    if type(value) is shape:
        return True
    if isinstance(shape, frozenset):
        return type(value) in shape
    if isinstance(shape, list):
        return isinstance(value, tuple) and all(_fits(each, shape[0]) for each in value)
    if isinstance(shape, tuple):
        return isinstance(value, tuple) and len(value) == len(shape) and all(map(_fits, value, shape))
    return False


def watch_ends(poll: select.poll, connections: Iterable[int]) -> None:
    """Have *poll* tell when the other side of one of these connections sends no more."""
    import select  # not needed before there is something to poll

    for descriptor in connections:
        poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
