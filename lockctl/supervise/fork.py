"""Forking the guard off the keeper, while the process is still small, and the keeper's handle on it."""

from __future__ import annotations

import os
from _signal import SIGKILL
from errno import EAGAIN, EPERM

from lockctl import kernel
from lockctl.errors import ConfigError
from lockctl.supervise import channel as wire
from lockctl.supervise import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.supervise.channel import Channel
    from lockctl.supervise.signals import Signals


JOB_VARIABLES = tuple(
    "LOCKCTL_" + word for word in ("LOCK", "TOKEN", "FENCING", "TOKENS", "TOKEN_DOMAIN", "OWNER", "BACKEND", "TTL")
)


class GuardProcess:
    """The guard as the keeper sees it."""

    def __init__(self, pid: int, link: Channel, *, on_terminal: bool, strangers: frozenset[int]) -> None:
        """A guard that waits for its orders at the other end of *link*."""
        self.pid = pid
        self.strangers = strangers  # children that this process had before the guard: not of the job
        self.on_terminal = on_terminal  # the command will share the keeper's process group
        self.link = link

    def tell_deadline(self, deadline: float) -> None:
        """The lease is ours until then; it answers with an ACK."""
        self.link.send(wire.DEADLINE, wire.number(deadline))

    def start(self, orders: bytes, environment: list[str], descriptors: tuple[int, ...]) -> None:
        """Have it start the command, with these variables and these descriptors of the locks beside it."""
        payload = b"\0".join((orders, *map(os.fsencode, environment)))
        self.link.send(wire.START, payload, descriptors)

    def dismiss(self) -> None:
        """Let it end, its work is done or there is none; to wait for it would take as long as to take a lock."""
        self.link.close()


def fork_guard(
    words: tuple[str, ...],
    environment: dict[str, str],
    signals: Signals,
    note: Callable[[str, str], None],
    finish_notes: Callable[[], None],
    *,
    eager: bool,
) -> GuardProcess:
    """Fork the guard, which will run *words* in *environment* when told to. In the guard this never returns.

    It is forked before the configuration is read and anything of a backend is loaded. *eager*: the order
    to start will come soon, so it may fork the command's process already. *note* takes a level and a line about
    what happens, without ever waiting; *finish_notes* is called when nothing is left to be done.
    Raises ``ConfigError`` where a command could not be watched over, ``OSError`` when there are no more processes
    or descriptors.
    """
    tree.hold_proc()
    for variable in JOB_VARIABLES:
        environment.pop(variable, None)  # those of an outer run
    kernel.become_subreaper()
    other, link = wire.pair()
    keeper_group = os.getpgrp()
    on_terminal = _has_terminal()
    strangers = frozenset(tree.children(os.getpid()))  # later, orphans of a killed guard would look the same
    pid = os.fork()
    if pid:
        link.close()
        return GuardProcess(pid, other, on_terminal=on_terminal, strangers=strangers)
    status = 70
    try:
        other.close()
        try:
            from lockctl.supervise.guard import Guard  # while the keeper takes the lock, on another processor

            guard = Guard(link, signals, words, keeper_group, note, on_terminal=on_terminal)
        except OSError as failure:  # no more descriptors
            link.send(wire.FAILED, b"%d" % (failure.errno or EAGAIN))
        except ConfigError:
            link.send(wire.FAILED, b"%d" % EPERM)
        else:
            guard.run(environment, eager=eager)
        status = 0
    except BaseException as bug:  # noqa: BLE001 - the tree must not live on after a bug
        tree.signal_all(os.getpid(), (int(SIGKILL),))
        note("warning", f"bug in the guard: {type(bug).__name__}: {bug}")
    finally:
        try:
            finish_notes()
        finally:
            os._exit(status)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal: job control then goes by the process group."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True
