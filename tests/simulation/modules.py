"""What the code of lockctl finds instead of the modules through which it sees the world.

Real is everything else: taking, renewing, giving back, the loops of keeper and guard, their channel, the locks.
Replaced in the namespaces of lockctl's modules are ``os``, ``select``, ``time``, ``_thread``, ``_socket``,
``lockctl.kernel``, ``lockctl.supervise.tree``, the fork of the command and what it executes, and of ``lockctl.clock``
the readings and the pause. In place of psycopg2 and PyMySQL are the drivers in ``postgresql`` and ``mysql``.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import gc
import importlib
import os
import select
import sys
import time
from _signal import SIGCHLD
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit

import lockctl.cli.messages  # noqa: F401 - loaded before the clocks stand still
from lockctl import clock, kernel, loading, mounts, stores
from lockctl.lease import acquire, admission, attempts, conclude, period, renew, together  # noqa: F401
from lockctl.locks import cell, driver, inspect, lock_cells, machine, objects, prune, records  # noqa: F401
from lockctl.stores.file import holder as file_holder
from lockctl.stores.file import inspect as file_inspect
from lockctl.stores.file import layout, queue, share, wait
from lockctl.stores.file import lease as file_lease
from lockctl.stores.mysql import address as mysql_address
from lockctl.stores.mysql import cell as mysql_cell  # noqa: F401
from lockctl.stores.mysql import session as mysql_session
from lockctl.stores.postgresql import session
from lockctl.stores.sqlite import cell as sqlite_cell
from lockctl.stores.sqlite import wait as sqlite_wait
from lockctl.supervise import channel, child, fork, guard, keeper, preload, rehearsal, signals, starting, tree  # noqa: F401
from lockctl.wire import answer, deadline, stream
from tests.simulation import files, flock, logins, mysql, postgresql, sqlite, values
from tests.simulation.files import nothing
from tests.simulation.processes import me
from tests.simulation.system import End, Pipe, Poll, Signalled, Timer
from tests.simulation.world import INFINITE, Here, Mutex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.processes import Process

LATER = ("history",)  # what runs load when they need it, and the files of these stores:
FOLDERS = ("consul", "etcd", "file", "postgresql", "redis", "redlock", "zookeeper")
NOT_OF_RUNS = ("cell", "doctor", "driver")  # files there
REPLACED = ("lease", "locks", "supervise", "wire", "stores", "runner", "request")
MONOTONIC = 1
# of who looks at a cell again and again, which shows nothing most of the time; others are told of each change there
LOOK = 0.1  # seconds between two looks of one who has just come
GROWTH = 0.15  # seconds for each second of waiting
ALL_SIGNALS = frozenset(range(1, 65))


def _now(_: object = None) -> float:
    """What the boot clock shows."""
    world = Here.world
    process: Process = world.thread.process  # type: ignore[union-attr]
    process.steps = steps = process.steps + 1  # as `World.step`, without a call: nothing else is done as often
    if steps >= process.heeds:
        world.heed(process)
    clock = process.clock
    return clock.base + clock.rate * world.now


def _monotonic() -> float:
    return _now() - me().clock.slept


def _clock(clock_id: int) -> float:
    return _monotonic() if clock_id == MONOTONIC else _now()


def _wall() -> float:
    return me().clock.wall()


def _pause(seconds: float, interrupt: int | None = None) -> bool:
    poll = Poll()
    if interrupt is not None:
        poll.register(interrupt)
    return bool(poll.poll(seconds * 1000))


def _boot_id() -> str:
    return f"00000000-0000-0000-0000-{Here.world.files.boots:012}"


def _urandom(size: int) -> bytes:
    return Here.world.random.randbytes(size)


def _start_thread(body: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if me().threadless_until > Here.world.now:
        raise RuntimeError("can't start new thread")
    Here.world.start(me(), lambda: body(*arguments))


def _pipe2(_: int) -> tuple[int, int]:
    if me().full_until > Here.world.now:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    pipe = Pipe()
    return pipe.number, pipe.number


def _pipe_of_two(_: int) -> tuple[int, int]:
    """For ``bounded``: its reading end, and minus that, the writing end."""
    pipe = Pipe()
    return pipe.number, -pipe.number


def _close_one(number: int) -> None:
    if number < 0:
        Here.world.descriptors[-number].finish()


def _read(descriptor: int, size: int) -> bytes:
    data: bytes = Here.world.descriptors[descriptor].read(size)
    return data


def _write(descriptor: int, data: bytes) -> int:
    Here.world.step()
    written: int = Here.world.descriptors[descriptor].write(data)
    return written


def _waitpid(pid: int, flags: int) -> tuple[int, int]:
    world = Here.world
    world.step()
    while True:
        found = me().wait(pid, flags)
        if found[0] or flags & os.WNOHANG:
            return found
        world.block(world.now + 0.01)


def _socketpair(*_: object) -> tuple[End, End]:
    one, other = End(), End()
    one.peer, other.peer = other, one
    return one, other


def _suspend(_: int) -> None:
    """Stands for that of ``supervise.signals``: whoever continues the command continues this process, too."""
    world, process = Here.world, me()
    world.step()
    if world.now < process.suspended_until:
        process.stop(process.suspended_until - world.now)
        world.block(world.now)


def _virtual(module: Any, **replaced: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(module), **replaced})


def _send(pid: int, signum: int) -> bool:
    Here.world.step()
    process = me().system.alive(pid)
    if process is None:
        return False
    process.take(int(signum), 0, me().pid)
    return True


OS = _virtual(
    os,
    getpid=lambda: me().pid,
    getppid=lambda: getattr(me().parent, "pid", 1),
    sched_getaffinity=lambda _: {0},
    sched_setscheduler=nothing,
    sched_yield=nothing,
    setpgid=nothing,
    setsid=nothing,
    set_inheritable=nothing,
    set_blocking=nothing,
    urandom=_urandom,
    pipe2=_pipe2,
    dup=lambda _: Pipe().number,
    read=_read,
    write=_write,
    close=lambda number: me().let_go(Here.world.descriptors[number]),
    waitpid=_waitpid,
    kill=_send,
)
FILES = _virtual(OS, **files.OPERATIONS)
FCNTL = _virtual(fcntl, flock=flock.flock, lockf=flock.lockf, fcntl=flock.control)
SELECT = _virtual(select, poll=Poll)
TIME = _virtual(
    time,
    sleep=_pause,
    monotonic=_monotonic,
    monotonic_ns=lambda: int(_monotonic() * 1e9),
    clock_gettime=_clock,
    time=_wall,
    time_ns=lambda: int(_wall() * 1e9),
)
THREAD = SimpleNamespace(
    allocate_lock=Mutex,
    _count=lambda: 1,  # beside other threads no limit of the process is set
    start_new_thread=_start_thread,
)
GC = _virtual(gc, freeze=nothing, enable=nothing)
SOCKET = _virtual(_socket, socketpair=_socketpair)


def _signal_all(root: int, signums: tuple[int, ...], spare: frozenset[int] = frozenset()) -> int:
    Here.world.step()
    reached = [each for each in _below(root) if each.pid not in spare and not each.dead]
    for each in reached:
        for signum in signums:
            each.take(int(signum), 0, me().pid)
    return len(reached)


def _below(pid: int) -> Iterable[Process]:
    return me().system.processes[pid].descendants()


def _stat_fields(pid: int) -> tuple[bytes] | None:
    process = me().system.alive(pid)
    return None if process is None else (b"T" if process.stopped else b"S",)


def _start_time(pid: int) -> int | None:
    return pid if me().system.alive(pid) else None


TREE = SimpleNamespace(
    hold_proc=nothing,
    send=_send,
    signal_all=_signal_all,
    children=lambda pid: [each.pid for each in me().system.processes[pid].children],
    descendants=lambda root, spare=frozenset(): [
        each.pid for each in _below(root) if not each.dead and each.pid not in spare
    ],
    named=lambda pids: ", ".join(map(str, pids)),
    stat_fields=_stat_fields,
    start_time=_start_time,
    pid_namespace=lambda: file_inspect.INITIAL_PID_NAMESPACE,
    parent_of=nothing,
)


def _signal_descriptor(wanted: Iterable[int], descriptor: int = -1) -> int:
    if descriptor >= 0:
        Here.world.descriptors[descriptor].wanted = frozenset(wanted)
        return descriptor
    queue = Signalled(frozenset(wanted))
    me().signals.append(queue)
    return queue.number


def _set_timer(descriptor: int, at: float | None) -> None:
    Here.world.step()
    Here.world.descriptors[descriptor].set(at)


def _become_subreaper() -> None:
    me().reaps = True


def _die_with_parent(_: int) -> None:
    me().dies_with_parent = True


def _forked(body: Callable[[], None]) -> int:
    """Stands for that of ``stores.file.wait``."""
    Here.world.step()
    process = me().forked(f"{me().name}'s helper")

    def run() -> None:
        with contextlib.suppress(Exception):  # it ends, and nobody hears why
            body()

    process.start(run)
    return process.pid


KERNEL = _virtual(
    kernel,
    signal_descriptor=_signal_descriptor,
    read_signals=lambda descriptor: Here.world.descriptors[descriptor].read(),
    timer_descriptor=lambda clock_id: Timer(me().clock, sleeps=clock_id == MONOTONIC).number,
    set_timer=_set_timer,
    clear_timer=lambda descriptor: Here.world.descriptors[descriptor].set(None),
    set_process_name=nothing,
    become_subreaper=_become_subreaper,
    set_death_signal=_die_with_parent,
    unlock=flock.unlock,
    free=lambda descriptor: flock.flock(descriptor, kernel.LOCK_UN),
)


class Child(child.Child):
    """Stands for the fork in ``supervise.child.Child``: what its process does until it executes the command is real."""

    make: Callable[[Process], Any]  # the process for a guard: whoever knows the jobs sets it

    def __init__(
        self, words: object, environment: object, signals: object, *, own_group: bool, contained: bool = False
    ):
        world, parent = Here.world, me()
        world.step()
        self._link, other = channel.pair()
        process = Child.make(parent)
        parent.owned.append(world.descriptors[self._link.fileno])
        process.owned.append(world.descriptors[other.fileno])
        self.pid, self.failed = process.pid, process.failed.number
        blocked = Signals(process)  # they were before the fork

        def wait() -> None:
            variables = dict[str, str]()
            number, refused = child._become_command(parent.pid, other, ("job",), variables, blocked)
            if number:
                process.failed.write(b"%d %s" % (number, refused.encode()))
            process.end(127 << 8)

        world.start(process, wait, prompt=True)
        self._process = process

    def go(self, variables: tuple[bytes, ...], lock_descriptors: tuple[int, ...]) -> bool:
        """See the real one."""
        is_told = super().go(variables, lock_descriptors)
        if is_told:
            self._process.lateness = Here.world.chance()
        return is_told


def _execute(_: object, variables: dict[str, str]) -> None:
    """Stands for that of ``supervise.child``."""
    job: Any = me()
    job.execute_soon(tuple([os.fsencode(f"{name}={content}") for name, content in variables.items()]))
    raise GreenletExit


def _keep(descriptor: int, _: object) -> None:
    """The command inherits it."""
    me().receive(Here.world.descriptors[descriptor])


class Signals(signals.Signals):
    """Nothing is blocked: signals come from the world."""

    def __init__(self, process: Process | None = None) -> None:
        """Those of a *process*, or of this one."""
        queue = Signalled(ALL_SIGNALS - {int(SIGCHLD)})
        (process or me()).signals.append(queue)
        self.original_mask, self.child_ignored = frozenset(), False
        self.descriptor = queue.number
        self.ignored = frozenset()

    def restore_for_command(self) -> None:
        """See the real one."""


def _connect(self: stream.Endpoint, until: deadline.Deadline) -> Any:
    link: Any = Here.world.connect(me().clock, self.host, until, self.where)
    return link


def _connecting(self: stream.Endpoint, until: deadline.Deadline) -> deadline.Steps[Any]:
    yield None
    return self.connect(until)


def put(module: Any, name: str, content: Any) -> None:
    """Replace what a module has of that name."""
    if not hasattr(module, name):
        raise AttributeError(f"{module.__name__} has no {name}: the simulation would leave it as it is")
    setattr(module, name, content)


def _install_for_mysql() -> None:
    """Replace what PyMySQL is given, and its class of connections."""
    put(mysql_session, "_bounded", lambda _: mysql.Connection)
    for module in (mysql_session, mysql_address):
        put(module, "socket", mysql.SOCKET)
    put(deadline, "os", _virtual(OS, pipe2=_pipe_of_two, close=_close_one))


def _install_for_sqlite() -> None:
    """Replace its connections, and the sockets of the host."""
    put(sqlite_cell, "Connection", sqlite.Connection)
    put(sqlite_cell, "identity", sqlite.identity)
    put(sqlite_cell, "make_file", lambda _path: None)  # its connections make it
    put(sqlite_cell, "_boot_id", _boot_id)
    put(sqlite_wait, "_socket", sqlite.SOCKET)


def _stand_between(directory: int, file: str, old: int) -> None:
    """Stands for that of ``stores.file.lease``: a process that nobody is the parent of."""
    parent = me()
    process = parent.forked(f"{parent.name}'s helper")
    parent.children.remove(process)
    process.parent = None
    process.start(lambda: file_lease._stay(directory, file, old))


def _install_for_files() -> None:
    """Replace what is said of processes and of the host in /proc."""
    put(file_lease, "_stand_between", _stand_between)
    put(wait, "_forked", _forked)
    put(queue, "_lines", files.lines)
    put(queue, "_is_frozen", lambda _: False)
    put(tree, "start_time", _start_time)
    put(tree, "pid_namespace", TREE.pid_namespace)
    put(mounts, "filesystem", lambda *_: "ext4")
    put(mounts, "superblock", lambda _, device: device)
    for module in (layout, file_holder):
        put(module, "boot_id", _boot_id)
    for name in ("_user_of", "_command_of"):
        put(file_inspect, name, nothing)
    put(file_inspect, "_name_of", lambda _: b"")
    for module in (kernel, share):
        put(module, "unlock", flock.unlock)


def install() -> None:
    """Replace, in all modules that are loaded now; nothing of lockctl works in the real world afterwards."""
    files = [
        f"stores.{folder}.{path.stem}"
        for folder in FOLDERS
        for path in sorted((Path(stores.__path__[0]) / folder).glob("[a-z]*.py"))
        if path.stem not in NOT_OF_RUNS
    ]
    for name in (*LATER, *files):
        importlib.import_module(f"lockctl.{name}")
    clocks = {
        "wall": (clock.wall, _wall),
        "boottime": (clock.boottime, _now),
        "monotonic": (clock.monotonic, _monotonic),
    }
    replaced = {
        "os": OS,
        "fcntl": FCNTL,
        "select": SELECT,
        "_thread": THREAD,
        "_socket": SOCKET,
        "kernel": KERNEL,
        "tree": TREE,
    }
    for name, module in list(sys.modules.items()):
        if name.startswith("lockctl.") and name.split(".")[1] in REPLACED and module is not tree:
            for attribute in replaced.keys() & vars(module).keys():
                put(module, attribute, replaced[attribute])
            if name.startswith("lockctl.stores.file.") and hasattr(module, "os"):
                put(module, "os", FILES)
            if getattr(module, "time", None) is time:
                put(module, "time", TIME)
            for attribute, (real, ours) in clocks.items():
                if getattr(module, attribute, None) is real:
                    put(module, attribute, ours)
    values.install()
    put(answer, "seconds", lru_cache(maxsize=1000)(answer.seconds))  # most answers of a history have the same dates
    sys.modules["lockctl.stores.postgresql.driver"] = stores.postgresql.driver = postgresql
    put(session, "_memory", lambda: 0)
    put(session.Session, "_received", lambda _: 0)
    _install_for_mysql()
    _install_for_files()
    _install_for_sqlite()
    logins.install(put)
    put(clock.Clock, "__call__", lambda self: _clock(self.clock_id))
    put(clock, "wall", _wall)
    put(clock, "pause", _pause)
    put(stream.Endpoint, "connect", _connect)
    put(stream.Endpoint, "connecting", _connecting)
    put(driver, "FIRST_LOOK", LOOK)
    put(driver, "GROWTH", GROWTH)
    put(deadline, "NAP", INFINITE)  # nothing is ever suspended here without its processes
    put(starting, "Child", Child)
    put(child, "_exec", _execute)
    put(child, "os", _virtual(OS, dup2=_keep))
    put(rehearsal, "of_command", nothing)
    put(keeper, "gc", GC)
    put(keeper, "suspend", _suspend)
    put(fork, "monotonic", _monotonic)
    put(fork, "sleep", _pause)
    put(preload, "load_rest", nothing)
    put(loading, "load", nothing)
