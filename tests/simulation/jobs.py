"""The processes of jobs: they run for a while, heed TERM or not, and may leave another process behind."""

from __future__ import annotations

from _signal import SIGCHLD, SIGCONT, SIGKILL, SIGTSTP
from errno import ENOENT
from typing import TYPE_CHECKING

from tests.simulation.plan import ENDS_A_WAIT
from tests.simulation.processes import Process
from tests.simulation.system import Answers
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from tests.simulation.record import RunRecord

STOPPED, CONTINUED = 0x7F, 0xFFFF  # in a status of ``waitpid``
SLOWEST_EXEC = 0.01  # seconds from the order to start to the first step of the command


class Job(Process):
    """One process of a job: the command, parked until it gets the order to start, or what the command started."""

    def __init__(self, record: RunRecord, parent: Process, *, is_command: bool) -> None:
        super().__init__(parent.system, f"job {record.number}", parent.clock, parent)
        self._record = record
        self._is_command = is_command
        self.failed = Answers()
        self.lateness = 0.0  # of its first step, as a part of what it may be
        self._lives: list[float] | None = None
        self._is_stray = False
        self._forks = record.plan.forks  # while it is killed
        self._ends_at = 0.0  # by itself
        self._held_back: list[int] = []  # signals that wait until it is continued

    def execute_soon(self, variables: tuple[bytes, ...]) -> None:
        """It becomes the command. Raises ``OSError`` where there is none."""
        world = Here.world
        when = world.now + SLOWEST_EXEC * self.lateness
        if not self._record.plan.executable:
            world.block(when)
            raise FileNotFoundError(ENOENT, "no such command")
        self._record.told = variables
        world.at(when, self.execute)

    def execute(self) -> None:
        """The first step."""
        world, record = Here.world, self._record
        if self.dead:
            return
        self._lives = [world.now, INFINITE]
        self.dying = record.plan.dying
        record.lived.append(self._lives)
        if self._is_command:
            world.tell(record.name, "the command starts")
            self.failed.finish()
            self._ends_at = world.now + record.plan.length
            world.at(self._ends_at, self._end_by_itself)
            if record.plan.outlived:
                other = Job(record, self, is_command=False)
                other.inherit()
                other.execute()
        for waiting in self.signals:  # until it has a mask of its own
            for signum, _, _ in waiting.read():
                self.take(signum)

    def _end_by_itself(self) -> None:
        if not self.stopped and Here.world.now >= self._ends_at:
            self.end(0 if self._record.plan.succeeds else 256)

    def halt(self, seconds: float, *, by_signal: bool) -> None:
        """Be stopped on the terminal, and continued there after so many seconds, or *by_signal* alone."""
        world = Here.world
        if self.dead or self.killed or self._lives is None or self.parent is None:
            return
        world.tell(self._record.name, f"the command is stopped on its terminal for {seconds:.3f} s")
        self.stopped = True
        self._ends_at += seconds
        self._is_told(SIGTSTP << 8 | STOPPED)
        if not by_signal:
            world.at(world.now + seconds, self.go_on)

    def go_on(self) -> None:
        """SIGCONT."""
        if self.dead or not self.stopped:
            return
        world = Here.world
        world.tell(self._record.name, "the command is continued")
        self.stopped = False
        self._is_told(CONTINUED)
        world.at(max(world.now, self._ends_at), self._end_by_itself)
        waiting, self._held_back = self._held_back, []
        for signum in waiting:
            self._heed(signum)

    def _is_told(self, status: int) -> None:
        """The parent hears of a change."""
        self.changes.append(status)
        if self.parent is not None:
            self.parent.take(int(SIGCHLD), 1, self.pid)

    def take(self, signum: int, code: int = 0, sender: int = 0) -> None:
        """See ``Process``."""
        if self._lives is None and signum != SIGKILL:
            super().take(signum, code, sender)
            return
        if self._lives is not None and not self.dead:
            self._record.signalled.append((Here.world.now, signum))
            if not self._is_command:
                self._record.signalled_beside.append((Here.world.now, signum))
            Here.world.tell(self._record.name, f"a process of the job gets signal {signum}")
        if signum == SIGKILL:
            super().take(signum, code, sender)
            if self._forks and self._lives is not None and not self.dead:
                self._forks = False
                Here.world.at(Here.world.now, self._fork)
        elif signum == SIGCONT:
            self.go_on()
        elif self.stopped:
            self._held_back.append(signum)
        else:
            self._heed(signum)

    def _heed(self, signum: int) -> None:
        if signum in ENDS_A_WAIT and self._lives is not None and self._record.plan.stubborn < INFINITE:
            Here.world.at(Here.world.now + self._record.plan.stubborn, self.end, int(signum))

    def _fork(self) -> None:
        """Somebody appears whom the signals that are sent just now do not reach; nothing else ends it."""
        if self.dead:
            return
        stray = Job(self._record, self, is_command=False)
        stray._forks, stray._is_stray = False, True
        stray.inherit()
        stray.execute()

    def end(self, status: int) -> None:
        """See ``Process``."""
        if self.dead:
            return
        world, record = Here.world, self._record
        if self._lives is not None and self._lives[1] == INFINITE:
            self._lives[1] = world.now
        if self._is_command and record.plan.leaves_rest:  # from here on they are no part of the job
            for lives in record.lived:
                lives[1] = min(lives[1], world.now)
        for child in self.children:
            if isinstance(child, Job) and not (child.dead or child._is_stray) and record.plan.outlived < INFINITE:
                world.at(world.now + record.plan.outlived, child.end, 0)
        super().end(status)
        self.failed.finish()
        if self._is_command and self._lives is not None:
            record.command_status, record.command_ended = status, world.now
        if self._lives is not None:
            world.tell(record.name, f"{'the command' if self._is_command else 'another process'} ends ({status})")
