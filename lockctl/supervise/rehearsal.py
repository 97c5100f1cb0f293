"""What comes between the order to start and the command, done once while a run waits, with nothing at stake.

After a fork a process copies each page of memory that it writes to, and Python writes to whatever it uses. That was
half of the time that the guard and the process which becomes the command took from the order to the command.
"""

from __future__ import annotations

import os
import select
from _signal import SIGTERM

from lockctl.lease.schedule import Schedule
from lockctl.supervise import channel as wire
from lockctl.supervise.orders import JOB_VARIABLES, Orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VARIABLES = tuple([b"%b=0123456789" % name.encode() for name in JOB_VARIABLES])
ORDERS = Orders(int(SIGTERM), "kill", None, kernel_held=False, on_terminal=False, kill_on_loss=True, contain="no")
SCHEDULE = Schedule(30.0, 5.0, 1.5, 0.9, 0.9, 0.002)


class StandIn:
    """In place of the process that becomes the command."""

    pid = 0

    def __init__(self, link: wire.Channel) -> None:
        """The order to start is sent there."""
        self._link = link

    def waits(self) -> bool:
        """See ``Child``."""
        return True

    def go(self, variables: tuple[bytes, ...], lock_descriptors: tuple[int, ...]) -> bool:
        """See ``Child``."""
        return self._link.send(wire.GO, variables, descriptors=lock_descriptors)


def of_guard(make: Callable[..., Any]) -> None:
    """*make* gives a ``Starting``."""
    from lockctl.supervise import contain  # noqa: F401 - the order may ask for it when this program has been removed

    keeper, guard = wire.pair()
    starting = make(guard, None, (), None, on_terminal=False)
    starting.job.child = StandIn(guard)
    try:
        keeper.send(wire.DEADLINE, float("inf"))
        keeper.send(wire.START, *ORDERS.encode(SCHEDULE), VARIABLES)
        starting.await_start({})
    finally:
        keeper.close()
        guard.close()
        if starting.job.timer >= 0:
            os.close(starting.job.timer)


def of_command(words: tuple[str, ...], environment: dict[str, str]) -> None:
    """All but to become the command."""
    guard, child = wire.pair()
    try:
        guard.send(wire.GO, VARIABLES)
        poll = select.poll()
        poll.register(child.fileno, select.POLLIN)
        poll.poll()
        ((_, (variables,), _),) = child.receive()
        added = dict([os.fsdecode(pair).partition("=")[::2] for pair in variables])
        os.execve("", list(words), {**environment, **added})  # noqa: S607 - no program has an empty path
    except OSError:
        pass
    finally:
        guard.close()
        child.close()
