"""What ``lockctl watch`` prints where there is no screen: one line, or one document, for each change."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import TYPE_CHECKING

from lockctl.cli.messages import Talk
from lockctl.cli.output import lock_document
from lockctl.cli.query import Query, ordered, to_yaml
from lockctl.cli.rows import UNKNOWN, place_of
from lockctl.clock import monotonic, utc, wall
from lockctl.durations import format_age
from lockctl.names import command_line, printable
from lockctl.value import replace

if TYPE_CHECKING:
    from lockctl.cli.places import Place
    from lockctl.cli.watch.polling import Events, Polling
    from lockctl.model import LockInfo

    Known = dict[tuple[str, str], tuple[Place, LockInfo]]

RETRY = 1.0  # seconds until a reader that does not read is looked at again
AT_ONCE = 4096  # bytes, PIPE_BUF: a pipe that is ready takes as many without blocking


def follow(polling: Polling, events: Events, query: Query) -> None:
    """One line for each lock at first, and then for each change. A backend that fails is told of on stderr, once."""
    talk = Talk()
    known: Known = {}
    failing: float | None = None
    while not events.ended:
        if polling.advance():
            known = _tell_changes(known, polling.found, events, query)
            if failing is not None:
                talk("warning", f"the backend answers again, after {format_age(monotonic() - failing)}")
            failing = None
        elif polling.error is not None and failing is None:
            failing = monotonic()
            talk("error", f"{polling.error}; still watching")
        events.wait(polling.until_due())


def _tell_changes(known: Known, found: list[tuple[Place, LockInfo]], events: Events, query: Query) -> Known:
    """Print what differs from what is *known*; what is known now."""
    present = {(place.label, lock.name): (place, lock) for place, lock in found}
    vanished = [
        (place, replace(lock, state="free", holders=(), waiters=None if lock.waiters is None else ()))
        for key, (place, lock) in known.items()
        if key not in present and lock.state != "free"
    ]
    changed = [
        (place, lock)
        for key, (place, lock) in present.items()
        # a lock that becomes free is a change, although free ones are not wanted
        if (query.wants(lock) if key not in known or query.states else True)
        and (key not in known or _essence(lock) != _essence(known[key][1]))
    ]
    moment = utc(wall())
    gone = [each for each in vanished if not query.states or "free" in query.states]
    for place, lock in ordered([*gone, *changed], query.sort):
        _write(_told(moment, place, lock, query), events)
        if events.ended:
            break
    return present


def _essence(lock: LockInfo) -> object:
    """What makes a change: not a renewal, and not one more that waits."""
    return (lock.state, [(each.owner, each.host, each.pid, each.user, each.token) for each in lock.holders])


def _told(moment: str, place: Place, lock: LockInfo, query: Query) -> str:
    """A change in the form that is wanted."""
    if query.form == "name":
        return lock.name + "\n"
    if query.for_people:
        return _line(moment, place, lock, query) + "\n"
    document = {"time": moment, **query.labelled(lock_document(lock), place)}
    if query.form == "json":
        return json.dumps(document) + "\n"
    return "---\n" + to_yaml(document)


def _line(moment: str, place: Place, lock: LockInfo, query: Query) -> str:
    holder = lock.holders[0] if lock.holders else None
    where = UNKNOWN if holder is None else place_of(holder)
    token = UNKNOWN if holder is None or holder.token is None else str(holder.token)
    cells = [moment, printable(lock.name), printable(lock.state), where, token]
    if query.all_backends:
        cells.insert(1, place.label)
    if query.form == "wide":
        cells.append(command_line(holder.command) if holder is not None and holder.command else UNKNOWN)
    return "\t".join(cells)


def _write(text: str, events: Events) -> None:
    """All of it, unless the end comes first: a reader that does not read must not keep us from ending."""
    left = text.encode(sys.stdout.encoding, "replace")
    while left and not events.ended:
        if not select.select([], [1], [], 0)[1]:
            events.wait(RETRY, writable=True)
            continue
        left = left[os.write(1, left[:AT_ONCE]) :]
