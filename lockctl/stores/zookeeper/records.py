"""What is remembered of a lock below ``ROOT/.kept/NAME``: its last success, and its last runs.

``success`` has the time of the last success. Below ``runs`` each run is a sequential node,
``started-<token>-<number>``, or ``other-<number>`` if its command never started; older versions write no token.
Loaded when a run has ended, or when somebody looks.
"""

from __future__ import annotations

from lockctl import clock, documents, history
from lockctl.locks.native import pause_for_next
from lockctl.stores.zookeeper import queue
from lockctl.stores.zookeeper.errors import or_none, usable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Grant, Run
    from lockctl.stores.zookeeper.session import Call, Session
    from lockctl.wire.deadline import Deadline

STARTED, OTHER = "started-", "other-"
SURPLUS = 10  # runs beyond those that are kept, before some are removed: then with one round trip for so many
MOST_REMOVED = 200  # at a time


def last_success(session: Session, name: str, deadline: Deadline) -> float | None:
    """See ``Backend.last_success``; raises as ``Session.ask``."""
    path = f"{session.place.kept(name)}/success"
    _, answer = session.ask(deadline, lambda client: client.sync(path), lambda client: client.get(path))
    found = or_none(session.place, answer, path)
    return None if found is None else history.success_in(found[0])


def note_success(session: Session, grant: Grant, deadline: Deadline) -> None:
    """See ``Backend.note_success``; raises as ``Session.ask``."""
    from kazoo.exceptions import BadVersionError, NoNodeError

    path = f"{session.place.kept(grant.claim.name)}/success"
    data = history.describe_success(grant)
    while True:
        (answer,) = session.ask(deadline, lambda client: client.get(path))
        found = or_none(session.place, answer, path)
        if found is None:
            session.make(path, deadline)
            continue
        if not documents.is_newer(grant.at, history.success_in(found[0]), clock.wall()):
            return
        # what was read may be old: then it has changed since, and is read again
        answer = _put(session, path, data, found[1].version, deadline)
        if not isinstance(answer, (NoNodeError, BadVersionError)):
            usable(session.place, answer, path)
            return


def _put(session: Session, path: str, data: bytes, version: int, deadline: Deadline) -> Any:
    """The answer to writing a node that is still in this version."""
    return session.ask(deadline, lambda client: client.put(path, data, version))[0]


def remember(session: Session, name: str, run: Run, deadline: Deadline) -> None:
    """See ``Backend.remember``; raises as ``Session.ask``.

    The run may have been added when the lock was given back, without an answer to us: then that node stays.
    """
    from kazoo.exceptions import NoNodeError

    runs = session.place.runs(name)
    while True:
        made, names = session.ask(deadline, _adding(runs, run), lambda client: client.children(runs))
        if not isinstance(made, NoNodeError):
            break
        session.make(runs, deadline)
    usable(session.place, made, runs)
    if isinstance(names, Exception):
        return
    stem = _stem(run)
    again = [] if stem == _kind(run) else [f"{runs}/{node}" for node in in_order(names, stem)[1:]]
    if old := again + _surplus(runs, run, names):
        session.ask(deadline, *map(_removing, old))


def add_at_the_end(session: Session, name: str, names: Any, run: Run, deadline: Deadline) -> bool:
    """Add a run to the history and end the session, as a rule in one round trip; whether it was added.

    *names* is the answer to a request for the runs that there are. Raises as ``Session.ask``: then neither is known.
    After a longer job whoever waits takes its turn first: the servers write one transaction after the other.
    """
    if pause := pause_for_next(run):
        clock.pause(min(pause, deadline.left()))
    runs, old = session.place.runs(name), list[str]()
    if isinstance(names, Exception):
        session.make(runs, deadline)
    else:
        old = _surplus(runs, run, names)
    made, *_ = session.ask(deadline, _adding(runs, run), *map(_removing, old), lambda client: client.close())
    session.abandon()
    return not isinstance(made, Exception)


def _adding(runs: str, run: Run) -> Call:
    """The request that adds a run to its container."""
    path, data = f"{runs}/{_stem(run)}", history.describe(run)
    return lambda client: client.create(path, data, sequence=True)


def _removing(path: str) -> Call:
    return lambda client: client.delete(path)


def _kind(run: Run) -> str:
    return STARTED if run.started else OTHER


def _stem(run: Run) -> str:
    """The name of its node without the number: by the token a run is found that was added before."""
    return f"{STARTED}{run.token:016x}-" if run.started and run.token else _kind(run)


def _surplus(runs: str, run: Run, names: list[str]) -> list[str]:
    """The nodes of runs that are to be removed, among those of a container; another may do it at the same time."""
    surplus = in_order(names, _kind(run))[: -history.KEPT]
    return [f"{runs}/{node}" for node in surplus[:MOST_REMOVED]] if len(surplus) > SURPLUS else []


def in_order(names: list[str], stem: str) -> list[str]:
    """The runs of one kind among the children of a container, the oldest first."""
    return queue.in_order([name for name in names if name.startswith(stem)])


def read_history(session: Session, name: str, deadline: Deadline) -> tuple[Run, ...]:
    """See ``Backend.history``; raises as ``Session.ask``."""
    runs = session.place.runs(name)
    _, answer = session.ask(deadline, lambda client: client.sync(runs), lambda client: client.children(runs))
    names = or_none(session.place, answer, runs) or []
    wanted = [node for stem in (STARTED, OTHER) for node in in_order(names, stem)[-history.KEPT :][::-1]]
    if not wanted:
        return ()
    paths = [f"{runs}/{node}" for node in wanted]
    found = session.ask(deadline, *[lambda client, path=path: client.get(path) for path in paths])
    return history.in_order(filter(None, map(read, found)))


def read(found: Any) -> Run | None:
    """The run in the answer of a server; ``None``: the node has gone, or there is none in it."""
    return None if isinstance(found, Exception) else history.read(found[0])
