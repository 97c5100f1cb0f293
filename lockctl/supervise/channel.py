"""The channel between keeper and guard: whole frames over a socket pair, and descriptors beside them.

A frame is one letter and a payload. The kernel keeps frames whole and in order; the end of one side
is seen by the other as an empty frame, however that side ended.
"""

from __future__ import annotations

import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from _socket import socket
    from collections.abc import Iterable

MOST_DESCRIPTORS = 200  # beside one frame; the kernel's limit is 253
ROOM_BESIDE = 64 + 4 * MOST_DESCRIPTORS

# keeper to guard
START = b"S"  # environment, NUL-separated; the descriptors of the locks beside it, if they have any
DEADLINE = b"D"  # nanoseconds
STOP = b"X"  # cause, and "!" before it when without grace
SIGNAL = b"F"  # number, and how many stops of the command its sender knew of
DISMISSED = b"Q"  # the guard is not needed any more: the keeper is awake and releases the lock itself
# guard to keeper
STARTED = b"P"  # pid of the command
FAILED = b"E"  # errno of the exec that failed
ACK = b"A"  # nanoseconds: this deadline is now the guard's
HALTED = b"T"  # the command was stopped: the signal, and how often it was stopped by now
LEFTOVERS = b"L"  # how many processes outlived the command and are being stopped
UNHELD = b"U"  # the connection that held the lock has ended: the job is being stopped
CAUSE = b"C"  # why the job is being stopped, said before the first signal; the last one counts
ENDED = b"W"  # status of the command
FINISHED = b"G"  # no process of the job is left


class Channel:
    """One end. Sending never blocks; receiving gives what is there."""

    def __init__(self, end: socket) -> None:
        """Take over one end of a pair."""
        self._end = end
        self.fileno = end.fileno()
        self.open = True

    def send(self, kind: bytes, payload: bytes = b"", descriptors: tuple[int, ...] = ()) -> bool:
        """Send one frame; ``False`` when the other side is gone or does not read."""
        beside = []
        if descriptors:
            numbers = b"".join([descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors])
            beside.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers))
        try:
            self._end.sendmsg([kind + payload], beside, _socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def receive(self) -> list[tuple[bytes, bytes, tuple[int, ...]]]:
        """All waiting frames as (kind, payload, descriptors); :attr:`open` turns false at the end."""
        frames = []
        while self.open:
            try:
                # its length first: room for the largest would take longer to get than all the rest
                length = self._end.recv_into(bytearray(1), 1, _socket.MSG_PEEK | _socket.MSG_TRUNC)
                data, beside, _, _ = self._end.recvmsg(length, ROOM_BESIDE, _socket.MSG_CMSG_CLOEXEC)
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
            frames.append((data[:1], data[1:], descriptors))
        return frames

    def close(self) -> None:
        """Close this end; the other side sees it."""
        self.open = False
        self._end.close()


def pair() -> tuple[Channel, Channel]:
    """Two connected ends, not inherited by the command."""
    kind = _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK
    one, other = _socket.socketpair(_socket.AF_UNIX, kind)
    for end in (one, other):
        os.set_inheritable(end.fileno(), False)
    return Channel(one), Channel(other)


def number(value: float) -> bytes:
    """A time or count as a payload: seconds become whole nanoseconds."""
    return b"%d" % int(value * 1_000_000_000)


def seconds(payload: bytes) -> float:
    """The time in a payload."""
    return int(payload) / 1_000_000_000


def watch_ends(poll: select.poll, connections: Iterable[int]) -> None:
    """Have *poll* tell when the other side of one of these connections sends no more."""
    import select  # not needed before there is something to poll

    for descriptor in connections:
        poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
