"""What the keeper decides, and when: reports and answers in, actions out, no process and no clock of its own.

Two questions are asked again and again. Is the lease ours? A renewal says yes, no or nothing; only a clear no, or
somebody who asks for the lock, stops the job, for the guard has the deadline. Is the guard awake? It confirms each
deadline that it is told. When the last one that it confirmed has come near, it is told again, and a guard that says
nothing within the patience is taken for stuck: the keeper ends it and the job before the lease is over.
"""

from __future__ import annotations

from lockctl import events
from lockctl.lease import lease_events
from lockctl.lease.schedule import RENEWALS_PER_TTL, Schedule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.lease.lease_events import KeeperAction, RenewalEvent

AWAKE_AT_LOSS = 0.2  # seconds in which the guard must answer when another may already hold the lock
STARTED_BY = 0.005  # seconds: to begin renewing takes a processor as long as to start the command
NEVER = float("inf")


class Liveness:
    """The state of one lease and of the guard's confirmations. Do what the methods return, in order.

    Call :meth:`due` at :meth:`wake_at`.
    """

    def __init__(self, schedule: Schedule, *, kernel_held: bool, kill_on_loss: bool, asks_every: float = NEVER) -> None:
        """Nothing is due before :meth:`begin`.

        *asks_every*: seconds after which the guard is asked whether it is awake, however far the deadline is.
        """
        self._schedule = schedule
        self._asks_every = asks_every
        self._kernel_held = kernel_held
        self._kill_on_loss = kill_on_loss
        self._renew_at = NEVER
        self._ask_at = NEVER  # when the guard must have confirmed a later deadline, or show that it is awake
        self._verdict_at = NEVER  # when a guard that was asked and said nothing counts as stuck
        self._followed_up_at = NEVER  # when the guard must be awake once more: an order to stop is carried out by then
        self._patience = schedule.margin / 2  # with a guard that is asked whether it is awake
        self._in_doubt = False
        self.deadline: float | None = None  # what the guard was last told
        self.ordered: str | None = None  # the cause for which the guard was told to stop the job
        self.is_lost = False
        self.detail = ""  # one line about what went wrong last
        self.renewals = 0  # that succeeded
        self.failures = 0  # renewals that failed or were not answered

    def begin(self, now: float, deadline: float) -> None:
        """The guard was told to start the command under a lease with this *deadline*."""
        # when the lock took long to get, a part of its lease is over already; but the command starts first
        due = min(self._schedule.first_renewal(deadline), now + self._schedule.interval)
        self._renew_at = max(due, now + STARTED_BY)
        self.deadline = deadline
        # a guard that is stopped already never answers
        self._ask_at = min(self._schedule.kill_at(deadline), now + self._asks_every)

    def wake_at(self) -> float:
        """When time alone calls for something; infinite if never."""
        return min(self._renew_at, self._ask_at, self._verdict_at)

    def heard(self, now: float) -> None:
        """The guard has said something: if it was asked whether it is awake, it gets the time for its answer anew."""
        if self._verdict_at < NEVER:
            self._verdict_at = max(self._verdict_at, now + self._patience)  # more if we were held up meanwhile

    def confirmed(self, now: float, deadline: float) -> None:
        """The guard has taken over this *deadline*."""
        self._verdict_at = NEVER
        due = min(self._schedule.kill_at(deadline), self._followed_up_at, now + self._asks_every)
        self._ask_at = max(due, now + self._patience)

    def held_up(self, now: float) -> None:
        """We were stopped, and perhaps the guard, too: if the kernel has the lock, it gets a whole lease to answer."""
        if self.is_lost or not self._kernel_held:
            return
        until = now + self._schedule.ttl
        if self._verdict_at < NEVER:
            self._verdict_at = max(self._verdict_at, until)
        else:
            self._ask_at = max(self._ask_at, until)

    def report(self, now: float, event: RenewalEvent) -> list[KeeperAction]:
        """What an answer to a renewal, or its absence, calls for."""
        actions: list[KeeperAction] = []
        if isinstance(event, (events.Renewed, lease_events.RevocationAsked)):
            self.renewals += 1
            least = self._schedule.ttl / (2 * RENEWALS_PER_TTL)
            if self.deadline is None or event.deadline - self.deadline >= least:
                self.deadline = event.deadline
                actions.append(lease_events.TellDeadline(event.deadline))
                if not (self._in_doubt or self._kernel_held):
                    actions.append(lease_events.Note("trace", "renewed the lease", "renewed", event.deadline - now))
            if self._in_doubt:
                actions.append(
                    lease_events.Note("info", "the lease was renewed again", "renewed", event.deadline - now)
                )
            self._in_doubt = False
        if isinstance(event, lease_events.RevocationAsked) and self.ordered is None:
            self.detail = f"by {event.by}" + (f": {event.reason}" if event.reason else "")
            actions.append(self._stop(now, events.REVOKED, at_once=False))
            actions.append(lease_events.Note("info", f"the lock was asked for {self.detail}", "stopping"))
        elif isinstance(event, lease_events.RenewalFailed):
            self.failures += 1
            level = "trace" if self._in_doubt else "warning"
            actions.append(lease_events.Note(level, f"cannot renew the lease: {event.reason}", "renewal_failed"))
            self._in_doubt = True
            self.detail = event.reason
        elif isinstance(event, lease_events.LeaseEnded):
            actions += self.lose(now, event.reason)
        return actions

    def renew_again(self, now: float) -> None:
        """Nobody keeps the time of renewals: the next one is due after an interval."""
        self._renew_at = now + self._schedule.interval

    def not_started(self, now: float, reason: str) -> list[KeeperAction]:
        """There was no descriptor to renew with: it is tried again."""
        self.renew_again(now)
        return self.report(now, lease_events.RenewalFailed(reason))

    def lose(self, now: float, reason: str) -> list[KeeperAction]:
        """The lease certainly is not ours any more."""
        if self.is_lost:
            return []
        self.is_lost = True
        self.detail = reason
        stop = self._stop(now, events.LOST, at_once=self._kill_on_loss)
        return [stop, lease_events.Note("info", f"the lease is lost: {reason}", "stopping")]

    def due(self, now: float) -> list[KeeperAction]:
        """What time alone calls for."""
        actions: list[KeeperAction] = []
        if now >= self._renew_at:
            self._renew_at = NEVER  # from here on who renews keeps its own time
            actions.append(lease_events.RenewNow())
        if now >= self._verdict_at:
            actions.append(lease_events.TakeOver(events.LOST, "the guard process did not answer"))
        elif now >= self._ask_at and self.deadline is not None:
            self._ask_at = NEVER
            if now >= self._followed_up_at:
                self._followed_up_at = NEVER
            self._verdict_at = now + self._patience
            actions.append(lease_events.TellDeadline(self.deadline))
        return actions

    def _stop(self, now: float, cause: str, *, at_once: bool) -> KeeperAction:
        self.ordered = cause
        if at_once:
            self._patience = min(self._patience, AWAKE_AT_LOSS)
        # not before a confirmation is there of the deadline that the guard was told just before the order
        self._followed_up_at = now + (0 if at_once else max(self._schedule.grace, AWAKE_AT_LOSS))
        self._ask_at = min(self._ask_at, self._followed_up_at)
        return events.StopJob(cause, at_once)
