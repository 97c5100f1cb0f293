"""What happened to one run, as nobody inside can see it: when its processes lived, what it was granted and gave back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.lease.schedule import plan as schedule_of
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Capabilities, Claim, Grant, Outcome, Run
    from tests.simulation.plan import RunPlan
    from tests.simulation.processes import Process


class Granted(NamedTuple):
    """A grant, when its owner first asked for the lock, when this was asked for, and when it was known."""

    sent: float
    asked: float
    known: float
    token: int
    owner: str
    at: float  # by the clock of the store
    name: str  # of the lock
    domain: str  # of the token


class Hold(NamedTuple):
    """A lock that is to be kept closed after its job, as it was asked for first."""

    sent: float
    seconds: float
    in_time: bool  # while the lease was certain


class RunRecord:
    """One run."""

    def __init__(self, number: int, plan: RunPlan) -> None:
        self.number = number
        self.name = f"run {number}"
        self.plan = plan
        self.keeper: Process | None = None
        self.guard: Process | None = None
        self.lived: list[list[float]] = []  # of each process of the job: from when, until when
        self.span: tuple[float, float] | None = None  # from the first of them to the end of the last, when all is over
        self.granted: list[Granted] = []
        self.holds: dict[str, Hold] = {}  # by lock
        self.releasing: dict[str, float] = {}  # owners, and when the first request was sent that releases their locks
        self.kept: dict[str, float] = {}  # by lock: when the last request was sent that prolonged the lease
        self.owners: dict[str, float] = {}  # and when each was asked for first
        self.asked_back: set[str] = set()  # owners that were given back, whether or not an answer came
        self.let_go: dict[str, float] = {}  # when that was first asked for
        self.given_back: dict[str, float] = {}  # when it was answered
        self.seen_after: set[str] = set()  # owners that others could see at the server when that was answered
        self.there_after: set[str] = set()  # owners of which the server had a lock or a place then
        self.stopped_waiting: set[float] = set()  # when its keeper was stopped while a helper waited for it
        self.left: set[str] = set()  # owners of which something was at the server when the run had ended by itself
        self.on_nodes: set[str] = set()  # owners of which a node of several had something a while after that
        self.signalled: list[tuple[float, int]] = []  # what its job was sent by others than the job
        self.signalled_beside: list[tuple[float, int]] = []  # the same of its processes that are not the command
        self.command_status: int | None = None
        self.command_ended = 0.0  # a command that never was ended before all
        self.ordered = INFINITE  # when it had ordered the start of its job
        self.kept_at_first: dict[str, float] = {}  # what was ``kept`` then
        self.passed_on: float | None = None  # when its keeper was sent a signal and had ordered the start of the job
        self.asked_to_end: list[float] = []  # when its keeper was sent a signal that ends a wait
        self.told_to_end: list[float] = []  # the same of one that ends programs
        # when a renewal said so of an owner that the server had all the same
        self.lost_too_soon: list[tuple[float, str]] = []
        self.lost_at: float | None = None  # when a renewal said first that what was granted last is not its any more
        self.revoked_at: float | None = None  # when a renewal said first that somebody asks for it
        self.silences: list[tuple[float, float]] = []  # when the store failed first, and last, before it answered again
        self.is_silent = False  # whether it has failed, and not answered since
        self.asked_again = 0.0  # when the last request for the lock was sent after one that had failed
        self.longest_answer = 0.0  # seconds of the longest attempt that was answered
        self.attempts = 0  # to take a lock, and waits for one
        self.refused_at_first = False  # whether the first of them was, for what a person must change
        self.said: list[str] = []  # by its keeper
        self.outcome: Outcome | None = None
        self.failure = ""
        self.ended = INFINITE
        self.noted: dict[str, float] = {}  # by lock, of its success: when it was known
        self.told: tuple[bytes, ...] = ()  # the variables that the command got

    def failed(self, now: float) -> None:
        """The store has failed while the lock was to be taken."""
        since = self.silences.pop()[0] if self.is_silent else now
        self.silences.append((since, now))
        self.is_silent = True

    def answered(self) -> None:
        """The store has answered such a request."""
        self.is_silent = False

    def living(self) -> bool:
        """Whether a process of the job lives."""
        return any(end == INFINITE for _, end in self.lived)

    def excludes(self, other: RunRecord) -> bool:
        """Whether its job and that of *other* must never run beside each other; slots of one lock may, some of them."""
        alone = "exclusive" in (self.plan.mode, other.plan.mode) or self.plan.slots != other.plan.slots
        return alone and not set(self.plan.locks).isdisjoint(other.plan.locks)

    @property
    def last_grants(self) -> dict[str, Granted]:
        """The last one of each lock."""
        return {each.name: each for each in self.granted}

    @property
    def helper(self) -> Process | None:
        """That of a keeper that waits for a file."""
        below = [] if self.keeper is None else self.keeper.children
        return next((each for each in below if each is not self.guard and not (each.dead or each.killed)), None)

    @property
    def parked(self) -> Process | None:
        """The process that is to become the command."""
        below = [] if self.guard is None or self.lived else self.guard.children
        return next((each for each in below if not (each.dead or each.killed)), None)

    def close(self) -> None:
        """Nothing happens to it any more."""
        if self.lived:
            self.span = min(begin for begin, _ in self.lived), max(end for _, end in self.lived)


class Recording:
    """Added to the class of a backend: writes down what one run asks and is told."""

    record: RunRecord
    capabilities: Capabilities
    wrong: list[str]  # what is known to be wrong at once
    seen: Callable[[], set[str]]  # owners that others can follow at the server
    there: Callable[[], set[str]]  # owners of which the server has a lock or a place
    parts: Callable[[], None]  # called when something is given back

    def try_acquire(self, claim: Claim, **more: Any) -> Grant | None:
        """See ``Backend``."""
        record, world, sent = self.record, Here.world, Here.world.now
        record.attempts += 1
        first = record.owners.setdefault(claim.owner, sent)
        try:
            grant: Grant | None = super().try_acquire(claim, **more)  # type: ignore[misc]
        except BackendUnavailable:
            record.asked_again = sent if record.is_silent else record.asked_again
            self._fails(claim)
            raise
        except ConfigError:
            record.refused_at_first = record.refused_at_first or record.attempts == 1
            raise
        record.answered()
        record.longest_answer = max(record.longest_answer, world.now - sent)
        if grant is not None:
            record.lost_at = record.revoked_at = None
            known = world.now, grant.token, claim.owner, grant.at, claim.name, grant.domain
            record.granted.append(Granted(first, sent, *known))
            record.kept[claim.name] = sent
            world.tell(record.name, f"is granted the lock with token {grant.token}")
            self._tells_deadline(grant, sent)
        return grant

    def wait(self, claim: Claim, **more: Any) -> None:
        """See ``Backend``. A new owner may wait before it asks: the one before was granted the lock too late."""
        self.record.owners.setdefault(claim.owner, Here.world.now)
        try:
            super().wait(claim, **more)  # type: ignore[misc]
        except BackendUnavailable:
            self._fails(claim)
            raise
        self.record.answered()

    def renew(self, grant: Grant, **more: Any) -> Grant:
        """See ``Backend``."""
        sent = Here.world.now
        try:
            renewed: Grant = super().renew(grant, **more)  # type: ignore[misc]
        except LeaseLost as lost:
            Here.world.tell(self.record.name, f"its renewal says: {lost}")
            if grant.claim.owner in self.there():
                self.record.lost_too_soon.append((Here.world.now, grant.claim.owner))
            if self.record.lost_at is None:
                self.record.lost_at = Here.world.now
            raise
        except LeaseRevoked:
            if self.record.revoked_at is None:
                self.record.revoked_at = Here.world.now
            self.record.kept[grant.claim.name] = sent
            raise
        self.record.kept[grant.claim.name] = sent
        self._tells_deadline(renewed, sent)
        return renewed

    def release(self, grant: Grant, **more: Any) -> None:
        """See ``Backend``."""
        self._gives_back(grant.claim, "the lock")
        kept = self.record.kept[grant.claim.name] + 0.9 * grant.ttl
        # what had no answer may have begun the hold
        sent = self.record.releasing.setdefault(grant.claim.owner, Here.world.now)
        super().release(grant, **more)  # type: ignore[misc]
        self._gave_back(grant.claim)
        if more.get("hold"):  # again, it is only to make sure
            self.record.holds.setdefault(grant.claim.name, Hold(sent, more["hold"], sent < kept))

    def withdraw(self, claim: Claim, **more: Any) -> None:
        """See ``Backend``."""
        self._gives_back(claim, "what it may have")
        super().withdraw(claim, **more)  # type: ignore[misc]
        self._gave_back(claim)

    def note_success(self, grant: Grant, **more: Any) -> None:
        """See ``Backend``."""
        super().note_success(grant, **more)  # type: ignore[misc]
        self.record.noted[grant.claim.name] = Here.world.now
        Here.world.tell(self.record.name, "has noted its success")

    def _tells_deadline(self, grant: Grant, sent: float) -> None:
        """Until when the job may live, as is known now."""
        world, plan = Here.world, self.record.plan
        if world.telling and not (self.capabilities.kernel_held or self.capabilities.connection_held):
            until = schedule_of(plan.ttl, plan.kill_after, self.capabilities).deadline(sent, grant.ttl)
            text = f"has {grant.claim.name} until {until:.3f}, from the request sent at {sent:.3f}, ttl {grant.ttl:g}"
            world.tell(self.record.name, text)

    def _fails(self, claim: Claim) -> None:
        """Where the lock is a connection's, that was closed now: all that can be done while nobody answers."""
        self.record.failed(Here.world.now)
        if self.capabilities.connection_held:
            self.record.asked_back.add(claim.owner)

    def _gives_back(self, claim: Claim, what: str) -> None:
        record = self.record
        record.asked_back.add(claim.owner)
        record.let_go.setdefault(claim.owner, Here.world.now)
        self.parts()
        Here.world.tell(record.name, f"gives back {what}")
        if record.living():
            self.wrong.append(f"{record.name} gave the lock back at {Here.world.now:.3f} while its job lived")

    def _gave_back(self, claim: Claim) -> None:
        self.record.given_back[claim.owner] = Here.world.now
        self.record.seen_after |= {claim.owner} & self.seen()
        self.record.there_after |= {claim.owner} & self.there()


class RecordingBoth(Recording):
    """For a backend that releases and remembers in one request."""

    def release_with_run(self, grant: Grant, run: Run, **more: Any) -> bool:
        """See ``Backend.remember``."""
        self._gives_back(grant.claim, "the lock")
        added: bool = super().release_with_run(grant, run, **more)  # type: ignore[misc]
        self._gave_back(grant.claim)
        return added


def recorded(backend: type[Any]) -> type[Any]:
    """The class of a backend that writes down what it is asked."""
    mixed = RecordingBoth if hasattr(backend, "release_with_run") else Recording
    # a store finds its files by the name of the module
    return type("Recorded", (mixed, backend), {"__module__": backend.__module__})
