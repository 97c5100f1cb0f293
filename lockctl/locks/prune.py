"""Names of locks in cells that nobody uses any more."""

from __future__ import annotations

from lockctl.locks import records
from lockctl.locks.driver import Seen, looks
from lockctl.locks.inspect import in_cells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.locks.lock_cells import LockCells
    from lockctl.wire.deadline import Deadline


def unused(locks: LockCells, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend.unused``."""
    found, in_use = dict[str, float](), set()
    of_locks, of_pasts = locks.key(""), locks.past_key("")
    for start in (of_locks, of_pasts):
        for name, seen in in_cells(locks.cells, start, pattern, deadline):
            used = _last_use(locks, seen) if start == of_locks else _last_use(locks, None, seen)
            if used is None or seen.at - used < older_than:
                in_use.add(name)
            else:
                found[name] = max(used, found.get(name, 0.0))
    return iter(sorted((name, used) for name, used in found.items() if name not in in_use))


def forget(locks: LockCells, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend.forget``. The greatest token of all that was forgotten is kept in a cell of its own."""
    cells, lock_key, past_key = locks.cells, locks.key(name), locks.past_key(name)
    for seen in looks(cells, lock_key, deadline):
        past = cells.read(past_key, deadline)
        used = _last_use(locks, seen, past)
        if used is None or past.at - used < older_than:
            return False
        if seen.data is not None:
            locks.raise_floor(locks.known(name, seen).token, deadline)
            if not cells.write(lock_key, seen, None, deadline):
                continue
        return past.data is None or cells.write(past_key, past, None, deadline)
    return False


def _last_use(locks: LockCells, seen: Seen | None, past: Seen | None = None) -> float | None:
    """When a name was used last, if lockctl has something of it and nobody uses it now."""
    uses = []
    if seen is not None and seen.data is not None:
        lock = locks.lock(seen)
        if lock is None or lock.is_in_use():
            return None
        uses.append(lock.used)
    if past is not None and past.data is not None:
        uses.append(records.last_use(past.data))
    return max(uses, default=None)
