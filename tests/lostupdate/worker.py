"""A worker: takes the lock, reads, thinks, writes, for ever. It is a program that uses lockctl's backends itself.

No guard stands beside it: what is tested is what is left when the whole machine of a holder is paused, guard
included. The nemesis reads from shared memory where each worker is.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from typing import TYPE_CHECKING

from lockctl import registry
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, Interrupted, LockctlError
from lockctl.events import Renewed
from lockctl.fence.mark import Mark, Stale
from lockctl.lease.acquire import acquire
from lockctl.lease.lease_events import LeaseEnded
from lockctl.lease.renew import Renewer
from lockctl.lease.schedule import plan
from lockctl.model import Claim
from lockctl.url import parse_url
from tests.lostupdate.plan import VARIANTS

if TYPE_CHECKING:
    from lockctl.lease.acquire import Lease
    from tests.lostupdate.plan import Pace
    from tests.lostupdate.resource import Resource

OUTSIDE, INSIDE, HALTED = 0, 1, 2  # INSIDE: has read and not written; HALTED: stopped itself between check and write
STATE, ACKNOWLEDGED, CELLS = 0, 1, 2  # cells of shared memory for each worker
GIVE_BACK = 1.0  # seconds


class Worker:
    """One process. *cells* are its own; *halt* is a cell of its group: the next one after its check stops there."""

    def __init__(
        self,
        number: int,
        name: str,
        url: str,
        variant: str,
        pace: Pace,
        resource: Resource,
        cells: memoryview[int],
        halt: memoryview[int],
        stop: int,
    ) -> None:
        """*stop* is a descriptor that becomes readable when it shall end."""
        self.number = number
        self.name = name
        self.url = parse_url(url)
        self.variant = VARIANTS[variant]
        self.pace = pace
        self.resource = resource
        self.cells = cells
        self.halt = halt
        self.stop = stop
        self.stopping = False
        self.chance = random.Random(f"{name}.{number}")
        self.updates = 0
        self.log = os.open(f"{resource.path}.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.schedule = plan(pace.ttl, None, registry.capabilities_of(self.url))

    def work(self, deadline: float) -> None:
        """Until it is told to end, or for ever orphaned, until *deadline*."""
        while not self.ended() and boottime() < deadline:
            backend = registry.open_backend(self.url)
            with contextlib.closing(backend):
                try:
                    claim = Claim(
                        self.name, os.urandom(16).hex(), self.pace.ttl, f"host{self.number}", os.getpid(), "ops", ("x",)
                    )
                    lease = acquire(
                        backend,
                        claim,
                        schedule=self.schedule,
                        wait=60.0,
                        now=boottime,
                        interrupt=self.stop,
                        ending_signal=lambda: signal.SIGTERM if self.ended() else None,
                    )
                except Interrupted:
                    return
                except BackendUnavailable:
                    continue
                if lease is None:
                    continue
                renewer = Renewer(backend, lease, boottime)
                renewer.renew_now()
                try:
                    self.update(lease, renewer)
                finally:
                    self.cells[STATE] = OUTSIDE
                    if renewer.stop(GIVE_BACK):
                        renewer._in_request.release()  # its thread sees that it shall end
                    with contextlib.suppress(LockctlError):  # what was lost in a pause is not ours to give back
                        backend.release(lease.grant, timeout=GIVE_BACK)

    def update(self, lease: Lease, renewer: Renewer) -> None:
        """Read, think, write one update, and say so if that was possible."""
        self.updates += 1
        update = f"{self.number}.{self.updates}"
        mark = Mark(lease.grant.domain, lease.grant.token)
        try:
            if self.variant.registers:
                self.resource.advance(mark)
            content = self.resource.read()
            self.cells[STATE] = INSIDE
            time.sleep(self.chance.uniform(0, self.pace.section))
            if self.variant.checks_deadline:
                if not holds(lease, renewer):
                    self.say("refused", update)
                    return
                self.halt_if_wanted()
            self.resource.write([*content, update], mark if self.variant.fenced else None)
        except Stale:
            self.say("refused", update)
            return
        self.cells[STATE] = OUTSIDE
        self.say("acknowledged", update)
        self.cells[ACKNOWLEDGED] += 1

    def halt_if_wanted(self) -> None:
        """The moment between check and write: where a pause, a page fault or a slow collection of garbage can be."""
        if self.halt[0]:
            self.halt[0] = 0
            self.cells[STATE] = HALTED
            os.kill(os.getpid(), signal.SIGSTOP)

    def say(self, word: str, update: str) -> None:
        """Acknowledge an update, or note that it was refused."""
        os.write(self.log, f"{word} {update}\n".encode())

    def ended(self) -> bool:
        """Whether the experiment is over."""
        if not self.stopping:
            self.stopping = bool(_readable(self.stop))
        return self.stopping


def holds(lease: Lease, renewer: Renewer) -> bool:
    """What a careful program looks at just before it writes: whether its lease still lives."""
    deadline = lease.deadline
    for report in renewer.take():
        if isinstance(report, LeaseEnded):
            return False
        if isinstance(report, Renewed):
            deadline = max(deadline, report.deadline)
    return boottime() < deadline


def _readable(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
