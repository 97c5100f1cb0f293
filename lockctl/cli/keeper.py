"""The detached keeper of an acquired lock: starting it, and waiting until it has the lock.

It is `lockctl run` itself, in a session of its own, on the small command of ``holder``. Until the handle is handed
out, the end of this process is the keeper's end: the kernel sends it a signal that ends its wait, and the holder
reads the end of its way back. What the keeper says goes to a log beside its socket, and from there to stderr.
"""

from __future__ import annotations

import _signal
import _socket
import fcntl
import json
import os
import select
from typing import TYPE_CHECKING, NoReturn

from lockctl import kernel, url
from lockctl.cli import exit_status
from lockctl.cli.handle import Remains, reason
from lockctl.cli.holder import Task
from lockctl.cli.main import report_bug
from lockctl.cli.messages import Talk, write_at_once
from lockctl.durations import format_duration
from lockctl.errors import ConfigError, Interrupted, LockctlError
from lockctl.names import printable
from lockctl.supervise import tree
from lockctl.supervise.signals import Signals
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOK = 0.1  # seconds between two looks for what the keeper has said, while it waits
LARGEST = 1 << 16  # bytes of what the holder tells
AT_ONCE = 4096  # bytes, PIPE_BUF: a pipe takes as many whole or not at all
# whatever the configuration says of `run`: this run is only the lock, and without the lock there is none
FIXED: dict[str, str | bool] = {
    "skip_ok": False,
    "on_unavailable": "fail",
    "leftover": "kill",
    "signal": "TERM",
    "on_lost": "kill",
    "max_runtime": "3650d",
    "once_per": "0",
    "restart": False,
}


class Wanted(Value):
    """What the command line of ``acquire`` says beside the settings of ``run``."""

    name: str
    span: float  # seconds
    bound_pid: int  # 0: none
    bound: int  # its descriptor, -1: none
    file: str | None  # where the handle goes
    for_shell: bool


def start(order: Wanted, remains: Remains, given: Mapping[str, str | bool], environ: Mapping[str, str]) -> Keeper:
    """Fork the keeper, before this process does anything to its signals."""
    tree.hold_proc()  # refuses here what the keeper would refuse, and could not say
    own, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    try:
        log = os.open(remains.path(".log"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as failure:
        raise ConfigError(f"cannot write {printable(remains.path('.log'))}: {failure.strerror}") from None
    fcntl.flock(log, fcntl.LOCK_EX)  # for as long as the keeper, its guard or the holder lives
    acquirer = os.getpid()
    try:
        pid = os.fork()
    except OSError as failure:
        raise ConfigError(f"cannot start the keeper: {failure.strerror}: raise the limit (ulimit -u)") from None
    if pid == 0:
        own.close()
        _become_keeper(acquirer, order, remains, (log, other.fileno()), given, environ)
    os.close(log)
    other.close()
    try:
        return Keeper(pid, own, remains)
    except BaseException:
        own.close()
        os.waitpid(pid, 0)  # it sees the end of its way back
        remains.remove()
        raise


def _become_keeper(
    acquirer: int,
    order: Wanted,
    remains: Remains,
    descriptors: tuple[int, int],
    given: Mapping[str, str | bool],
    environ: Mapping[str, str],
) -> NoReturn:
    """In the child: away from the session that started us, with nothing of it open."""
    status = exit_status.BUG
    log, link = descriptors
    try:
        os.setsid()
        _signal.signal(_signal.SIGHUP, _signal.SIG_DFL)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        kernel.set_death_signal(_signal.SIGHUP)  # while it waits for the lock that ends it, later the holder ignores it
        if os.getppid() != acquirer:
            os._exit(status)
        settings, variables = dict(given), dict(environ)
        for mapping, name in ((settings, "config"), (variables, "LOCKCTL_CONFIG")):
            if mapping.get(name):
                mapping[name] = os.path.abspath(str(mapping[name]))
        url.started_in = _directory()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, descriptor in enumerate((nothing, nothing, log)):
            os.dup2(descriptor, number)
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) > 2 and int(entry) not in (link, order.bound):
                _close(int(entry))
        for descriptor in (link, order.bound):
            if descriptor >= 0:
                os.set_inheritable(descriptor, True)
        task = Task(remains.stem, order.span, order.bound, link)
        binding = ("--bind-pid", str(order.bound_pid)) if order.bound_pid else ()
        shown = ("lockctl", "acquire", order.name, "--for", format_duration(order.span), *binding)
        kernel.set_process_name("lockctl", " ".join(shown))  # the words of `acquire` may have a URL with a password
        settings.update(FIXED, lock=order.name, report=remains.path(".end"))
        from lockctl.cli.start import execute

        status = execute(settings, task.words(), variables, Signals(), shown=shown)
    except LockctlError as error:
        status = exit_status.of_error(error)
        talk = Talk()
        talk("error", str(error))
        talk.finish()
    except BaseException:  # noqa: BLE001 - nothing may go back into the caller's half of the program
        talk = Talk()
        status = report_bug(talk)
        talk.finish()
    finally:
        os._exit(status)


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return None


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


class Keeper:
    """The detached keeper as ``acquire`` sees it."""

    def __init__(self, pid: int, link: _socket.socket, remains: Remains) -> None:
        """From here on signals are values, and end the wait."""
        self.pid = pid
        self._link = link
        self._remains = remains
        self._link.setblocking(False)
        self._log = os.open(remains.path(".log"), os.O_RDONLY | os.O_CLOEXEC)
        self._said = 0  # bytes of the log that were passed on
        self._end = kernel.process_descriptor(pid)
        self._signals = Signals()

    def await_grant(self, order: Wanted) -> dict[str, str] | None:
        """What the holder tells when the lock is taken; ``None``: the keeper ended without it.

        Raises ``Interrupted`` for a signal, ``LockctlError`` when the bound process ends, ``ConfigError`` when the
        holder cannot listen.
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
                raise LockctlError(f"process {order.bound_pid}, to which {order.name} was to be bound, has ended")
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
        return LockctlError(f"not held any more, before its handle was taken: {reason(self._remains.report())}")

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
        """The exit status of a keeper that has ended without a grant; never 0, which means a lock that is held."""
        status = exit_status.of_wait_status(os.waitpid(self.pid, 0)[1])
        self._pass_on_what_was_said()
        return status or exit_status.HELD

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
