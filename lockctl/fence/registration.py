"""``run --fence``: register the token at a resource before the command starts; a signal can end that."""

from __future__ import annotations

from lockctl import secret
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, TokenRefused, UsageError
from lockctl.fence import sql
from lockctl.fence.location import locate
from lockctl.fence.mark import Mark
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

LATE = 1.0  # seconds that a store may take longer than it was told to


class Registrar:
    """Registers a token at one resource; call it for that."""

    def __init__(
        self, words: str, interrupt: int, ending_signal: Callable[[], int | None], *, correctness: bool
    ) -> None:
        """The resource that *words* mean; nothing is connected yet. Raises ``ConfigError``, ``UsageError``.

        *interrupt* is readable when a signal came; *ending_signal* then says which one ends the step, also that of
        reading a password now (``Interrupted``). With *correctness* a store that can forget marks is refused.
        """
        self._correctness = correctness
        self._words = words
        try:
            if "://" in words:
                secret.resolve(parse_url(words), interrupt, ending_signal)  # kept for the store of marks
            self._location = locate(words)
        except (ConfigError, UsageError) as wrong:
            wrong.of_fence = True
            raise
        self._interrupt = interrupt
        self._ending_signal = ending_signal

    def __call__(self, domain: str, token: int, timeout: float) -> tuple[str, str] | None:
        """Advance the mark; why not ("stale", "unavailable", "config") and one line about it, if it was refused.

        Raises ``Interrupted``: then it is not known whether the mark was recorded.
        """
        location = self._location

        def register() -> None:
            with location:
                if self._correctness:
                    location.store.check_durable(timeout=timeout)
                location.store.advance(location.resource, Mark(domain, token), timeout=timeout)

        try:
            interruptible(register, timeout, self._interrupt, self._ending_signal)
        except TokenRefused as stale:
            return "stale", str(stale)
        except BackendUnavailable as unknown:
            return "unavailable", str(unknown)
        except ConfigError as wrong:
            return "config", str(wrong)
        return None

    def variables(self, domain: str, token: int, pgoptions: str) -> list[str]:
        """What the command gets, so that a database can check its writes: ``NAME=content``, or nothing.

        *pgoptions* is what was in ``PGOPTIONS`` before.
        """
        if not self._words.lower().startswith("postgresql:"):
            return []
        return ["PGOPTIONS=" + sql.pgoptions(Mark(domain, token), pgoptions)]


def interruptible(call: Callable[[], T], timeout: float, interrupt: int, ending_signal: Callable[[], int | None]) -> T:
    """The result of *call*, which should not take longer than *timeout* seconds; its error is raised here.

    It runs in a thread of its own, which is left to its fate when a signal ends the wait (``Interrupted``), or
    when it takes longer all the same (``BackendUnavailable``), as the system calls of a dead file system do.
    """

    def stop_if_asked() -> None:
        signum = ending_signal()
        if signum is not None:
            raise Interrupted(signum)

    return bounded(call, Deadline(timeout + LATE, interrupt), "the mark", interrupted=stop_if_asked)
