"""One repetition of a fault: two runs at one lock, the servers behind them, and a network in front of the first."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.supervise import tree
from tests.bench.tools import LOCKCTL
from tests.faults.backends import PLACES, addresses_of
from tests.faults.network import Network
from tests.faults.scene import Scene, marked
from tests.jobs import LIMIT, Lockctl, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.matrix.faults import Fault

NAME = "nightly"  # of the lock, as in what operators do
MARGIN = 4.0  # seconds beyond a lease after which a job goes on for good
RESTART = 30.0  # seconds in which servers that were started again serve


class Outcome(NamedTuple):
    """What was seen. *next_after* is in seconds, from the fault."""

    went_on: bool  # the first job, for longer than a lease
    overlap: bool  # something of it was alive beside the second one
    next_after: float
    wrong: list[str]  # what is never right


class Stage:
    """Both runs are at the lock: the first holds it, the second waits."""

    def __init__(self, store: str, servers: Any, directory: Path, fault: Fault) -> None:
        """Raises ``AssertionError`` when that takes long."""
        self.store, self.place, self.servers, self.word = store, PLACES[store], servers, "t" + os.urandom(6).hex()
        locks = directory / "locks"
        locks.mkdir(parents=True)
        self.lockctl = Lockctl(LOCKCTL, locks)
        self.network = Network(servers) if servers else None
        behind = self.place.url(addresses_of(servers) if servers else (), self.word, locks)
        self.lockctl.url = self.place.url(self.network.addresses, self.word, locks) if self.network else behind
        self.fault = fault
        # all clients of Redlock must name the same nodes, so that the network is that of both
        self.cut_off = fault.cut_off or store == "redlock"
        if store == "redlock":
            behind = self.lockctl.url
        try:
            self.scene = Scene(
                self.lockctl,
                self.place.ttl,
                directory / "scene",
                NAME,
                fault.traits,
                *fault.options,
                second_url=behind,
            )
        except BaseException:
            self.end()
            raise
        self.job = tree.descendants(self.scene.guard)

    def play(self) -> Outcome:
        """Have the fault happen, and see what becomes of it."""
        begun, first = time.monotonic(), self.scene.first
        self.fault.happen(self)
        patience = max(1.5 * self.place.ttl, self.place.freed_within) + MARGIN
        until = begun + patience
        while time.monotonic() < until and first.poll() is None and not self._has_begun():
            time.sleep(0.01)
        went_on = first.poll() is None and not self._has_begun()
        if went_on or self.cut_off:
            self.fault.mend(self)
        if went_on:
            first.send_signal(signal.SIGTERM)  # as a person ends it
        eventually(self._has_begun, limit=patience + RESTART)
        next_after = time.monotonic() - begun
        if not went_on and not self.cut_off:
            self.fault.mend(self)
        first.wait(LIMIT)
        return Outcome(went_on, bool(self.scene.overlaps()), next_after, self._never_right())

    def token(self, which: str) -> tuple[str, str]:
        """The domain and the token of the first or the second job."""
        domain, _, token = (self.scene.directory / f"token.{which}").read_text().rpartition(";")
        return domain, token

    def end(self) -> None:
        """Leave nothing."""
        self.lockctl.end_all()
        if hasattr(self, "scene"):
            for pid in marked(self.scene.mark):
                tree.send(pid, signal.SIGKILL)
        if self.network:
            self.network.close()

    def _has_begun(self) -> bool:
        """Whether the second command has."""
        return (self.scene.directory / "second").exists()

    def _never_right(self) -> list[str]:
        wrong = []
        if self.scene.second.wait(LIMIT) != 0:
            wrong.append(f"the second run ended with {self.scene.second.returncode}")
        try:
            eventually(lambda: not marked(self.scene.mark))
        except AssertionError:
            wrong.append("processes are left")
        resource = str(self.scene.directory / "resource")
        domain, last = self.token("second")
        # the domain of the first may be another one: on some stores it is the address, and that is the network's
        for which, token, expected in (("second", last, 0), ("first", self.token("first")[1], 77)):
            told = self.lockctl("fence", "advance", resource, "--domain", domain, "--token", token)
            if told.returncode != expected:
                wrong.append(f"the token of the {which} job: status {told.returncode}: {told.stderr.strip()}")
        return wrong
