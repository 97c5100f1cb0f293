"""Forking the guard off the keeper, while the process is still small, and the keeper's handle on it."""

from __future__ import annotations

import os
from _signal import SIGKILL
from errno import EAGAIN, ENXIO, EPERM
from time import monotonic, sleep

from lockctl import clock, kernel, loading  # noqa: F401 - what both processes need is loaded once, before the fork
from lockctl.errors import EXHAUSTED, ConfigError
from lockctl.supervise import channel as wire
from lockctl.supervise import tree
from lockctl.supervise.orders import JOB_VARIABLES, Orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.lease.schedule import Schedule
    from lockctl.supervise.channel import Channel
    from lockctl.supervise.guard import Guard
    from lockctl.supervise.signals import Signals


WAITING, RUNNING, OVER = range(3)  # a job, of which nothing is left in the end
MOST_TO_END = 1.0  # seconds for a guard that was killed
FIRST_LOOK = 0.0002  # seconds until it is looked for again, doubled each time
MOST_PROCESSORS = 1024  # of glibc's cpu_set_t


class GuardProcess:
    """The guard as the keeper sees it."""

    def __init__(self, pid: int, link: Channel, *, on_terminal: bool, strangers: frozenset[int]) -> None:
        """A guard that waits for its orders at the other end of *link*."""
        self.pid = pid
        self.ended = False  # and waited for: its number may be another's by now
        self.job = WAITING
        self.strangers = strangers  # children of this process that are not of the job: it had them before the guard
        self.on_terminal = on_terminal  # the command will share the keeper's process group
        self.link = link
        self.ordered = False  # to start the command, which it may then have done
        self.unordered = 0, ""  # errno for which it could not be, although it is there, and a line about it
        self._knows_deadline = True  # the last one that there was
        self.waits_for_rest = False  # the job is over when nobody is left who outlives the command

    def tell_deadline(self, deadline: float) -> None:
        """The lease is ours until then; it answers with an ACK."""
        self._knows_deadline = self.link.send(wire.DEADLINE, deadline)

    def start(self, orders: Orders, schedule: Schedule, environment: list[str], descriptors: tuple[int, ...]) -> None:
        """Have it start the command, with these variables and these descriptors of the locks beside it.

        If it was killed before, or cannot be told, :attr:`ordered` stays false, and nothing runs.
        """
        self.job = RUNNING
        self.waits_for_rest = orders.leftover == "wait"
        self.ordered = self._knows_deadline and self.link.send(
            wire.START, *orders.encode(schedule), tuple(map(os.fsencode, environment)), descriptors=descriptors
        )
        if not self.ordered:
            number = self.link.failure
            self.unordered = number, "" if number in (0, *EXHAUSTED) else str(kernel.refusal("sendmsg", number))

    def tell_manner(self, *, as_json: bool, verbose: bool, quiet: bool, log: str | None) -> None:
        """Have it say in this manner what it notes, and at the place *log*, too. Before :meth:`start`."""
        self.link.send(wire.MANNER, as_json, verbose, quiet, log)

    def learn_strangers(self) -> None:
        """Take their orphans for strangers, too: as long as the guard lives, no orphan of the job becomes our child.

        Called when a child was waited for: its number may be another's from then on.
        """
        if not self.strangers or self.ended:
            return
        present = frozenset(tree.children(os.getpid())) - {self.pid}
        state = tree.stat_fields(self.pid)  # after them: it lived when they were read
        if state is not None and state[0] not in (b"Z", b"X"):
            self.strangers = present

    def kill(self) -> None:
        """End it at once; what it has forked then becomes this process's child."""
        if not self.ended:
            tree.send(self.pid, SIGKILL)

    def dismiss(self) -> None:
        """End it and wait for it: where nobody reaps orphans, it would stay as a zombie.

        While its job runs (there was a bug), it is only left alone: then it stops the job.
        """
        self.link.close()
        if self.job == RUNNING:
            return
        self.kill()
        if self._is_over():
            return  # it was killed a while ago
        until, pause = monotonic() + MOST_TO_END, FIRST_LOOK
        if not self.ended:
            self._await_end()
        while not self._is_over() and monotonic() < until:
            sleep(pause)
            pause *= 2

    def _await_end(self) -> None:
        import select  # by now the keeper has loaded it

        try:
            descriptor = kernel.process_descriptor(self.pid)
        except (OSError, ConfigError):
            return  # gone, or it cannot be had here: then it is looked for
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(MOST_TO_END * 1000)
        os.close(descriptor)

    def _is_over(self) -> bool:
        """Whether nothing of it is left: neither itself nor, if nothing ran, what waited to become the command."""
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self.ended = self.ended or pid == self.pid
        except ChildProcessError:
            self.ended = True
            return True
        if self.job == OVER or not self.ended:
            return self.ended
        return bool(self.strangers) and not frozenset(tree.children(os.getpid())) - self.strangers


def fork_guard(
    words: tuple[str, ...],
    environment: dict[str, str],
    signals: Signals,
    note: Callable[..., None],
    finish_notes: Callable[[], None],
    set_manner: Callable[[bool, bool, bool, str | None], None] | None = None,
) -> GuardProcess:
    """Fork the guard, which will run *words* in *environment* when told to. In the guard this never returns.

    It is forked before the configuration is read and anything of a backend is loaded. *note* takes a level, a line
    about what happens and an event, without ever waiting; *finish_notes* is called when nothing is left to be done, and
    *set_manner* with what :meth:`GuardProcess.tell_manner` says.
    Raises ``ConfigError`` where a command could not be watched over, ``OSError`` when something is used up.
    """
    tree.hold_proc(starts=True)
    kernel.become_subreaper()
    other, link = wire.pair()
    on_terminal = _has_terminal()
    strangers = frozenset(tree.children(os.getpid()))  # later, orphans of a killed guard would look the same
    pid = os.fork()
    if pid:
        put_beside(pid)
        link.close()
        return GuardProcess(pid, other, on_terminal=on_terminal, strangers=strangers)
    status = 70

    def make() -> Guard:
        loading.load(loading.GUARD)
        from lockctl.supervise import guard, starting  # while the keeper takes the lock, on another processor

        begin = starting.Starting(link, signals, words, set_manner, on_terminal=on_terminal)
        return guard.Guard(link, begin, note, on_terminal=on_terminal)

    try:
        other.close()
        _be_guard(make, environment, link)
        status = 0
    except BaseException as bug:  # noqa: BLE001 - the tree must not live on after a bug
        tree.signal_all(os.getpid(), (int(SIGKILL),))
        note("warning", f"bug in the guard: {type(bug).__name__}: {bug}")
    finally:
        try:
            finish_notes()
        finally:
            os._exit(status)


def put_beside(pid: int) -> None:
    """Put a process that was just forked on another processor, where it can run while this one goes on.

    A kernel may leave it behind its parent on one processor while another is idle: seen in 8 of 10 forks on a virtual
    machine, for 3.5 ms. Done only if this process may use all processors there are: the other one then gets all back,
    also those that are added later. What the kernel does not permit is left out: the start is only slower then.
    """
    here, there_are = kernel.call("sched_getcpu"), os.cpu_count() or 1
    try:
        usable = len(os.sched_getaffinity(0))
    except OSError:
        return
    if not (0 <= here < MOST_PROCESSORS and 2 <= there_are <= usable):
        return
    bits = 8 * kernel.LONG
    every = [(1 << bits) - 1] * (MOST_PROCESSORS // bits)
    others = every.copy()
    others[here // bits] -= 1 << here % bits
    for processors in (others, every):
        kernel.call("sched_setaffinity", pid, MOST_PROCESSORS // 8, kernel.pack(processors, kernel.LONG))


def _be_guard(make: Callable[[], Guard], environment: dict[str, str], link: Channel) -> None:
    """In the child: what cannot be had is told to the keeper."""
    for variable in JOB_VARIABLES:
        environment.pop(variable, None)  # those of an outer run
    try:
        guard = make()
    except OSError as failure:  # no more descriptors
        link.send(wire.FAILED, failure.errno or EAGAIN, "")
    except ConfigError as refused:
        link.send(wire.FAILED, EPERM, str(refused))
    else:
        guard.run(environment)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal: job control then goes by the process group.

    Raises ``OSError`` when there are no more descriptors.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as failure:
        if failure.errno in EXHAUSTED:
            raise
        # else there is none, or no such file, as in a bare chroot; not every /proc tells, so it is not asked first
        fields = None if failure.errno == ENXIO else tree.stat_fields(os.getpid())
        return fields is not None and fields[4] != b"0"  # tty_nr
    return True
