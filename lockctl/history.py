"""What each backend keeps beside its locks, as JSON documents: the runs of the past, and when something was noted.

What is read is untrusted, as in :mod:`lockctl.documents`. Loaded when a run has ended.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.model import Grant, Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


KEPT = 100  # runs that started, and as many that did not, in the history of a lock
AGE = 366 * 86400  # seconds after its last run for which a history is kept, where the store can forget by itself
ROOM = 1000  # bytes for one run
LONGEST_DETAIL = 200  # characters


def describe(run: Run, noted_at: float | None = None) -> bytes:
    """The document of a run for the history of its lock, on one line, in about ``ROOM`` bytes at most.

    *noted_at* is when it is written, in seconds since the epoch by the clock of the store, where that counts. It is
    rounded up: a name that was used later than it says could be forgotten too soon.
    """
    fields = {
        "host": documents.plain(run.host and run.host[: documents.LONGEST_NAME]),
        "user": documents.plain(run.user and run.user[: documents.LONGEST_NAME]),
        "token": documents.plain(run.token),
        "started_at": documents.plain(run.started_at),
        "ended_at": documents.plain(run.ended_at),
        "duration": documents.plain(run.duration),
        "waited": documents.plain(run.waited),
        "outcome": documents.plain(run.outcome),
        "exit_code": documents.plain(run.exit_code),
        "detail": documents.plain(run.detail and run.detail[:LONGEST_DETAIL]),
    }
    if run.labels:
        fields["labels"] = documents.an_object_of(run.labels)
    text = documents.with_command(fields, run.command or (), ROOM)
    return text if noted_at is None else text[:-1] + b',"noted_at":%d}' % -(-noted_at // 1)


def read(data: bytes | None) -> Run | None:
    """The run that a document of :func:`describe` tells of; ``None`` if it is none."""
    content = documents.an_object(data)
    if content is None or not documents.text(content.get("outcome")):
        return None
    return Run(
        host=documents.text(content.get("host")),
        user=documents.text(content.get("user")),
        command=documents.words(content.get("command")),
        token=documents.whole(content.get("token")),
        started_at=documents.seconds(content.get("started_at")),
        ended_at=documents.seconds(content.get("ended_at")),
        duration=documents.seconds(content.get("duration")),
        waited=documents.seconds(content.get("waited")),
        outcome=content["outcome"],
        exit_code=documents.whole(content.get("exit_code")),
        detail=documents.text(content.get("detail")),
        labels=documents.labels(content.get("labels")),
    )


def runs_in(found: Iterable[bytes | None]) -> tuple[Run, ...]:
    """The runs in these documents, as :func:`in_order` has them, without what is none."""
    return in_order(filter(None, map(read, found)))


def in_order(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs of both kinds as one sequence, the newest first.

    The runs of each kind must come in the order of the store, the newest first, and stay in it: hosts have clocks that
    differ. Only between the two kinds do the clocks of the hosts decide.
    """
    started: list[Run] = []
    refused: list[Run] = []
    for run in runs:
        (started if run.started else refused).append(run)
    merged = []
    while started and refused:
        first_started = (started[0].ended_at or 0.0) >= (refused[0].ended_at or 0.0)
        merged.append((started if first_started else refused).pop(0))
    return (*merged, *started, *refused)


def describe_success(grant: Grant) -> bytes:
    """The document of the last success: when the run of *grant* began."""
    return f'{{"at":{grant.at!r},"token":{grant.token}}}'.encode()


def success_in(data: bytes | None) -> float | None:
    """When the run began that a document of :func:`describe_success` tells of; ``None`` if it is none."""
    return time_in(data, "at")


def time_in(data: bytes | None, *fields: str) -> float | None:
    """The first point of time in these fields of a JSON object; ``None``: there is none, or *data* is no object."""
    content = documents.an_object(data) or {}
    times = (documents.seconds(content.get(field)) for field in fields)
    return next((time for time in times if time is not None), None)
