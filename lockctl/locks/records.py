"""The history of a lock as one document: when it was written, and the last runs of both kinds, the newest first."""

from __future__ import annotations

from lockctl import documents, history, json_text
from lockctl.locks.driver import looks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.locks.lock_cells import LockCells
    from lockctl.model import Run
    from lockctl.wire.deadline import Deadline

LARGEST = 4 * history.KEPT * history.ROOM  # bytes of a whole history


def remember(locks: LockCells, name: str, run: Run, deadline: Deadline) -> None:
    """See ``Backend.remember``. A run that is there already was written by a request whose answer was lost."""
    key = locks.past_key(name)
    for seen in looks(locks.cells, key, deadline):
        data = added(seen.data, run, seen.at)
        if data is None or locks.cells.write(key, seen, data, deadline):
            return


def added(data: bytes | None, run: Run, at: float) -> bytes | None:
    """The document with one run more, without those that are too many; ``None`` if the run is there already.

    What is no history is replaced.
    """
    kept = _lists(data)
    document = _as_listed(json_text.parse(history.describe(run)))
    if document in kept[run.started]:
        return None
    kept[run.started] = [document, *kept[run.started]][: history.KEPT]
    started, others = b",".join(kept[True]), b",".join(kept[False])
    return b'{"used":%s,"started":[%s],"others":[%s]}' % (repr(at).encode(), started, others)


def runs(data: bytes | None) -> tuple[Run, ...]:
    """All runs, the newest first."""
    kept = _lists(data)
    return history.runs_in(kept[True] + kept[False])


def last_started(data: bytes | None) -> Run | None:
    """The newest run that started."""
    kept = _lists(data)[True]
    return history.read(kept[0]) if kept else None


def last_use(data: bytes) -> float:
    """When a history was written last: seconds since the epoch by the clock of the store."""
    return documents.seconds(_content(data).get("used")) or 0.0


def _lists(data: bytes | None) -> dict[bool, list[bytes]]:
    content = _content(data)
    found = {True: content.get("started"), False: content.get("others")}
    return {
        started: [_as_listed(each) for each in listed] if isinstance(listed, list) else []
        for started, listed in found.items()
    }


def _as_listed(run: object) -> bytes:
    return json_text.render(run).encode()


def _content(data: bytes | None) -> dict[str, object]:
    if not data or len(data) > LARGEST:
        return {}
    return json_text.an_object(data) or {}
