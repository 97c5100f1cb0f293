"""The clocks, by what they count. All times are floats in seconds.

A lease at a server runs on while this machine is suspended, so its deadline is kept on
``CLOCK_BOOTTIME``. A lock that the kernel frees with its last holder cannot be lost in a suspend:
its watch is kept on ``CLOCK_MONOTONIC``, or every laptop lid would stop jobs that hold their lock.
"""

from __future__ import annotations

import time

BOOTTIME = 7  # CLOCK_BOOTTIME of <linux/time.h>, also the clock id that timerfd_create takes
MONOTONIC = 1  # CLOCK_MONOTONIC


class Clock:
    """One clock of the kernel; call it for the time now, in seconds."""

    __slots__ = ("clock_id",)

    def __init__(self, clock_id: int) -> None:
        """Use the clock with this kernel id."""
        self.clock_id = clock_id

    def __call__(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        return time.clock_gettime(self.clock_id)


boottime = Clock(BOOTTIME)
monotonic = Clock(MONOTONIC)


def ahead_of_host() -> float:
    """By how many seconds ``boottime`` is ahead of what it is for the host: the offset of a time namespace.

    Less it, all containers of a host read the same. See time_namespaces(7); a kernel without these has no such file.
    """
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            for line in file:
                name, seconds, nanoseconds = line.split()
                if name == "boottime":
                    return int(seconds) + int(nanoseconds) / 1_000_000_000
    except FileNotFoundError:
        pass
    return 0.0


def wall() -> float:
    """Seconds since the epoch: for people and for the floor of tokens, never for a deadline."""
    return time.time()


def pause(seconds: float, interrupt: int | None = None) -> bool:
    """Let so many *seconds* pass; whether the descriptor *interrupt* became readable, which ends it at once."""
    import select  # few have to

    poll = select.poll()
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def utc(seconds: float) -> str:
    """A point of wall-clock time as RFC 3339 in UTC with milliseconds (``2026-11-20T02:00:00.123Z``)."""
    parts = time.gmtime(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int(seconds * 1000) % 1000:03d}Z"
