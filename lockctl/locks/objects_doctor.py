"""What would break locks in a store of objects, asked as locks ask: missing rights, and conditions not heeded."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import WHOLE_SECONDS, Check, Examination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.locks.objects import ObjectCells
    from lockctl.wire.deadline import Deadline


def look(cells: ObjectCells, found: Examination, deadline: Deadline) -> None:
    """Read and list, and measure how long an answer takes. Raises ``BackendUnavailable``, ``ConfigError``."""
    found.measure(lambda: cells.read("doctor", deadline).at, WHOLE_SECONDS)
    list(cells.scan("doctor", deadline))


def is_forbidden(refused: ConfigError) -> bool:
    """Whether a right is missing."""
    return "(403)" in str(refused)


def judge_sound(cells: ObjectCells, found: Examination, rights: Check, conditions: Check, what: str) -> None:
    """All went well with *what* the store has: objects, blobs."""
    found.judge(rights, f"{what} may be read, written, deleted and listed")
    seen = "heeded by writes" + (" and deletions" if cells.deletes else ", not by deletions, which locks do without")
    found.judge(conditions, seen)


def judge(
    cells: ObjectCells, found: Examination, rights: Check, conditions: Check, what: str, deadline: Deadline
) -> bool:
    """Look, and write on conditions; whether all went well. Raises ``BackendUnavailable``, ``ConfigError``."""
    try:
        look(cells, found, deadline)
        cells.prove(deadline)
    except ConfigError as refused:
        if is_forbidden(refused):
            found.judge(rights, str(refused), fails=True)
        elif "ignores" in str(refused):
            found.judge(conditions, str(refused), fails=True)
        else:
            raise
        return False
    judge_sound(cells, found, rights, conditions, what)
    return True
