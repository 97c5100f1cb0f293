"""The few system calls of Linux that Python's standard library has no binding for.

``_ctypes`` directly, because ``import ctypes`` alone costs as much as the rest of the start of ``run``;
where an interpreter lacks that private interface, ``ctypes`` serves. Structures are packed as this machine has them.
"""

from __future__ import annotations

import errno
import os
import sys

from lockctl.errors import EXHAUSTED, ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
O_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK  # SFD_* and TFD_* have the same values
TFD_TIMER_ABSTIME = 1
SIGINFO_SIZE = 128  # struct signalfd_siginfo, whose layout is fixed
SIGSET_SIZE = 128  # bytes of glibc's sigset_t, an array of longs; the kernel reads the first 8, on MIPS 16
SI_KERNEL = 0x80  # si_code of a signal that the kernel itself sent, as for Ctrl-C on a terminal
NANOSECONDS = 1_000_000_000
UNKNOWN = (errno.ENOSYS, errno.EINVAL)  # what a kernel says that is too old
LOCK_UN = 8  # of flock(2), on every machine
LONG = 8 if sys.maxsize > 1 << 32 else 4  # bytes


def _binding() -> Callable[..., int]:
    if sys.platform != "linux":
        raise ConfigError("lockctl runs on Linux only")
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


call = _binding()  # one call by its name, and what it returns: less than 0 if it failed


def _checked(name: str, *arguments: int | bytes | None) -> int:
    """The result of a call. Raises ``ConfigError`` for one that is refused, ``OSError`` when something is used up."""
    result = call(name, *arguments)
    return result if result >= 0 else _called_again(name, arguments)


def _called_again(name: str, arguments: tuple[int | bytes | None, ...]) -> int:
    """The same once more, in a way that takes longer and tells why it fails."""
    os.close(os.open("/", os.O_PATH | os.O_CLOEXEC))  # raises if there are no more descriptors, also for a library
    import ctypes

    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        raise refusal(name, ctypes.get_errno())
    return result


def refusal(name: str, number: int) -> Exception:
    """What to raise for a system call that failed with this errno."""
    reason = os.strerror(number)
    if number in EXHAUSTED:
        return OSError(number, reason)
    if number in UNKNOWN:
        return ConfigError(f"{name} failed ({reason}): lockctl needs Linux 5.3 or newer")
    return ConfigError(
        f"lockctl needs {name}, which is not permitted here ({reason}): allow it, for example in the seccomp profile"
    )


def _size_of_time() -> int:
    """Bytes of a ``time_t``, by what the C library writes: with longs of 4 bytes it has 4, or 8 on younger systems."""
    given = bytes(bytearray(b"\xff" * 32))  # of its own: it is written to
    _checked("clock_getres", 1, given)
    size = len(given.rstrip(b"\xff")) // 2
    if size not in (4, 8):
        raise ConfigError("lockctl requires a 64-bit Python on this machine")
    return size


TIME = LONG if LONG == 8 else _size_of_time()


def pack(values: Iterable[int], size: int, order: Literal["little", "big"] = sys.byteorder) -> bytes:
    """Unsigned numbers of so many bytes, one after the other as in an array of C."""
    return b"".join([value.to_bytes(size, order) for value in values])


def set_death_signal(signum: int) -> None:
    """Have the kernel send *signum* to this process when the thread that forked it ends."""
    _checked("prctl", PR_SET_PDEATHSIG, signum, 0, 0, 0)


def become_subreaper() -> None:
    """Have orphaned descendants become children of this process instead of init's."""
    _checked("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_descriptor(signals: Iterable[int], descriptor: int = -1) -> int:
    """A descriptor from which the given signals, which must be blocked, are read as values: a new one, or this one.

    Raises ``OSError``, ``ConfigError``.
    """
    words = [0] * (16 // LONG)
    for signum in signals:
        word, bit = divmod(signum - 1, 8 * LONG)
        words[word] |= 1 << bit
    return _checked("signalfd", descriptor, pack(words, LONG).ljust(SIGSET_SIZE, b"\0"), O_CLOEXEC_NONBLOCK)


def process_descriptor(pid: int) -> int:
    """A descriptor that becomes readable when a process ends.

    Raises ``ProcessLookupError`` if there is none, ``OSError``, ``ConfigError``.
    """
    try:
        return os.pidfd_open(pid)
    except OSError as failure:
        if failure.errno in (errno.ESRCH, errno.EINVAL):  # or it is a thread
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        raise refusal("pidfd_open", failure.errno or errno.ENOSYS) from None


def read_signals(descriptor: int) -> list[tuple[int, int, int]]:
    """All waiting signals as (number, si_code, pid of the sender or 0)."""
    try:
        data = os.read(descriptor, SIGINFO_SIZE * 64)
    except BlockingIOError:
        return []
    found = []
    for start in range(0, len(data), SIGINFO_SIZE):
        number = int.from_bytes(data[start : start + 4], sys.byteorder)
        code = int.from_bytes(data[start + 8 : start + 12], sys.byteorder, signed=True)
        sender = int.from_bytes(data[start + 12 : start + 16], sys.byteorder)
        found.append((number, code, sender))
    return found


def timer_descriptor(clock_id: int) -> int:
    """A timer on the given clock: on ``CLOCK_BOOTTIME`` it also fires right after a resume from suspend.

    Raises ``OSError``, ``ConfigError``.
    """
    descriptor = _checked("timerfd_create", clock_id, O_CLOEXEC_NONBLOCK)
    set_timer(descriptor, None)  # where that is refused it is told now, and not when a command runs
    return descriptor


def set_timer(descriptor: int, at: float | None) -> None:
    """Make the timer readable at the absolute time *at* (seconds of its clock); ``None`` disarms it."""
    seconds, rest = divmod(0 if at is None else max(1, int(at * NANOSECONDS)), NANOSECONDS)
    seconds = min(seconds, (1 << 8 * TIME - 1) - 1)
    spec = pack((0, 0, seconds, rest), TIME)  # struct itimerspec: an interval, and a moment
    _checked("timerfd_settime", descriptor, TFD_TIMER_ABSTIME, spec, None)


def clear_timer(descriptor: int) -> None:
    """Take the expirations out of the timer, so that it is not readable until it fires again."""
    try:
        os.read(descriptor, 8)
    except BlockingIOError:
        return


def erase_variables(names: Iterable[str]) -> None:
    """Overwrite the values of these variables where ``/proc/PID/environ`` shows them; ``os.environ`` keeps them."""
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[47]), int(fields[48])  # env_start and env_end, proc(5)
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            given = b"\0" + memory.read(end - begin)
            for name in names:
                start = b"\0%s=" % os.fsencode(name)
                before, *contents = given.split(start)  # one may be there twice
                at = begin + len(before) - 1
                for content in contents:
                    at += len(start)
                    memory.seek(at)
                    memory.write(bytes(len(content.partition(b"\0")[0])))
                    at += len(content)
    except OSError:
        return  # /proc may be restricted: then others cannot read it there either


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


def free(descriptor: int) -> None:
    """Give up the lock by flock(2) of an open file, whoever else has it open."""
    call("flock", descriptor, LOCK_UN)


def unlock(descriptor: int) -> None:
    """Give up every lock of an open file, whoever else has it open: flock(2), and those of ``F_OFD_SETLK``."""
    import fcntl

    whole_file = fcntl.F_UNLCK.to_bytes(2, sys.byteorder) + bytes(30)  # struct flock: from 0, without an end
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole_file)
    except OSError:
        pass  # a file system without them: then there are none
    fcntl.flock(descriptor, fcntl.LOCK_UN)
