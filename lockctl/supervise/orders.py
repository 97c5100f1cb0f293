"""What a keeper orders its guard to do, as one line over their channel."""

from __future__ import annotations

from lockctl.lease.schedule import Schedule
from lockctl.value import Value


class Orders(Value):
    """What the guard must know when it starts the command. Spans in seconds."""

    first_signal: int
    leftover: str  # "kill", "wait" or "leave"
    max_runtime: float | None
    kernel_held: bool  # no server counts: a job that is stopped on its terminal loses nothing
    on_terminal: bool
    kill_on_loss: bool  # a certain loss leaves no time for the first signal

    def encode(self, schedule: Schedule) -> bytes:
        """These and the spans of the lease as one line, for :func:`decode_orders`."""
        spans = (schedule.ttl, schedule.grace, schedule.margin, schedule.interval)
        words = (
            str(self.first_signal),
            self.leftover,
            "-" if self.max_runtime is None else repr(self.max_runtime),
            str(int(self.kernel_held)),
            str(int(self.on_terminal)),
            str(int(self.kill_on_loss)),
            *map(repr, (*spans, schedule.request_timeout, schedule.rate_error)),
        )
        return " ".join(words).encode()


def decode_orders(line: bytes) -> tuple[Orders, Schedule]:
    """What :meth:`Orders.encode` wrote."""
    signum, leftover, runtime, kernel_held, on_terminal, kill_on_loss, *spans = line.decode().split(" ")
    max_runtime = None if runtime == "-" else float(runtime)
    switches = (word == "1" for word in (kernel_held, on_terminal, kill_on_loss))
    orders = Orders(int(signum), leftover, max_runtime, *switches)
    return orders, Schedule(*map(float, spans))
