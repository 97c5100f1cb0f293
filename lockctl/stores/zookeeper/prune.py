"""Names that nobody uses any more: finding them, and removing their nodes.

The counter of the tokens goes with the name, and in the same transaction the floor is written, and raised above it
unless it is above: no clock has to keep the tokens in their order. A counter ahead of the clock is kept, so that the
floor is not: by the clock of the leader, and by ours. The node of a lock goes only if lockctl made it, as its data say:
kazoo's ``Lock`` makes it once and fails for good when it has gone.
"""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.history import KEPT as RUNS_KEPT
from lockctl.locks.inspect import matching
from lockctl.model import MICROSECONDS
from lockctl.stores.zookeeper import inspect, records, tokens
from lockctl.stores.zookeeper.address import MADE_BY_US, Place
from lockctl.stores.zookeeper.errors import check_rights, or_none, usable
from lockctl.stores.zookeeper.tokens import Record
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.zookeeper.protocol import Requests
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline

STEPS = 4  # requests for one name
NAMES_AT_ONCE = inspect.AT_ONCE // STEPS
CLOCK = ".clock-"  # a node that shows the leader's time, and goes with the session; no lock can have this name


class _Traces(Value):
    """What there is of one name."""

    lock: Any  # data and stat of each node; ``None``: there is none
    record: Any
    success: Any
    runs: list[str] | None
    used_at: float  # seconds since the epoch

    def is_unused(self, older_than: float, now: float) -> bool:
        """Whether there is something of ours, which nobody has used for so long at *now* of the leader's clock."""
        if self.lock is not None and self.lock[1].numChildren:
            return False
        if self.record is None and not self.is_our_lock:
            return False
        if self.record is not None:
            record = Record(*self.record)
            if record.until / 1000 > now or record.last / MICROSECONDS >= min(now, wall()):
                return False
        return now - self.used_at >= older_than

    @property
    def is_our_lock(self) -> bool:
        """Whether the node of the lock was made by lockctl."""
        return self.lock is not None and self.lock[0] == MADE_BY_US


def unused(session: Session, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend``; a look tells no time, so it is by our clock which the leader's is taken for."""
    place, names = session.place, inspect.children(session, deadline)
    (kept,) = session.ask(deadline, lambda client: client.children(place.records))
    wanted = matching(names if isinstance(kept, Exception) else [*names, *kept], pattern)
    now, found = wall(), list[tuple[str, float]]()
    for start in range(0, len(wanted), NAMES_AT_ONCE):
        some = wanted[start : start + NAMES_AT_ONCE]
        traces = _traces(session, place, some, deadline)
        found += [
            (name, each.used_at) for name, each in zip(some, traces, strict=True) if each.is_unused(older_than, now)
        ]
    return iter(found)


def forget(session: Session, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend``; looked at again when another name was forgotten meanwhile."""
    while True:
        forgotten = _forget(session, name, older_than, deadline)
        if forgotten is not None:
            return forgotten


def _forget(session: Session, name: str, older_than: float, deadline: Deadline) -> bool | None:
    """One transaction, which does nothing once a node has changed or has got another child; ``None``: the floor has."""
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

    place = session.place
    path = f"{place.root}/{CLOCK}"
    # the floor first: so nothing that is seen was removed and made again if it is the same in the end
    _, answer = session.ask(deadline, lambda client: client.sync(place.root), lambda client: client.get(place.records))
    floor = tokens.known(place, answer, place.records)
    (seen,) = _traces(session, place, [name], deadline)
    if not seen.is_unused(older_than, float("inf")):
        return False
    (made,) = session.ask(deadline, lambda client: client.create(path, ephemeral=True, sequence=True, with_stat=True))
    usable(session.place, made, path)
    if not seen.is_unused(older_than, made[1].ctime / 1000):
        return False
    seen = replace(seen, runs=_without_surplus(session, name, seen.runs, deadline))
    (answers,) = session.ask(deadline, lambda client: _removal(client, place, name, seen, floor))
    lock = place.key(name)
    usable(session.place, answers, lock)
    check_rights(session.place, answers)
    if seen.record is not None and isinstance(answers[-1], BadVersionError):
        return None
    if any(isinstance(each, (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)) for each in answers):
        return False
    usable(session.place, answers[0], lock)
    return True


def _removal(client: Requests, place: Place, name: str, seen: _Traces, floor: Record) -> Any:
    """The transaction that removes what was seen of a name, for ``Session.ask``, and writes the *floor* at its end."""
    lock, record = place.key(name), place.kept(name)
    parts = []
    if seen.lock is None:
        parts += [client.create(lock), client.delete(lock)]  # nobody has made it meanwhile, to take the lock
    elif seen.is_our_lock:
        parts.append(client.delete(lock, seen.lock[1].version))
    if seen.success is not None:
        parts.append(client.delete(f"{record}/success", seen.success[1].version))
    parts += [client.delete(f"{record}/runs/{run}") for run in seen.runs or ()]
    if seen.runs is not None:
        parts.append(client.delete(f"{record}/runs"))
    if seen.record is not None:
        parts.append(client.delete(record, seen.record[1].version))
        is_below = Record(*seen.record).last > floor.last
        # raised once for many names
        data = tokens.plain(int(wall() * MICROSECONDS)) if is_below else floor.data
        parts.append(client.put(place.records, data, floor.written_version))
    return client.transaction(*parts)


def _traces(session: Session, place: Place, names: list[str], deadline: Deadline) -> list[_Traces]:
    """What there is of some names, in two round trips."""
    calls = []
    for name in names:
        lock, record, runs = place.key(name), place.kept(name), session.place.runs(name)
        calls += [
            lambda client, path=lock: client.get(path),
            lambda client, path=record: client.get(path),
            lambda client, path=f"{record}/success": client.get(path),
            lambda client, path=runs: client.children(path),
        ]
    answers = [or_none(session.place, answer, place.root) for answer in session.ask(deadline, *calls)]
    rows = [answers[start : start + STEPS] for start in range(0, len(answers), STEPS)]
    newest = [
        f"{session.place.runs(name)}/{run}"
        for name, row in zip(names, rows, strict=True)
        for stem in (records.STARTED, records.OTHER)
        for run in records.in_order(row[-1] or [], stem)[-1:]
    ]
    stats = session.ask(deadline, *[lambda client, path=path: client.exists(path) for path in newest])
    times: dict[str, float] = {}
    for path, answer in zip(newest, stats, strict=True):
        stat = or_none(session.place, answer, path)
        name = path[: path.rindex("/")]
        times[name] = max(times.get(name, 0.0), wall() if stat is None else stat.ctime / 1000)  # gone: somebody is here
    found = []
    for name, (lock, record, success, runs) in zip(names, rows, strict=True):
        ours = lock if lock is not None and lock[0] == MADE_BY_US else None
        nodes = [node[1].mtime / 1000 for node in (ours, record, success) if node is not None]
        used_at = max([times.get(session.place.runs(name), 0.0), *nodes])
        found.append(_Traces(lock, record, success, runs, used_at))
    return found


def _without_surplus(session: Session, name: str, runs: list[str] | None, deadline: Deadline) -> list[str] | None:
    """The runs that one transaction can remove: of what is too many, the rest is removed here."""
    if runs is None or len(runs) <= 2 * (RUNS_KEPT + records.SURPLUS + 1):
        return runs
    kept = {run for stem in (records.STARTED, records.OTHER) for run in records.in_order(runs, stem)[-RUNS_KEPT:]}
    surplus = [f"{session.place.runs(name)}/{run}" for run in runs if run not in kept]
    for start in range(0, len(surplus), inspect.AT_ONCE):
        some = surplus[start : start + inspect.AT_ONCE]
        session.ask(deadline, *[lambda client, path=path: client.delete(path) for path in some])
    return sorted(kept)
