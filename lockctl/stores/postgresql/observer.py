"""A connection that holds no lock, for everything but holding and waiting."""

from __future__ import annotations

import _thread

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql.connection import open_side
from lockctl.stores.postgresql.session import SessionGone, SqlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.tokens import Fence
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")


class Observer:
    """One connection, which is opened when it is first needed."""

    def __init__(self, address: Address, fence: Fence) -> None:
        """For the locks of *address*, whose tokens are in the tables of *fence*."""
        self.address = address
        self.fence = fence
        self._session: Opened | None = None
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def rest(self) -> None:
        """Close the connection if nobody uses it: a pooler may have no other one for a lock."""
        if self._mutex.acquire(blocking=False):
            self.close()
            self._mutex.release()

    def adopt(self, session: Opened) -> None:
        """Use *session*, which holds nothing, instead of another that would have to be opened; or close it."""
        if self._session is None and self._mutex.acquire(blocking=False):
            self._session = session
            self._mutex.release()
        else:
            session.close()

    def with_session(self, ask: Callable[[Opened], T], deadline: Deadline) -> T:
        """What *ask* finds out with a connection; a second time with another if the first one had ended meanwhile."""
        if not self._mutex.acquire(timeout=min(deadline.left(), 60.0)):
            raise BackendUnavailable("postgresql: another request has not ended yet")
        try:
            while True:
                fresh = self._session is None
                if self._session is None:
                    self._session = open_side(self.address, deadline)
                try:
                    return ask(self._session)
                except (SqlError, ConfigError):
                    raise
                except SessionGone:
                    self.close()
                    if fresh:
                        raise
                except BaseException:
                    self.close()  # its late answer would be taken for that to the next request
                    raise
        finally:
            self._mutex.release()
