"""Starting the command: a fork whose child is killed by the kernel when its guard ends."""

from __future__ import annotations

import _signal
import errno
import os
import select

from lockctl import kernel
from lockctl.errors import ConfigError
from lockctl.supervise import channel as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.supervise.channel import Channel, Frame
    from lockctl.supervise.signals import Signals

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
AT_ONCE = 50  # milliseconds
LONGEST_ANSWER = 4096  # bytes
# a file that is not there, or in a directory of a file server that is not: the next directory may have it
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT, errno.ENOTCONN)
OUT_OF_THE_WAY = 512  # lowest number of the lock's descriptor in the command: scripts use small ones as they like


class Child:
    """The command before and while it is executed: forked, and waiting for the order to start.

    It is forked while the lock is being taken or waited for, because a fork of the interpreter takes as long as the
    lock. It executes nothing without that order: it ends with the guard, and when the guard has none for it.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        environment: dict[str, str],
        signals: Signals,
        *,
        own_group: bool,
        contained: bool = False,
    ) -> None:
        """Fork, with *own_group* into a process group of its own, else into that of this process. Raises ``OSError``.

        *contained*: it is in another pid namespace, in which its parent has no number.
        """
        guard = 0 if contained else os.getpid()
        self.failed, failed_write = os.pipe2(os.O_CLOEXEC)  # readable when there is an answer for :meth:`error`
        os.set_blocking(self.failed, False)
        self._link, other = wire.pair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._link.close()
                number, refused = _become_command(guard, other, words, environment, signals)
                if number:
                    os.write(failed_write, b"%d %s" % (number, refused.encode()))
            finally:
                os._exit(127)
        other.close()
        os.close(failed_write)
        try:
            if own_group:
                os.setpgid(self.pid, self.pid)
        except ProcessLookupError:
            pass  # killed: found out when it gets the order

    def waits(self) -> bool:
        """Whether it is there, for the order: it may have been killed during a long wait."""
        self._link.receive()
        return self._link.open

    def go(self, variables: tuple[bytes, ...], lock_descriptors: tuple[int, ...]) -> bool:
        """Have it executed, with these variables (``NAME=content``) added; ``False``: it is gone, or cannot be told.

        The command inherits *lock_descriptors*: the locks of the file backend then outlive even a guard and
        a keeper that were both killed. From here on signals that are sent to it are for the command.
        """
        self._use_processors_of_guard()
        return self._link.send(wire.GO, variables, descriptors=lock_descriptors)

    def _use_processors_of_guard(self) -> None:
        """It may have been forked while its guard was kept off the processor of the keeper, for a moment."""
        try:
            if os.sched_getaffinity(self.pid) != (processors := os.sched_getaffinity(0)):
                os.sched_setaffinity(self.pid, processors)
        except OSError:
            pass  # killed: found out when it gets the order

    def error(self) -> tuple[int, str] | None:
        """The errno if it could not go or be executed, and a line if it was neither; 0: it was; ``None``: not known."""
        if self._link.failure:
            return self._link.failure, ""
        try:
            number, _, refused = os.read(self.failed, LONGEST_ANSWER).partition(b" ")
        except BlockingIOError:
            return None
        return int(number or 0), refused.decode()

    def drop(self) -> None:
        """It is not needed: end it, also when somebody has stopped it."""
        self.close()
        os.kill(self.pid, _signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def close(self) -> None:
        """Nothing more is asked of it."""
        os.close(self.failed)
        self._link.close()


def _become_command(
    guard: int,
    link: Channel,
    words: tuple[str, ...],
    environment: dict[str, str],
    signals: Signals,
) -> tuple[int, str]:
    """In the child: wait for the order and execute; returns only what :meth:`Child.error` tells."""
    try:
        kernel.set_death_signal(_signal.SIGKILL)
        if os.getppid() != guard:
            return 0, ""  # the guard died before the kernel was told: nobody would watch
        frames = _await_order(link, signals, words, environment)
        if not frames:
            return 0, ""
        _, (variables,), lock_descriptors = frames[0]
        for pair in variables:
            name, _, content = os.fsdecode(pair).partition("=")
            environment[name] = content
        for descriptor in lock_descriptors:
            _pass_on(descriptor)
        signals.restore_for_command()
        _exec(words, environment)
    except ConfigError as refused:
        return errno.EPERM, str(refused)
    except OSError as failure:
        return failure.errno or errno.EINVAL, ""
    return errno.EINVAL, ""


def _await_order(link: Channel, signals: Signals, words: tuple[str, ...], environment: dict[str, str]) -> list[Frame]:
    """The frames of the order to start; none if it will not come.

    What is sent before is not for the command, and is taken away. What is sent after stays, and waits until the
    command has its own mask: what was read beside the order is sent once more.
    """
    poll = select.poll()
    poll.register(link.fileno, select.POLLIN)
    poll.register(signals.descriptor, select.POLLIN)
    while True:
        wait_for(poll, "of_command", words, environment)
        taken = signals.read()
        frames = link.receive()
        if frames or not link.open:
            for signum, _, _ in taken:  # perhaps after the order, which has just come
                os.kill(os.getpid(), signum)
            return frames


def wait_for(poll: select.poll, rehearsed: str, *words: object) -> None:
    """Return when there is something; if not at once, do meanwhile what is said in ``rehearsal``."""
    if not poll.poll(AT_ONCE):
        try:
            from lockctl.supervise import rehearsal

            getattr(rehearsal, rehearsed)(*words)
        except Exception:  # noqa: BLE001, S110 - a program that was replaced meanwhile: nothing depends on it
            pass
        poll.poll()


def _pass_on(descriptor: int) -> None:
    number = OUT_OF_THE_WAY
    while os.path.exists(f"/proc/self/fd/{number}"):
        number += 1
    try:
        os.dup2(descriptor, number)
    except OSError:
        os.set_inheritable(descriptor, True)  # a low limit on open files: the number is a courtesy


def _exec(words: tuple[str, ...], environment: dict[str, str]) -> None:
    """As ``execvp(3)``: search the PATH, go on after a file that may not be executed, try scripts with sh."""
    name = words[0]
    if not name:
        raise OSError(errno.ENOENT, "empty")
    if "/" in name:
        candidates = [name]
    else:
        path = environment.get("PATH", DEFAULT_PATH)
        candidates = [(directory or ".") + "/" + name for directory in path.split(":")]
    worst = OSError(errno.ENOENT, name)
    for candidate in candidates:
        try:
            os.stat(candidate)  # to try to execute what is not there takes ten times as long
            _exec_one(candidate, words, environment)
        except PermissionError as refused:
            worst = refused
        except OSError as failure:
            if failure.errno not in ABSENT or len(candidates) == 1:
                raise
    raise worst


def _exec_one(file: str, words: tuple[str, ...], environment: dict[str, str]) -> None:
    try:
        os.execve(file, list(words), environment)
    except OSError as failure:
        if failure.errno != errno.ENOEXEC:
            raise
    os.execve("/bin/sh", ["sh", file, *words[1:]], environment)
