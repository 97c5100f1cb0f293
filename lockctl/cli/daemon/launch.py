"""The daemon of an acquired lock: starting it, and waiting until it has the lock.

It is `lockctl run` itself, in a session of its own, on the small command of ``command.py``. Until the handle is handed
out, the end of this process is the daemon's end: the kernel sends it a signal that ends its wait, and its command
reads the end of its way back. What the daemon says goes to a log beside its socket, and from there to stderr.
"""

from __future__ import annotations

import _signal
import _socket
import fcntl
import json
import os
import select
from typing import TYPE_CHECKING

from lockctl import kernel
from lockctl.cli import exit_status
from lockctl.cli.daemon import carried
from lockctl.cli.daemon.daemonize import Wanted, become_daemon
from lockctl.cli.daemon.remains import Remains, reason
from lockctl.cli.messages import Talk
from lockctl.cli.writing import write_at_once
from lockctl.errors import EXHAUSTED, ConfigError, Interrupted, LockctlError
from lockctl.names import printable
from lockctl.supervise import channel, tree
from lockctl.supervise.signals import Signals, keep_statuses
from lockctl.umask import open_to_owner

if TYPE_CHECKING:
    from collections.abc import Mapping


LOOK = 0.1  # seconds between two looks for what the daemon has said, while it waits
LARGEST = 1 << 16  # bytes of what its command tells
AT_ONCE = 4096  # bytes, PIPE_BUF: a pipe takes as many whole or not at all


def start(order: Wanted, remains: Remains, given: Mapping[str, str | bool], environ: Mapping[str, str]) -> Daemon:
    """Fork the daemon, before this process does anything to its signals."""
    tree.hold_proc(starts=True)  # refuses here what the daemon would refuse, and could not say
    own, other = channel.sockets()
    carried.send(own)
    try:
        log = os.open(remains.path(".log"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as failure:
        if failure.errno in EXHAUSTED:
            raise
        raise ConfigError(f"cannot write {printable(remains.path('.log'))}: {failure.strerror}") from None
    open_to_owner(log)
    fcntl.flock(log, fcntl.LOCK_EX)  # for as long as the daemon, its guard or its command lives
    acquirer = os.getpid()
    keep_statuses()
    try:
        pid = os.fork()
    except OSError:
        remains.remove()
        raise
    if pid == 0:
        own.close()
        become_daemon(acquirer, order, remains, (log, other.fileno()), given, environ)
    os.close(log)
    other.close()
    try:
        return Daemon(pid, own, remains)
    except BaseException:
        own.close()
        os.waitpid(pid, 0)  # it sees the end of its way back
        remains.remove()
        raise


class Daemon:
    """The daemon as ``acquire`` sees it."""

    def __init__(self, pid: int, link: _socket.socket, remains: Remains) -> None:
        """From here on signals are values, and end the wait."""
        self.pid = pid
        self._link = link
        self._remains = remains
        self._log = os.open(remains.path(".log"), os.O_RDONLY | os.O_CLOEXEC)
        self._said = 0  # bytes of the log that were passed on
        self._end = kernel.process_descriptor(pid)
        self._signals = Signals()

    def await_grant(self, order: Wanted) -> dict[str, str] | None:
        """What its command tells when the lock is taken; ``None``: the daemon ended without it.

        Raises ``Interrupted`` for a signal, ``LockctlError`` when the bound process ends, ``ConfigError`` when the
        daemon cannot listen.
        """
        poll = select.poll()
        for descriptor in (self._signals.descriptor, self._link.fileno(), self._end, order.bound):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(LOOK * 1000)}
            self._pass_on_what_was_said()
            signum = self._signals.ending()
            if signum is not None:
                raise Interrupted(signum)
            if order.bound in ready:
                raise LockctlError(f"process {order.bound_pid} (--bind-pid) ended before {order.name} was acquired")
            granted = self._granted() if self._link.fileno() in ready else None
            if granted is not None:
                return granted
            if self._end in ready:
                return None

    def print_all(self, data: bytes) -> None:
        """Print on stdout for as long as the lock is held: who reads it may be slow.

        Raises ``Interrupted`` for a signal, ``LockctlError`` when it is not, ``OSError`` when nobody reads.
        """
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        poll.register(self._signals.descriptor, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while data:
            ready = {descriptor for descriptor, _ in poll.poll()}
            signum = self._signals.ending()
            if signum is not None:
                raise Interrupted(signum)
            if self._end in ready:
                raise self._not_taken()
            if 1 in ready:
                data = data[os.write(1, data[:AT_ONCE]) :]

    def confirm(self) -> None:
        """The handle was handed out: from here on it holds without us.

        Raises ``Interrupted`` for a signal that came before, ``LockctlError`` if it has ended.
        """
        signum = self._signals.ending()
        if signum is not None:
            raise Interrupted(signum)
        try:
            self._link.send(b"taken", _socket.MSG_NOSIGNAL)
        except OSError:
            raise self._not_taken() from None

    def _not_taken(self) -> LockctlError:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # when it has ended, its report is there
        return LockctlError(
            f"the lock is not held any more, and its handle was not delivered: {reason(self._remains.report())}"
        )

    def _granted(self) -> dict[str, str] | None:
        try:
            data = self._link.recv(LARGEST)
        except OSError:
            return None
        if not data:
            return None
        told: dict[str, str] = json.loads(data)
        if "error" in told:
            raise ConfigError(told["error"])
        return told

    def _pass_on_what_was_said(self) -> None:
        """As much as stderr takes without waiting; the rest stays in the log until the next time."""
        while data := os.pread(self._log, AT_ONCE, self._said):
            try:
                written = write_at_once(2, data)
            except OSError:
                return
            self._said += written
            if written < len(data):
                return

    def status(self) -> int:
        """The exit status of a daemon that has ended without a grant; never 0, which means a lock that is held."""
        status = exit_status.of_wait_status(os.waitpid(self.pid, 0)[1])
        self._pass_on_what_was_said()
        if not self._said:
            self._say_what_is_unsaid()
        return status or exit_status.HELD

    def _say_what_is_unsaid(self) -> None:
        """The daemon may be silent on purpose (``-q``), or have had no room for its words."""
        path = self._remains.path(".log")
        try:
            with open(path, "ab", buffering=0) as log:
                log.write(b"\n")
        except OSError as failure:
            why = f"the reason could not be written to {printable(path)}: {failure.strerror}"
            Talk()("error", f"the lock was not acquired, and {why}")

    def restore_signals(self) -> None:
        """There is nothing to give back any more: a signal ends this process."""
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._signals.original_mask)

    def cancel(self) -> None:
        """Nothing is held any more when this returns: it ends within the time limit of one request."""
        self._link.close()
        tree.send(self.pid, int(_signal.SIGHUP))
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return
        self._pass_on_what_was_said()
