"""Keeping the lease: the only loop that renews.

It runs in a thread of its own, so that a request that hangs holds up neither a signal nor a deadline,
and it only reports: what a report means is decided by the loop that reads it.
"""

from __future__ import annotations

import _thread
import os

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.events import Renewed
from lockctl.lease.lease_events import LeaseEnded, RenewalFailed, RevocationAsked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.lease.acquire import Lease
    from lockctl.lease.lease_events import RenewalEvent
    from lockctl.model import Grant

JITTER = 0.1  # renewals of many holders that started in the same second drift apart
FOREVER = float("inf")
IN_TIME = 0.9  # part of its time after which a request that failed counts as one that got no answer


class Renewer:
    """Renews one lease until told to stop. Reports are read from :meth:`take` when *readable* is."""

    def __init__(self, backend: Backend, lease: Lease, now: Callable[[], float]) -> None:
        """Nothing is started yet: a job shorter than one interval never needs the thread.

        Raises ``BackendUnavailable`` when there are no more descriptors.
        """
        self._backend = backend
        self._grant: Grant = lease.grant
        self._schedule = lease.schedule
        self._deadline = lease.deadline  # that the last answer gave
        self._late = 0  # requests in a row that got no answer in time
        self._now = now
        self._reports: list[RenewalEvent] = []
        try:
            self.readable, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as failure:
            raise BackendUnavailable(f"no file descriptor is free: {failure.strerror}") from None
        self._in_request = _thread.allocate_lock()
        self._nudge = _thread.allocate_lock()
        self._nudge.acquire()
        self._stopped = False
        self._started = False

    def renew_now(self) -> bool:
        """Start renewing, the first time at once; or, when started, cut the present pause short.

        ``False``: there is no thread to be had now, because the job has taken all that its user is allowed, or for want
        of memory. Then one renewal was made before this returned; a later call tries again. It returns before the
        whole tree must be killed, but a signal may have waited for an answer.
        """
        if not self._started:
            try:
                _thread.start_new_thread(self._loop, ())
            except RuntimeError:
                with self._in_request:
                    sent = self._now()
                    report = self._renew_once(sent, self._schedule.kill_at(self._deadline) - sent)
                self._tell(report)
                self._started = isinstance(report, LeaseEnded)  # then nothing more is sent
                return self._started
            self._started = True
        elif self._nudge.locked():
            self._nudge.release()
        return True

    def take(self) -> list[RenewalEvent]:
        """The reports since the last call, in their order."""
        try:
            os.read(self.readable, 4096)
        except BlockingIOError:
            return []
        taken: list[RenewalEvent] = []
        while self._reports:
            taken.append(self._reports.pop(0))
        return taken

    def stop(self, timeout: float) -> bool:
        """No request is sent after this. ``False``: one is still under way after *timeout* seconds."""
        self._stopped = True  # it sees that after its pause, which is not cut short: it would only be in our way now
        return self._in_request.acquire(timeout=timeout)

    def _loop(self) -> None:
        failures = 0
        while True:
            with self._in_request:
                if self._stopped:
                    return
                sent = self._now()
                report = self._renew_once(sent)
            self._tell(report)
            if isinstance(report, LeaseEnded):
                return
            failures = failures + 1 if isinstance(report, RenewalFailed) else 0
            now = self._now()
            pause = self._schedule.pause(now - sent, failures, self._schedule.signal_at(self._deadline) - now)
            spread = 1 - JITTER + 2 * JITTER * os.urandom(1)[0] / 255
            self._nudge.acquire(timeout=pause * spread)

    def _tell(self, report: RenewalEvent) -> None:
        self._reports.append(report)
        os.write(self._wake, b".")

    def _renew_once(self, sent: float, most: float = FOREVER) -> RenewalEvent:
        timeout = min(self._schedule.renewal_timeout(sent, self._deadline, self._late), most)
        try:
            self._grant = self._backend.renew(self._grant, timeout=timeout)
        except LeaseRevoked as asked:
            self._answered(sent)
            return RevocationAsked(asked.by, asked.reason, self._deadline)
        except LeaseLost as lost:
            return LeaseEnded(str(lost))
        except (BackendUnavailable, ConfigError) as unknown:
            reason = str(unknown)
        except Exception as bug:  # noqa: BLE001 - a thread that dies silently would cost the job its lease
            reason = f"{type(bug).__name__}: {bug}"
        else:
            self._answered(sent)
            return Renewed(self._deadline)
        if self._now() - sent >= timeout * IN_TIME:
            self._late += 1
        return RenewalFailed(reason)

    def _answered(self, sent: float) -> None:
        self._deadline, self._late = self._schedule.deadline(sent, self._grant.ttl), 0
