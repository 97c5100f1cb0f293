"""The arithmetic of one lease: when to renew, when to warn, when to kill.

::

    sent            sent + ttl              the lease at the server, counted from its later clock
    |---------------------------|
    |  renewals every interval  |
    |          signal_at  kill_at  deadline
    |               |--grace--|--margin--|  the tree must be gone here

The deadline counts from the moment the last successful request was *sent*: the server's lease began
later than that, so it ends later too. ``rate_error`` and ``SLACK`` cover clocks that run at different
speeds and the time between reading a clock and acting on it.
"""

from __future__ import annotations

from lockctl.durations import format_duration
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Capabilities

SLACK = 0.05  # seconds between reading the clock and the request or the signal that follows
SHORTEST_TTL = 1.0  # seconds; below it scheduling noise of a busy host eats the margins
USUAL_GRACE = 5.0  # seconds, the default of --kill-after
RENEWALS_PER_TTL = 6
HELD_UP = 0.5  # seconds after its time at which a process that wakes up was stopped meanwhile, or the whole machine was
TRIES_BEFORE_SIGNAL = 3  # renewals that may fail in a row before the job is asked to stop
FIRST_SHARE = 0.5  # of the time until the first signal, for a request: a dead connection leaves time for another try
FIRST_TIMEOUT = 5.0  # seconds for a request at most, doubled after each that got no answer, up to
LONGEST_TIMEOUT = 20.0
SOONER = 0.5  # part of an interval after which a renewal that failed is tried again, doubled after each failure


class Schedule(Value):
    """The fixed spans of one run, in seconds."""

    ttl: float
    grace: float  # --kill-after: from the first signal to SIGKILL
    margin: float  # from SIGKILL to the deadline
    interval: float  # between two renewals
    request_timeout: float  # the least that a request gets; 0: no server is asked
    rate_error: float
    heartbeat: float = float("inf")  # the longest interval, whatever the ttl
    asked_grace: float | None = None  # --kill-after if somebody said it

    def deadline(self, sent: float, ttl: float) -> float:
        """When everything must be gone, if a request sent at *sent* was granted *ttl* seconds."""
        return sent + ttl * (1 - self.rate_error) - SLACK

    def kill_at(self, deadline: float) -> float:
        """When SIGKILL must be sent."""
        return deadline - self.margin

    def signal_at(self, deadline: float) -> float:
        """When the first signal must be sent."""
        return deadline - self.margin - self.grace

    def first_renewal(self, deadline: float) -> float:
        """When the first renewal is due: one interval after the request that *deadline* counts from was sent."""
        return deadline - self.deadline(0.0, self.ttl) + self.interval

    def renewal_timeout(self, now: float, deadline: float, late: int) -> float:
        """How long a request may take that is sent at *now*, after so many in a row that got no answer in time.

        All that is left until the first signal, but not at first: a connection that has died silently never answers,
        and must leave the time for another one.
        """
        left = self.signal_at(deadline) - now
        if left < self.request_timeout:
            left = deadline - now  # the job is being stopped, and the lock is kept meanwhile
        share = left if late else left * FIRST_SHARE
        return max(self.request_timeout, min(share, FIRST_TIMEOUT * 2.0**late, LONGEST_TIMEOUT))

    def pause(self, took: float, failures: int, left: float) -> float:
        """How long to wait after a request that took so long, the last of so many *failures* in a row.

        Renewals follow each other by their sending. After failures the pauses grow, so that all who lost a server do
        not keep it from coming back, but only as the time *left* until the first signal allows.
        """
        if not failures:
            return max(self.interval - took, self.interval / 2)
        least = self.interval * SOONER
        longest = max(least, min(self.ttl / RENEWALS_PER_TTL, left / 4))
        return max(0.0, min(least * 2.0 ** min(failures - 1, 10), longest) - took)

    def fitted(self, ttl: float) -> Schedule:
        """The schedule for a lease that a server granted for another time than was asked for.

        Raises ``ValueError`` when it is too short for what must fit into it; asking for a longer one would not help.
        """
        if ttl >= self.ttl:
            return self
        leased = self.request_timeout > 0
        return _fit(
            ttl, self.asked_grace, rate_error=self.rate_error, heartbeat=self.heartbeat, leased=leased, cut_short=True
        )


def plan(ttl: float, grace: float | None, capabilities: Capabilities) -> Schedule:
    """The schedule of a run; *grace* ``None`` takes the usual one, shortened to fit a short lease.

    Raises ``ValueError`` with one line when the lease is too short for what must fit into it.
    """
    return _fit(
        ttl,
        grace,
        rate_error=capabilities.rate_error,
        heartbeat=capabilities.heartbeat,
        leased=not capabilities.kernel_held,
    )


def _fit(
    ttl: float, asked_grace: float | None, *, rate_error: float, heartbeat: float, leased: bool, cut_short: bool = False
) -> Schedule:
    if ttl < SHORTEST_TTL:
        raise ValueError(f"the ttl is {format_duration(ttl)}: it must be at least {format_duration(SHORTEST_TTL)}")
    margin = min(max(ttl / 20, 0.25), 2.0)
    interval = min(max(ttl / RENEWALS_PER_TTL, 0.1), heartbeat)
    request_timeout = max(min(interval, ttl / 10), 0.1) if leased else 0.0
    usable = ttl * (1 - rate_error) - SLACK
    longest_grace = usable - margin - TRIES_BEFORE_SIGNAL * interval - request_timeout
    grace = asked_grace
    if grace is None:
        grace = max(0.0, min(USUAL_GRACE, ttl / 4, longest_grace))
    elif grace >= ttl:
        raise ValueError(f"kill-after must be shorter than the ttl, which is {format_duration(ttl)}")
    elif grace > longest_grace:
        raise ValueError(
            f"kill-after {format_duration(grace)} is too long for a ttl of {format_duration(ttl)} and its"
            f" renewals: at most {format_duration(max(0, int(longest_grace * 1000) / 1000))}"
            + ("" if cut_short else ", or a longer ttl")
        )
    return Schedule(
        ttl=ttl,
        grace=grace,
        margin=margin,
        interval=interval,
        request_timeout=request_timeout,
        rate_error=rate_error,
        heartbeat=heartbeat,
        asked_grace=asked_grace,
    )
