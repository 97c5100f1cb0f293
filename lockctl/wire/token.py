"""A token that a library or another program gives us, which ends, and is renewed before."""

from __future__ import annotations

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.wire.deadline import Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


RENEWED_BEFORE = 300.0  # seconds before the end of a token


class Token:
    """Safe for several threads. Never print what it gives."""

    def __init__(self, ask: Callable[[], tuple[str, float]], where: str) -> None:
        """*ask*, which may take any time, gives a token and when it ends, by our wall clock."""
        self._ask = ask
        self._where = where
        self._known: tuple[str, float, float] | None = None  # with the time at which it is renewed

    def now(self, deadline: Deadline) -> str:
        """The token. One that has not ended is used while there is no other.

        Raises ``BackendUnavailable``, ``RequestInterrupted``, and what *ask* raises.
        """
        known = self._known
        if known is None:
            return bounded(self._renewed, deadline, self._where)
        text, renewed, ends = known
        if clock.wall() > renewed:
            try:
                return bounded(self._renewed, deadline.sooner(deadline.left() / 2), self._where)
            except (BackendUnavailable, ConfigError):
                if clock.wall() > ends:
                    raise
        return text

    def forget(self) -> None:
        """Ask for another when one is next needed: a server did not accept this one."""
        self._known = None

    def _renewed(self) -> str:
        text, ends = self._ask()
        now = clock.wall()
        seconds = max(0.0, ends - now)
        self._known = text, now + seconds - min(RENEWED_BEFORE, seconds / 2), ends
        return text
