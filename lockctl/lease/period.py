"""The periods of ``--once-per``: equal spans of time, counted from the epoch, by the clock of the store."""

from __future__ import annotations


def start_of(at: float, period: float) -> float:
    """When the period began in which *at* lies (seconds since the epoch)."""
    return at // period * period


def is_done(last: float | None, at: float, period: float) -> bool:
    """Whether a run that began at *last* and succeeded counts for the period of *at*.

    A clock that was set back a little must not make a job run twice, so a success in the period after counts,
    too. One further ahead was noted by a clock that was wrong, and does not keep jobs from running for years.
    """
    if last is None:
        return False
    ahead = (start_of(last, period) - start_of(at, period)) / period
    return -0.5 < ahead < 1.5
