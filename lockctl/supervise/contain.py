"""A pid namespace for the job: the kernel kills every process in it at once when its first process ends.

That first process, the init of the namespace, ends with its guard: see pid_namespaces(7), and ``PR_SET_PDEATHSIG`` of
prctl(2). So nothing of the job lives on when both processes of lockctl are killed in the same instant, whatever its
processes did before: not what moved to another session, nor a set-user-ID program, which is not killed with its parent.
The command itself stays a child of the guard. Orphans of the job become children of the init, which reaps them, and
which ends when the command has ended and none of them is left, nor what the command has made a child of the guard.

The kernel closes the descriptors of a process before it kills the namespace that the process is the init of. So where
a descriptor is the lock, the init has it, too, and is not killed with its guard: it kills the others, and ends then.

Root needs CAP_SYS_ADMIN for it. Another user needs a user namespace (user_namespaces(7)), in which set-user-ID programs
have no effect: so that is done only when the user requires it.
"""

from __future__ import annotations

import os
import select
from _signal import SIGCHLD, SIGKILL
from errno import EPERM

from lockctl import clock, kernel
from lockctl.errors import EXHAUSTED
from lockctl.supervise import namespaces, tree
from lockctl.supervise.tree import SWEEP_PAUSE, UNENDED

NO, AUTO, REQUIRE = "no", "auto", "require"  # the setting ``contain``
COMMAND_ENDED = b"."
REFUSED = (
    "--contain: this system allows no pid namespace with a /proc of its own ({}): start lockctl as root with"
    " CAP_SYS_ADMIN, or as another user where user namespaces are allowed"
)


def enter(wanted: str, keep: tuple[int, ...]) -> Init | None:
    """The init of a new namespace for what is forked from now on; ``None`` if it is not *wanted* or cannot be had.

    Raises ``OSError`` where it is required and cannot be had, or where there is no way back.
    """
    if wanted == NO or (wanted == AUTO and os.geteuid() != 0):
        return None
    try:
        namespaces.enter(user=os.geteuid() != 0)
    except OSError:
        if wanted == REQUIRE:
            raise
        return None
    try:
        return Init(keep)
    except OSError:
        if wanted == REQUIRE:
            raise
        namespaces.leave_pid_namespace()
        return None


def told(refused: OSError) -> tuple[int, str]:
    """The errno of what :func:`enter` raised, and a line about it if no limit was reached."""
    number = refused.errno or EPERM
    return number, "" if number in EXHAUSTED else REFUSED.format(os.strerror(number))


class Init:
    """The init of a pid namespace that the guard has entered, as the guard sees it."""

    def __init__(self, keep: tuple[int, ...] = ()) -> None:
        """Fork it, as the first process of the namespace; it keeps what holds the lock, too. Raises ``OSError``."""
        self._is_last = False  # and was not told so yet
        listening, self._told = os.pipe2(os.O_CLOEXEC)
        answers, answer = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _be_init(listening, answer, keep)
            finally:
                os._exit(0)  # also after a bug: there must be no second guard
        os.close(listening)
        os.close(answer)
        try:
            problem = os.read(answers, 16)
        finally:
            os.close(answers)
        if problem != b"0":
            os.close(self._told)
            os.waitpid(self.pid, 0)
            number = int(problem or EPERM)
            raise OSError(number, os.strerror(number))

    def command_ended(self) -> None:
        """It ends, too, when nothing else of the job is left: see :meth:`let_end`. Called once."""
        self._is_last = True

    def let_end(self) -> None:
        """Have it end when none of its orphans is left, if the command has ended, and left no children of the guard.

        A process can make those with ``CLONE_PARENT``; they live in the namespace, and only as long as it.
        """
        if self._is_last and not set(tree.children(os.getpid())) - {self.pid}:
            self._is_last = False
            try:
                os.write(self._told, COMMAND_ENDED)
            except BrokenPipeError:
                pass  # the KILL that ended the job was for it, too

    def end(self) -> None:
        """Kill it, and all in the namespace."""
        try:
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                os.kill(self.pid, SIGKILL)
                os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # it has ended, and was waited for: its number may be another's


def _be_init(listening: int, answer: int, keep: tuple[int, ...]) -> None:
    """In the first process of the namespace, which has nothing of its guard but the descriptors to *keep*."""
    try:
        os.setsid()  # as whoever adopts orphans of the terminal: for the kernel no shell that could continue them
        if not keep:
            kernel.set_death_signal(SIGKILL)
        _let_go((listening, answer, *keep))
        changes = kernel.signal_descriptor([SIGCHLD])
        namespaces.mount_proc()  # last: the guard needs its own /proc for the way back
    except OSError as refused:
        os.write(answer, b"%d" % (refused.errno or EPERM))
        return
    os.write(answer, b"0")
    os.close(answer)
    kernel.set_process_name("lease-init", "lease-init of a contained job")
    poll = select.poll()
    poll.register(changes, select.POLLIN)
    poll.register(listening, select.POLLIN)
    command_ended = False
    while _has_children() or not command_ended:
        for descriptor, _ in poll.poll():
            if descriptor == changes:
                kernel.read_signals(changes)
            elif os.read(listening, len(COMMAND_ENDED)):
                command_ended = True
            else:  # the guard has ended
                _kill_others(changes)
                return


def _kill_others(changes: int) -> None:
    """Kill all others in the namespace, and return when none is left, or leave them to the kernel at last.

    One that is not our child, as the command is none, may be a zombie for as long as its parent likes: it gets a pause.
    """
    poll = select.poll()
    poll.register(changes, select.POLLIN)
    give_up = clock.monotonic() + UNENDED
    waits = os.getpid() == 1  # else that would be all processes of this host
    while waits:
        waits = _has_children() and clock.monotonic() < give_up
        try:
            os.kill(-1, SIGKILL)
        except ProcessLookupError:
            return
        poll.poll(SWEEP_PAUSE * 1000)
        kernel.read_signals(changes)


def _has_children() -> bool:
    """Reap who has ended; whether anybody is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _let_go(keep: tuple[int, ...]) -> None:
    """Close all descriptors but these: others wait for the end of what the guard has open, and for that of the job."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    for word in os.listdir("/proc/self/fd"):
        descriptor = int(word)
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the one that listed them
