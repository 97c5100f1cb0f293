"""What a keeper orders its guard to do, over their channel."""

from __future__ import annotations

from lockctl.lease.schedule import Schedule
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


JOB_VARIABLES = tuple(
    "LOCKCTL_" + word for word in ("LOCK", "TOKEN", "FENCING", "TOKENS", "TOKEN_DOMAIN", "OWNER", "BACKEND", "TTL")
)


class Orders(Value):
    """What the guard must know when it starts the command. Spans in seconds."""

    first_signal: int
    leftover: str  # "kill", "wait" or "leave"
    max_runtime: float | None
    kernel_held: bool  # no server counts: a job that is stopped on its terminal loses nothing
    on_terminal: bool
    kill_on_loss: bool  # a certain loss leaves no time for the first signal
    contain: str  # whether the job gets a pid namespace: see contain.py
    unlocks: bool = False  # the guard frees the kernel's locks when nobody is left of a job that was not stopped
    token: int | None = None  # for the messages of the guard

    def encode(self, schedule: Schedule) -> tuple[tuple[object, ...], tuple[float, ...]]:
        """These and the spans of the lease as values of a frame, for :func:`decode_orders`."""
        own = (self.first_signal, self.leftover, self.max_runtime)
        switches = (self.kernel_held, self.on_terminal, self.kill_on_loss, self.contain, self.unlocks)
        spans = (schedule.ttl, schedule.grace, schedule.margin, schedule.interval)
        return (*own, *switches, self.token), (*spans, schedule.request_timeout, schedule.rate_error)


def decode_orders(orders: tuple[Any, ...], spans: tuple[float, ...]) -> tuple[Orders, Schedule]:
    """What :meth:`Orders.encode` gave."""
    return Orders(*orders), Schedule(*spans)
