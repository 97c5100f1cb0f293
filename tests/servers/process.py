"""A server as a process: started, waited for, paused, killed, and never left behind.

Each server is a class with the same verbs. `launch` starts it, `await_answer` waits until it answers a request of
its own protocol, `start` is both. Servers die with the process that started them, whatever kills it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Self

HOST = "127.0.0.1"
START_LIMIT = 60.0  # seconds: Java on a busy machine
STOP_LIMIT = 10.0  # seconds after SIGTERM, then SIGKILL
ASK_LIMIT = 2.0  # seconds for one question whether a server answers
PORTS = range(12000, 32000)  # below those that the kernel usually gives to clients
PORT_TAKEN = "ddress already in use"  # what every server says in its log, by strerror(3) or in Java's words
PORT_LIMIT = 20.0  # seconds in which whoever took the port of a stopped server is expected to be gone

# The kernel kills a server when the *thread* that started it ends: this one ends with the process.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter-of-servers")
BLOCK = 200  # ports that one test process takes for itself at a time
_claims: list[socket.socket] = []  # one for each block
_free: list[int] = []  # ports of our blocks that were not given yet
_giving = threading.Lock()


class ServerError(Exception):
    """A server did not start, or did not do what it was told; with the end of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that no test process on this machine was given before.

    It stays given while this process lives, so that a server that was stopped finds its own free again.
    """
    with _giving:
        while True:
            if not _free:
                _free.extend(_claim_block())
            port = _free.pop()
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port


def _claim_block() -> Sequence[int]:
    """Ports that no other test process on this machine takes.

    A name in the kernel's abstract namespace says so to the others, and goes when this process goes.
    """
    starts = list(range(PORTS.start, PORTS.stop - BLOCK + 1, BLOCK))
    random.SystemRandom().shuffle(starts)  # not seeded by pytest-randomly: two runs beside each other differ
    for start in starts:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0lockctl-tests-ports-{start}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return range(start, start + BLOCK)
    raise ServerError(f"no ports of {HOST} are left: is another run of the tests still there?")


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_there(pid: int) -> bool:
    """Whether a process has anything open: not when it is gone, or a zombie."""
    return _state(Path(f"/proc/{pid}/stat")) not in "ZX"


def _state(stat: Path) -> str:
    """The letter that the kernel has for the state of a process or a thread, see proc(5); X, dead, if it is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _stop(pids: Sequence[int]) -> None:
    """Stop these processes; no thread of them runs any more: one must hear of SIGSTOP before it stops the others."""
    signal_all(pids, signal.SIGSTOP)
    give_up = time.monotonic() + STOP_LIMIT
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            while _state(task) not in "TtZX" and time.monotonic() < give_up:
                time.sleep(0.001)


class Server(ABC):
    """One server on 127.0.0.1 with a directory of its own."""

    programs: ClassVar[tuple[str, ...]]  # what must be on the machine
    refuses_root: ClassVar[bool] = False
    stop_signal: ClassVar[int] = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        """Start nothing yet. *directory* is made if it is not there. Raises ``ProgramMissing``."""
        for name in self.programs:
            programs.find(name)
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.host = HOST
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._mourner: subprocess.Popen[bytes] | None = None
        self._configured = False
        self._initialised = False

    # What each server says about itself

    @abstractmethod
    def _configure(self) -> None:
        """Write the files that it reads. Called once before the first start, and after a wipe of the directory."""

    @abstractmethod
    def _words(self) -> Sequence[str]:
        """The command that runs in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does its work now. An ``OSError`` or ``RuntimeError`` means no."""

    def _initialise(self) -> None:  # noqa: B027 - most need nothing
        """Make users and the like, once when it answers for the first time."""

    def _variables(self) -> dict[str, str]:
        return {}

    # What tests do with every server

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process is there, also when it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process that was started; others may be below it."""
        if self._process is None:
            raise ServerError(f"{self} was not started")
        return self._process.pid

    def launch(self) -> Self:
        """Start the process and do not wait for it."""
        if self.running:
            raise ServerError(f"{self} runs already")
        if not self._configured:
            self._configure()
            self._configured = True
        # The order matters: a change of the user takes back what was asked for the death of the parent.
        user = programs.as_ordinary_user() if self.refuses_root else ()
        words = [*user, "setpriv", "--pdeathsig=KILL", *self._words()]
        variables = programs.environment(**self._variables())

        def start() -> subprocess.Popen[bytes]:
            with (self.directory / "log").open("ab") as log:
                return subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=variables,
                    cwd=self.directory,
                    start_new_session=True,  # Ctrl-C in a terminal is for pytest, which stops them in order
                )

        self._process = _starter.submit(start).result()
        return self

    def await_answer(self, limit: float = START_LIMIT) -> Self:
        """Wait until it answers. Raises ``ServerError`` when it ends, or after *limit* seconds."""
        give_up = time.monotonic() + limit
        reason = ""
        while True:
            if not self.running:
                raise ServerError(f"{self} ended at once: {self.log()[-2000:]}")
            try:
                if self._answers():
                    break
            except (OSError, RuntimeError) as error:
                reason = f" ({error})"
            if time.monotonic() > give_up:
                raise ServerError(f"{self} does not answer after {limit:g} s{reason}: {self.log()[-2000:]}")
            time.sleep(0.03)
        if not self._initialised:
            self._initialise()
            self._initialised = True
        return self

    def start(self) -> Self:
        """Start it and wait until it answers; again for a while if a passing client has its port."""
        give_up = time.monotonic() + PORT_LIMIT
        while True:
            before = len(self.log())
            try:
                return self.launch().await_answer()
            except ServerError:
                self.kill()
                if PORT_TAKEN not in self.log()[before:] or time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
            except BaseException:
                self.kill()
                raise

    def stop(self) -> None:
        """End it as an operator does; by force if that takes too long. May be called again."""
        if self.running and self._process is not None:
            self.resume()
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End all its processes at once, as a power cut; its files stay."""
        if self._process is not None:
            below = []
            if self.running:
                _stop([self.pid])  # so that it starts no other meanwhile
                below = descendants(self.pid)
                signal_all([self.pid, *below], signal.SIGKILL)
            self._process.wait(STOP_LIMIT)
            give_up = time.monotonic() + STOP_LIMIT
            while any(map(_is_there, below)) and time.monotonic() < give_up:
                time.sleep(0.005)
        self._end_mourner()
        self._process = None

    def restart(self) -> Self:
        """Stop and start it with the same files and ports."""
        self.stop()
        return self.start()

    def wipe(self) -> None:
        """Forget all data. It may be started anew for this."""
        self.kill()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self._configured = self._initialised = False
        self.start()

    def discard(self) -> None:
        """End it for good and remove its files: an etcd alone has 64 MiB of them."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pause(self) -> None:
        """Stop all its processes where they are: connections stay open and nothing answers."""
        if not self.running:
            raise ServerError(f"{self} does not run")
        _stop([self.pid])  # first, so that it starts no other meanwhile
        below = descendants(self.pid)
        _stop(below)
        if below and self._mourner is None:
            # They would learn of the death of their parent only when they go on: if we die, nobody makes them.
            words = ["sh", "-c", 'read -r _ || kill -KILL "$@"', "sh", *map(str, below)]
            self._mourner = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def resume(self) -> None:
        """Let them go on. Does nothing when it was not paused."""
        self._end_mourner()
        if self.running:
            signal_all([*descendants(self.pid), self.pid], signal.SIGCONT)

    def _end_mourner(self) -> None:
        if self._mourner is not None:
            self._mourner.kill()
            self._mourner.communicate()
            self._mourner = None

    def log(self) -> str:
        """What it wrote."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{type(self).__name__} on {self.address}"


class Group:
    """Servers that belong together. What is done to the group is done to each; single ones are in ``members``."""

    members: Sequence[Server]

    @property
    def addresses(self) -> list[str]:
        """``HOST:PORT`` of each member."""
        return [member.address for member in self.members]

    @property
    def running(self) -> bool:
        """Whether all of them run."""
        return all(member.running for member in self.members)

    def start(self) -> Self:
        """Start all at once and wait until each answers."""
        try:
            self._launch()
            for member in self.members:
                member.await_answer()
            self._await_agreement()
        except BaseException:
            self.kill()
            raise
        return self

    def _launch(self) -> None:
        for member in self.members:
            if not member.running:
                member.launch()

    def _await_agreement(self) -> None:
        """Wait until they know each other, where a member answers earlier than that."""

    def stop(self) -> None:
        """End all, beside each other."""
        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda member: member.stop(), self.members))

    def kill(self) -> None:
        """End all at once."""
        for member in self.members:
            member.kill()

    def discard(self) -> None:
        """End all for good and remove their files."""
        for member in self.members:
            member.discard()

    def restart(self) -> Self:
        """Stop all, then start all."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Stop all where they are."""
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        """Let all go on."""
        for member in self.members:
            member.resume()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()


def wait_until(condition: Callable[[], object], what: str, limit: float = START_LIMIT) -> None:
    """Wait until a call without arguments gives a true answer. Raises ``ServerError``."""
    give_up = time.monotonic() + limit
    while True:
        with contextlib.suppress(OSError, RuntimeError):
            if condition():
                return
        if time.monotonic() > give_up:
            raise ServerError(f"not after {limit:g} s: {what}")
        time.sleep(0.05)
