"""What keeps a lock for a while after its job, with no process left: a time, written in the lock file.

Only lockctl looks at it: to ``flock(1)`` the lock is free. On the boot that wrote it the time is counted on a
clock that nobody sets, the same in all containers. After a reboot only the host's clock is left: where it says that the
job ended more than a day from now, it cannot be believed, and the hold is over.
"""

from __future__ import annotations

import os
import time

from lockctl import documents
from lockctl.clock import ahead_of_host, boottime
from lockctl.stores.file import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant

DAY = 86400.0  # seconds
LONGEST = documents.LATEST / 2  # seconds: still a time when it is over, for all that read it
SLACK = 1.0  # seconds between two looks at two clocks


def describe(grant: Grant, hold: float) -> bytes:
    """The document of a hold of so many seconds from now, after the job of this grant."""
    ended = time.time()
    hold = min(hold, LONGEST)
    extra: dict[str, int | float | str | None] = {
        "uid": os.geteuid(),
        "acquired_at": grant.at,
        "ended_at": ended,
        "until": ended + hold,
        "until_boottime": boottime() - ahead_of_host() + hold,
        "boot_id": layout.boot_id(),
    }
    return layout.describe(grant.claim, extra)


def left(record: layout.Record | None) -> float:
    """For how many seconds the record still keeps the lock from everybody; 0.0 if it does not."""
    if record is None or layout.ENDED not in record.document:
        return 0.0
    document = record.holder or {}
    ended, until = documents.seconds(document.get("ended_at")), documents.seconds(document.get("until"))
    if ended is None or until is None:
        return 0.0
    until_boottime = documents.seconds(document.get("until_boottime"))
    if until_boottime is not None and document.get("boot_id") == layout.boot_id():
        remaining = until_boottime - (boottime() - ahead_of_host())
        if remaining <= until - ended + SLACK:  # else it is another host's clock, with this id of the boot
            return max(0.0, remaining)
    now = time.time()
    return max(0.0, until - now) if ended <= now + DAY else 0.0
