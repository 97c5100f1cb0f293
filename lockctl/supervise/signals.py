"""Signals as values: blocked from the first moment, read from a descriptor, never handled asynchronously."""

from __future__ import annotations

import _signal
import os

from lockctl import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = {name[3:]: int(getattr(_signal, name)) for name in dir(_signal) if name[:3] == "SIG" and name[3].isalpha()}
FATAL_TO_SELF = frozenset(
    NAMES[name] for name in ("ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS", "XCPU") if name in NAMES
)  # from the kernel each is about the process that gets it: for a fault of its own, or what it took of the processor
ENDS_A_WAIT = frozenset(NAMES[name] for name in ("TERM", "INT", "HUP", "QUIT"))
ENDS_A_PROGRAM = frozenset(NAMES[name] for name in ("TERM", "INT", "QUIT"))  # to a daemon, HUP says something else
DIRECTORY_LINKS = 2  # of a directory without others in it
JOB_CONTROL = frozenset(NAMES[name] for name in ("TSTP", "TTIN", "TTOU"))


def parse_signal(text: str) -> int:
    """The number of a signal named as in ``kill(1)``; raises ``ValueError`` with one line."""
    name = text.strip().upper()
    if name.isascii() and name.isdigit() and len(name) < 9 and 0 < int(name) <= int(_signal.SIGRTMAX):
        return int(name)
    name = name.removeprefix("SIG")
    if name in NAMES:
        return NAMES[name]
    raise ValueError(f"{text[:30]!r} is not a signal: use for example TERM, INT, HUP, QUIT, USR1")


def signal_name(signum: int) -> str:
    """``SIGTERM`` for 15; real-time signals by number."""
    for name, number in NAMES.items():
        if number == signum and name not in ("RTMIN", "RTMAX", "CLD", "POLL"):
            return "SIG" + name
    return f"signal {signum}"


def keep_statuses() -> bool:
    """Have children be waited for: where their ends were ignored the kernel reaps them itself; whether they were."""
    ignored = _signal.getsignal(_signal.SIGCHLD) is _signal.SIG_IGN
    if ignored:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    return ignored


class Signals:
    """Everything that is sent to this process from here on.

    ``original_mask`` and the dispositions at the start are what the command gets back.
    """

    def __init__(self, inherited: tuple[frozenset[int], bool] | None = None) -> None:
        """Block all signals. What came before had its ordinary effect.

        *inherited*: ``original_mask`` and ``child_ignored`` of a program that was replaced by this one.
        """
        known = _signal.valid_signals()  # without those that the C library keeps for itself, and lets nobody block
        mask = frozenset(map(int, _signal.pthread_sigmask(_signal.SIG_BLOCK, known)))
        ignored = keep_statuses()
        before, self.child_ignored = (mask, ignored) if inherited is None else inherited
        self.original_mask = before & known
        # the end of a child is no reason to break off a request: a library may run programs to log in
        self.descriptor = kernel.signal_descriptor(_all_but(_signal.SIGCHLD))
        self.ignored = frozenset(signum for signum in ENDS_A_WAIT if _signal.getsignal(signum) is _signal.SIG_IGN)

    def watch_children(self) -> None:
        """From here on tell the ends of children, too, also one that was not told until now."""
        kernel.signal_descriptor(_all_but(), self.descriptor)

    def read(self) -> list[tuple[int, int, int]]:
        """What was sent since the last call, as (number, si_code, pid of the sender)."""
        return kernel.read_signals(self.descriptor)

    def ending(self) -> int | None:
        """While waiting for a lock: the signal that ends the wait, or ``None``. Obeys Ctrl-Z."""
        for signum, _, sender in self.read():
            if signum in ENDS_A_WAIT - self.ignored and sender != os.getpid():
                return signum
            if signum in JOB_CONTROL:
                suspend(signum)
        return None

    def pause(self, seconds: float) -> int | None:
        """Let time pass, suspend included; the signal that ended the pause early, or ``None``."""
        import select

        from lockctl.clock import boottime

        until = boottime() + seconds
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while (left := until - boottime()) > 0:
            poll.poll(min(left, 1.0) * 1000 + 1)
            signum = self.ending()
            if signum is not None:
                return signum
        return None

    def restore_for_command(self) -> None:
        """In the child, before exec: the mask and dispositions that lockctl itself was started with.

        Python ignores SIGPIPE and SIGXFSZ before any code of ours runs, so what was inherited for these
        two cannot be known; they get their default. Handlers are reset by exec.
        """
        for signum in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(signum, _signal.SIG_DFL)
        if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # one that waits must not end in Python's handler
        if self.child_ignored:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.original_mask)


def _all_but(*signals: int) -> list[int]:
    return [int(signum) for signum in _signal.valid_signals() if signum not in signals]


def has_other_threads() -> bool:
    """Whether this process has more than one thread; without /proc it is not known, and taken for no."""
    try:
        return os.stat("/proc/self/task").st_nlink > DIRECTORY_LINKS + 1  # each is a directory there
    except OSError:
        return False


def suspend(signum: int) -> None:
    """Stop this process as *signum* would have, until SIGCONT: not at all where no shell could continue its group."""
    os.kill(os.getpid(), signum)
    only: Iterable[int] = (signum,)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, only)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, only)
