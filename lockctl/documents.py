"""The JSON documents in which holders, waiters and revocations are written to a store, and read back.

What is read is untrusted: any text that is not such a document gives ``None``, any field of a wrong type
is "not known".
"""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.model import SLOT, Claim, Holder, Waiter
from lockctl.names import json_string, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


ROOM = 3900  # bytes for a holder where a store sets no limit of its own: no command line needs more to be known
LONGEST_NAME = 128  # characters of a host or user ($LOGNAME may be anything): two fit, at up to 12 bytes each
LONGEST_REASON = 2000  # characters
MOST_LABELS = 100
LARGEST = 1 << 16  # bytes: longer than anything that is written here
FAR_AHEAD = 86400.0  # seconds: a success that is noted so far ahead of now was noted by a clock that was wrong
LATEST = 1 << 37  # seconds since the epoch: later than that is no time but somebody's joke


def describe(claim: Claim, extra: dict[str, int | float | str | None], room: int = ROOM) -> bytes:
    """The document of a holder or waiter, in at most *room* bytes: a command that is too long loses its last words."""
    fields = {
        "owner": json_string(claim.owner),
        "host": json_string(claim.host[:LONGEST_NAME]),
        "pid": str(claim.pid),
        "user": json_string(claim.user[:LONGEST_NAME]),
        "mode": json_string(claim.mode),
        "ttl": repr(claim.ttl),
    }
    if claim.mode == SLOT:
        fields["slots"] = str(claim.slots)
    if claim.labels:
        fields["labels"] = an_object_of(claim.labels)
    for name, content in extra.items():
        fields[name] = plain(content)
    return with_command(fields, claim.command, room)


def plain(content: float | str | None) -> str:
    """*content* as JSON."""
    if content is None:
        return "null"
    return json_string(content) if isinstance(content, str) else repr(content)


def an_object_of(pairs: tuple[tuple[str, str], ...]) -> str:
    """*pairs* as a JSON object."""
    return "{" + ",".join([f"{json_string(key)}:{json_string(content)}" for key, content in pairs]) + "}"


def with_command(fields: dict[str, str], command: tuple[str, ...], room: int) -> bytes:
    """The document with these fields and as many words of a command as fit."""
    beginning = "{" + "".join([f'"{name}":{text},' for name, text in fields.items()]) + '"command":['
    spare = room - len(beginning) - len("]}")
    kept: list[str] = []
    for word in command:
        quoted = json_string(word) if len(word) <= room else ""
        if not quoted or len(quoted) + 1 + len('"...",') > spare:
            kept.append('"..."')
            break
        spare -= len(quoted) + 1
        kept.append(quoted)
    return (beginning + ",".join(kept) + "]}").encode()


def describe_revocation(owner: str, by: str, reason: str) -> bytes:
    """The document that asks *owner* for its lock, in the name of *by* (``user@host``)."""
    fields = {"owner": owner, "by": by[: 2 * LONGEST_NAME], "reason": reason[:LONGEST_REASON]}
    return ("{" + ",".join(f'"{name}":{json_string(text)}' for name, text in fields.items()) + "}").encode()


def read(data: bytes | None) -> dict[str, Any] | None:
    """The document in *data* if it is one of those above (an object with an owner), else ``None``."""
    content = an_object(data)
    return content if content is not None and text(content.get("owner")) else None


def was_granted(document: dict[str, Any]) -> bool:
    """Whether who describes itself so was granted the lock: one that waits, also as the first, only says since when."""
    return "acquired_at" in document or "since" not in document


def an_object(data: bytes | None) -> dict[str, Any] | None:
    """The JSON object in *data*, if that is what it is."""
    if not data or len(data) > LARGEST:
        return None
    from lockctl import json_text  # not on the path of a run that holds a file

    return json_text.an_object(data)


def read_revocation(data: bytes | None, owner: str) -> tuple[str, str] | None:
    """Who wants the lock back from *owner*, and why, both printable; ``None`` if nobody does."""
    document = read(data)
    if document is None or document["owner"] != owner:
        return None
    return asked_by(document)


def asked_by(request: dict[str, Any]) -> tuple[str, str]:
    """Who wants a lock back, and why, as the request says; printable."""
    return printable(text(request.get("by")) or "an unknown operator"), printable(text(request.get("reason")) or "")


def holder(
    document: dict[str, Any], *, token: int | None, expires_in: float | None, acquired_at: float | None = None
) -> Holder:
    """The holder that a document describes; *acquired_at* is what the store knows better than the document."""
    return Holder(
        owner=text(document.get("owner")),
        host=text(document.get("host")),
        pid=whole(document.get("pid")),
        user=text(document.get("user")),
        command=words(document.get("command")),
        token=token,
        mode=text(document.get("mode")),
        acquired_at=seconds(document.get("acquired_at")) if acquired_at is None else acquired_at,
        expires_in=expires_in,
        ttl=seconds(document.get("ttl")),
        ended_at=seconds(document.get("ended_at")),
        labels=labels(document.get("labels")),
    )


def slots(document: dict[str, Any]) -> int:
    """How many may hold the lock at once, as the holder or waiter of a document says."""
    number = whole(document.get("slots"))
    return number if document.get("mode") == SLOT and number is not None and number > 0 else 1


def check_agrees(key: str, theirs: int, claim: Claim) -> None:
    """Raise ``ConfigError`` if those at a lock have another number of slots than *claim*."""
    if theirs == claim.slots:
        return
    kind = "one holder" if theirs == 1 else f"{theirs} slots"
    asked = "one holder" if claim.slots == 1 else f"{claim.slots}"
    raise ConfigError(f"{printable(key)} is in use with {kind}, not {asked}: say the same --slots everywhere")


def foreign_holder(
    known_by: object = None,
    *,
    host: str | None = None,
    pid: int | None = None,
    user: str | None = None,
    acquired_at: float | None = None,
    expires_in: float | None = None,
) -> Holder:
    """A holder that is another program, with what can be known of it."""
    return Holder(None, host, pid, user, None, None, "exclusive", acquired_at, expires_in, known_by=known_by)


def waiter(document: dict[str, Any], *, since: float | None = None) -> Waiter:
    """The waiter that a document describes; *since* is what the store knows better than the document."""
    return Waiter(
        host=text(document.get("host")),
        pid=whole(document.get("pid")),
        user=text(document.get("user")),
        since=seconds(document.get("since")) if since is None else since,
    )


def is_newer(at: float, noted: float | None, now: float) -> bool:
    """Whether a success at *at* replaces the one that was *noted*, as it does unless it comes late: the newest counts.

    A clock that was wrong must not keep a job from being noted for years.
    """
    return noted is None or at > noted or noted > now + FAR_AHEAD


def words(content: object) -> tuple[str, ...] | None:
    """*content* as the words of a command, if it is a list."""
    return tuple(str(word) for word in content) if isinstance(content, list) else None


def labels(content: object) -> tuple[tuple[str, str], ...]:
    """*content* as labels, as far as it is an object."""
    pairs = content.items() if isinstance(content, dict) else ()
    return tuple([(key, each) for key, each in pairs if isinstance(each, str)][:MOST_LABELS])


def text(content: object) -> str | None:
    """*content* if it is text."""
    return content if isinstance(content, str) else None


def whole(content: object) -> int | None:
    """*content* if it is a whole number."""
    return content if isinstance(content, int) and not isinstance(content, bool) else None


def seconds(content: object) -> float | None:
    """*content* if it is a point of time or a span that can be."""
    plain = isinstance(content, (int, float)) and not isinstance(content, bool)
    return float(content) if plain and 0 <= content < LATEST else None  # type: ignore[arg-type,operator]
