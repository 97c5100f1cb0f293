"""What is compared: ways to guard a write, and ways to pause the writer."""

from __future__ import annotations

from typing import NamedTuple

SECTION, AFTER_CHECK = "section", "after_check"
SOMETIME, WORST = "sometime", "worst"


class Variant(NamedTuple):
    """How a worker guards its update, and what the nemesis does to it."""

    label: str
    checks_deadline: bool = False  # looks whether its lease still lives, just before it writes
    fenced: bool = False  # shows its token with the write
    registers: bool = False  # shows its token before it reads
    paused: str = SECTION  # where a holder is stopped: anywhere between read and write, or between check and write
    continued: str = SOMETIME  # when it goes on: after a time, or as soon as its successor has read


VARIANTS = {
    "none": Variant("no fence"),
    "deadline": Variant("deadline checked before the write", checks_deadline=True),
    "deadline-late": Variant(
        "deadline checked, then the pause, then the write", checks_deadline=True, paused=AFTER_CHECK
    ),
    "write-only": Variant("token checked at the write only", fenced=True),
    "write-only-worst": Variant("at the write only, back at the worst moment", fenced=True, continued=WORST),
    "register": Variant("token registered before the read", fenced=True, registers=True),
    "register-worst": Variant("registered, back at the worst moment", fenced=True, registers=True, continued=WORST),
}
SAFE = ("register", "register-worst")


class Pace(NamedTuple):
    """How fast everything goes. Times in seconds."""

    ttl: float = 2.0
    section: float = 2.0  # the longest time between read and write
    shortest_pause: float = 2.5
    longest_pause: float = 4.5
    every: float = 5.0  # between the end of a pause and the next one


class Order(NamedTuple):
    """One cell of the table: a variant, and when it has been tried enough."""

    variant: str
    groups: int = 1  # independent resources with a lock each
    workers: int = 5  # for each resource
    updates: int = 100  # acknowledged ones to reach, and
    pauses: int = 10  # pauses to have ended, unless the time is over


class Result(NamedTuple):
    """What came of one cell."""

    variant: str
    acknowledged: int
    lost: int  # acknowledged updates that are not in the list
    refused: int  # updates that were not written, and whose worker knows
    wrong: int  # updates in the list that were refused, or are there twice
    pauses: int

    @property
    def percent(self) -> float:
        """Lost updates of a hundred."""
        return 100 * self.lost / self.acknowledged if self.acknowledged else 0.0
