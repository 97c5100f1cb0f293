"""What ``--min-hold`` leaves behind: a key beside the lock that says until when nobody is to have it.

Sessions end between one and two ttls after their last renewal, ten seconds at least: too coarse. So this is a record,
which only lockctl looks at: who takes the lock makes sure in the same step that there is none, and who finds one that
is over removes it. It ends by the clock of the agent, which says whole seconds only: never too early, and not much more
than one too late.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.stores.consul.layout import Entry, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Grant, Holder
    from lockctl.stores.consul.protocol import Agent
    from lockctl.wire.deadline import Deadline

RESOLUTION = 1.0  # seconds of the clock in an answer
LOOK = 0.25  # seconds between looks in the last one


def keep(agent: Agent, key: str, grant: Grant, seconds: float, deadline: Deadline) -> dict[str, Any]:
    """The operation that keeps a lock for so many more seconds."""
    agent.get(key, deadline)  # asks for the time
    now = agent.now()
    times = {"acquired_at": grant.at, "ended_at": now, "until": now + RESOLUTION + seconds}
    value = documents.describe(grant.claim, {"token": grant.token, **times})
    return written(key, value)


def holder(entry: Entry | None, now: float) -> Holder | None:
    """Who keeps the lock still, at *now* of the agent's clock."""
    document = None if entry is None else documents.read(entry.value)
    until = None if document is None else documents.seconds(document.get("until"))
    if document is None or until is None or until <= now:
        return None
    found = documents.holder(document, token=documents.whole(document.get("token")), expires_in=until - now)
    return found if found.ended_at is not None else None


def is_over(agent: Agent, key: str, deadline: Deadline) -> bool:
    """Whether nobody keeps the lock any more; what is left of it is gone then."""
    entry = agent.get(key, deadline)
    if holder(entry, agent.now()) is not None:
        return False
    if entry is not None:
        agent.transact([{"Verb": "delete-cas", "Key": key, "Index": entry.index}], deadline)
    return True


def is_kept(agent: Agent, key: str, span: float, deadline: Deadline) -> bool:
    """Whether the lock is still kept after at most *span* seconds, or shortly before the end of the hold."""
    entry, index = agent.watch(key, 0, deadline, 0.0)  # answered at once: its limit is that of an answer
    keeper = holder(entry, agent.now())
    if keeper is None:
        return False
    left = keeper.expires_in or 0.0
    # a blocking query lasts up to a sixteenth longer than asked for
    entry, _ = agent.watch(key, index, deadline, min(span, max(left - RESOLUTION, LOOK)))
    return holder(entry, agent.now()) is not None
