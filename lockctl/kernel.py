"""The few system calls of Linux that Python's standard library has no binding for.

``_ctypes`` directly, because ``import ctypes`` alone costs as much as the rest of the start of ``run``;
where an interpreter lacks that private interface, ``ctypes`` serves.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
O_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK  # SFD_* and TFD_* have the same values
TFD_TIMER_ABSTIME = 1
SIGINFO_SIZE = 128  # struct signalfd_siginfo, whose layout is fixed
SIGSET_SIZE = 128  # glibc's sigset_t; the kernel reads the first 8 bytes
SI_KERNEL = 0x80  # si_code of a signal that the kernel itself sent, as for Ctrl-C on a terminal
NANOSECONDS = 1_000_000_000
NEEDED = "{} failed: lockctl needs Linux 5.3 or newer"


def _binding() -> Callable[..., int]:
    try:
        from _ctypes import call_function, dlopen, dlsym  # type: ignore[attr-defined,unused-ignore]

        library = dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type,unused-ignore]

        def call(name: str, *arguments: int | bytes | None) -> int:
            return call_function(dlsym(library, name), arguments)  # type: ignore[no-any-return,unused-ignore]

    except ImportError:
        import ctypes

        whole = ctypes.CDLL(None)

        def call(name: str, *arguments: int | bytes | None) -> int:
            return getattr(whole, name)(*arguments)  # type: ignore[no-any-return]

    return call


_call = _binding()


def _checked(name: str, *arguments: int | bytes | None) -> int:
    result = _call(name, *arguments)
    if result < 0:
        raise OSError(errno.ENOSYS, NEEDED.format(name))
    return result


def _descriptor(name: str, *arguments: int | bytes) -> int:
    result = _call(name, *arguments)
    if result < 0:
        os.close(os.open("/", os.O_PATH | os.O_CLOEXEC))  # errno is not known here: raises if there are no more of them
        raise OSError(errno.ENOSYS, NEEDED.format(name))
    return result


def set_death_signal(signum: int) -> None:
    """Have the kernel send *signum* to this process when the thread that forked it ends."""
    _checked("prctl", PR_SET_PDEATHSIG, signum, 0, 0, 0)


def become_subreaper() -> None:
    """Have orphaned descendants become children of this process instead of init's."""
    _checked("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_descriptor(signals: Iterable[int]) -> int:
    """A descriptor from which the given signals, which must be blocked, are read as values. Raises ``OSError``."""
    bits = 0
    for signum in signals:
        bits |= 1 << (signum - 1)
    return _descriptor("signalfd", -1, bits.to_bytes(SIGSET_SIZE, "little"), O_CLOEXEC_NONBLOCK)


def read_signals(descriptor: int) -> list[tuple[int, int, int]]:
    """All waiting signals as (number, si_code, pid of the sender or 0)."""
    try:
        data = os.read(descriptor, SIGINFO_SIZE * 64)
    except BlockingIOError:
        return []
    found = []
    for start in range(0, len(data), SIGINFO_SIZE):
        number = int.from_bytes(data[start : start + 4], "little")
        code = int.from_bytes(data[start + 8 : start + 12], "little", signed=True)
        sender = int.from_bytes(data[start + 12 : start + 16], "little")
        found.append((number, code, sender))
    return found


def timer_descriptor(clock_id: int) -> int:
    """A timer on the given clock: on ``CLOCK_BOOTTIME`` it also fires right after a resume from suspend.

    Raises ``OSError``.
    """
    return _descriptor("timerfd_create", clock_id, O_CLOEXEC_NONBLOCK)


def set_timer(descriptor: int, at: float | None) -> None:
    """Make the timer readable at the absolute time *at* (seconds of its clock); ``None`` disarms it."""
    moment = 0 if at is None else max(1, int(at * NANOSECONDS))
    seconds, rest = divmod(moment, NANOSECONDS)
    interval = bytes(16)
    spec = interval + seconds.to_bytes(8, "little") + rest.to_bytes(8, "little")
    _checked("timerfd_settime", descriptor, TFD_TIMER_ABSTIME, spec, None)


def clear_timer(descriptor: int) -> None:
    """Take the expirations out of the timer, so that it is not readable until it fires again."""
    try:
        os.read(descriptor, 8)
    except BlockingIOError:
        return


def set_process_name(name: str, command_line: str = "") -> None:
    """Name this process for ``ps``, ``top`` and ``pkill`` (at most 15 bytes), and for ``ps -f`` if wanted.

    A *command_line* is cut to the length of the old one, which it overwrites where the kernel reads it.
    """
    _write_proc("comm", name.encode())
    if command_line:
        try:
            with open("/proc/self/stat", "rb", buffering=0) as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return
        begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
        room = end - begin
        if room > 1:
            _write_proc("mem", command_line.encode()[: room - 1].ljust(room, b"\0"), begin)


def _write_proc(entry: str, content: bytes, offset: int = 0) -> None:
    try:
        descriptor = os.open("/proc/self/" + entry, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # a name is a comfort, and /proc may be restricted
    try:
        if offset:
            os.lseek(descriptor, offset, os.SEEK_SET)
        os.write(descriptor, content)
    except OSError:
        return
    finally:
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Give up every lock of an open file, whoever else has it open: flock(2), and those of ``F_OFD_SETLK``."""
    import fcntl

    whole_file = fcntl.F_UNLCK.to_bytes(2, sys.byteorder) + bytes(30)  # struct flock: from 0, without an end
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole_file)
    except OSError:
        pass  # a file system without them: then there are none
    fcntl.flock(descriptor, fcntl.LOCK_UN)
