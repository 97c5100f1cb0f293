"""A lock as an operator sees it, put together alike for every store."""

from __future__ import annotations

import itertools

from lockctl.model import LockInfo
from lockctl.names import ALLOWED, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lockctl.model import Holder, Run, Waiter


def is_match(name: str, pattern: str) -> bool:
    """Whether *name* can name a lock and matches a glob."""
    from fnmatch import fnmatchcase  # loads `re`, which a run that reports who holds a lock does not need

    return fnmatchcase(name, pattern) and is_name(name)


def beginning(pattern: str) -> str:
    """What every name begins with that matches a glob."""
    return "".join(itertools.takewhile(ALLOWED.__contains__, pattern))


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Those that can name a lock and match a glob, in their order, each once."""
    return sorted(name for name in set(names) if is_match(name, pattern))


def lock_info(
    scheme: str,
    fencing: str,
    name: str,
    key: str,
    holders: Sequence[Holder],
    waiters: Iterable[Waiter] | None,
    *,
    slots: int = 1,
    last_run: Run | None = None,
) -> LockInfo:
    """A lock with these holders: another program's, if lockctl does not know the owner of one of them."""
    state = "free" if not holders else "held" if all(holder.owner for holder in holders) else "foreign"
    return LockInfo(
        name=name,
        backend=scheme,
        key=key,
        state=state,
        fencing=fencing,
        slots=slots,
        holders=tuple(holders),
        waiters=None if waiters is None else tuple(waiters),
        last_run=last_run,
    )
