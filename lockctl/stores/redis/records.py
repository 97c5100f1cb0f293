"""What one server keeps of a lock when nobody holds it: when the last success began, and the last runs."""

from __future__ import annotations

from lockctl import documents, history
from lockctl.stores.redis.layout import REFUSED, RUNS, SUCCESS, no_answer, remembered
from lockctl.stores.redis.scripts import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant, Run
    from lockctl.stores.redis.session import Command, Session
    from lockctl.wire.deadline import Deadline

# ARGV: when the run began, in seconds since the epoch -> whether it was written
NOTE = named(f"""
if redis.replicate_commands then redis.replicate_commands() end
local text = redis.pcall('GETRANGE', KEYS[1], 0, 31)
local noted, now = type(text) == 'string' and tonumber(text), tonumber(redis.call('TIME')[1])
if noted and noted >= tonumber(ARGV[1]) and noted <= now + {documents.FAR_AHEAD} then
  redis.call('EXPIRE', KEYS[1], {history.AGE})
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', {history.AGE})
return 1
""")


def last_success(session: Session, name: str, deadline: Deadline) -> float | None:
    """See ``Backend.last_success``; what is no time counts as never."""
    text = session.call("GET", remembered(session.prefix, name, SUCCESS), deadline=deadline)
    try:
        return documents.seconds(float(text)) if isinstance(text, bytes) else None
    except ValueError:
        return None


def note_success(session: Session, grant: Grant, deadline: Deadline) -> None:
    """See ``Backend.note_success``. It is as durable as a write to this server, and forgotten a year later."""
    session.run(NOTE, (remembered(session.prefix, grant.claim.name, SUCCESS),), [f"{grant.at:.6f}"], deadline)


def remember(session: Session, name: str, run: Run, deadline: Deadline) -> None:
    """See ``Backend.remember``."""
    session.calls(adding(session, name, run), deadline)


def adding(session: Session, name: str, run: Run) -> list[Command]:
    """The commands that add a run; one that is sent twice is remembered once."""
    key = remembered(session.prefix, name, RUNS if run.started else REFUSED)
    document = history.describe(run)
    return [
        ("LREM", key, 0, document),
        ("LPUSH", key, document),
        ("LTRIM", key, 0, history.KEPT - 1),
        ("EXPIRE", key, history.AGE),
    ]


def read_history(session: Session, name: str, deadline: Deadline) -> tuple[Run, ...]:
    """See ``Backend.history``."""
    return history.runs_in(runs(session, name, deadline))


def runs(session: Session, name: str, deadline: Deadline) -> list[bytes]:
    """The documents of the runs that this server remembers, of both kinds."""
    keys = [remembered(session.prefix, name, word) for word in (RUNS, REFUSED)]
    replies = session.calls([("LRANGE", key, 0, history.KEPT - 1) for key in keys], deadline)
    if not all(isinstance(reply, list) for reply in replies):
        raise no_answer(session.where)
    return [text for reply in replies for text in reply if isinstance(text, bytes)]
