"""Asking the holder of a lock for it, or taking it away."""

from __future__ import annotations

from lockctl.errors import another_program, only_a_hold
from lockctl.stores.zookeeper import hold
from lockctl.stores.zookeeper.errors import or_none
from lockctl.stores.zookeeper.inspect import holder, settled
from lockctl.stores.zookeeper.queue import with_revocation
from lockctl.stores.zookeeper.tokens import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Holder, Revocation
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline


def revoke(session: Session, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend``. Raises as ``Session.ask``."""
    place = session.place
    while True:
        sight, _ = settled(session, name, deadline, waiters=1)
        last = 0 if sight.record is None else Record(*sight.record).last
        floor = max(last, seen.token or 0) + 1  # an older lockctl did not raise the counter
        if sight.kept is not None and sight.kept.identity == seen.identity and sight.record is not None:
            if not wanted.now:
                raise only_a_hold(name)
            if hold.end(session, place.kept(name), sight.record, deadline):
                return floor
            continue
        held = next((each for each in sight.inside if holder(*each).identity == seen.identity), None)
        if held is None:
            return None
        node, data, _ = held
        path, current = f"{place.key(name)}/{node}", holder(*held)
        # the path is of this holder alone, which compares enough: its renewals change the version
        if wanted.now:
            (answer,) = session.ask(deadline, lambda client: client.delete(path))  # noqa: B023
        elif current.owner is None:
            raise another_program(name)
        else:
            asked = with_revocation(data, current.owner, wanted.by, wanted.reason)
            (answer,) = session.ask(deadline, lambda client: client.put(path, asked))  # noqa: B023
        return None if or_none(session.place, answer, path) is None else floor
