"""Who takes a lock or waits for one, as other processes of the host can tell: a listening socket for each owner.

Its name is abstract, so nothing of it is left when its process ends, whatever ends that, see unix(7). Who waits for the
end of an owner connects, and its connection ends then, too, accepted or not. Processes in another network namespace,
such as those of another container, are not seen.
"""

from __future__ import annotations

import _socket

from lockctl.errors import BackendUnavailable
from lockctl.wire.deadline import READABLE, Deadline

FOLLOWERS = 4096  # connections that wait to be accepted: one of each who has come, be it gone or not
ACCEPTED = 8  # of these: anybody on the host may connect, and must not use up our descriptors
KIND = _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC


class Presence:
    """The owners of this process that are shown, and the one of another that is followed."""

    def __init__(self) -> None:
        """Nothing is shown or followed yet."""
        self._shown: dict[str, list[_socket.socket]] = {}  # the one that listens, and connections of those who follow
        self._followed: tuple[str, _socket.socket] | None = None

    def show(self, owner: str) -> None:
        """Have others see *owner*; idempotent. What cannot be shown is not: who follows it looks for itself."""
        if owner in self._shown:
            return
        try:
            shown = _socket.socket(_socket.AF_UNIX, KIND)
            self._shown[owner] = [shown]
            shown.bind(_name(owner))
            shown.listen(FOLLOWERS)
        except OSError:
            return

    def end(self, owner: str) -> None:
        """Show *owner* no more, and follow nobody."""
        self.leave()
        for each in self._shown.pop(owner, ()):
            each.close()

    def tidy(self) -> None:
        """Let go of those who follow no more: each that comes while a lock is held would leave a connection behind."""
        for sockets in list(self._shown.values()):
            try:
                while len(sockets) <= ACCEPTED:
                    descriptor, _ = sockets[0]._accept()  # type: ignore[attr-defined] # noqa: SLF001 - as socket does
                    sockets.append(_socket.socket(fileno=descriptor))
            except OSError:
                pass  # nobody else has come
            for each in sockets[1:]:
                if _is_over(each):
                    sockets.remove(each)
                    each.close()

    def follow(self, owner: str, deadline: Deadline, where: str) -> bool:
        """Return when *owner* is shown no more, or at the *deadline*; ``False``: it is not seen.

        Raises ``RequestInterrupted``.
        """
        if self._followed is not None and self._followed[0] != owner:
            self.leave()
        if self._followed is None:
            connection = _connected(owner)
            if connection is None:
                return False
            self._followed = owner, connection
        try:
            deadline.wait(self._followed[1].fileno(), READABLE, where)
        except BackendUnavailable:
            return True  # the time is over
        self.leave()
        return True

    def leave(self) -> None:
        """Follow nobody any more."""
        if self._followed is not None:
            self._followed[1].close()
            self._followed = None

    def close(self) -> None:
        """Show and follow nobody any more."""
        for owner in list(self._shown):
            self.end(owner)
        self.leave()


def _connected(owner: str) -> _socket.socket | None:
    try:
        connection = _socket.socket(_socket.AF_UNIX, KIND)
    except OSError:
        return None
    try:
        connection.connect(_name(owner))
    except OSError:
        connection.close()
        return None
    return connection


def _is_over(connection: _socket.socket) -> bool:
    try:
        return not connection.recv(1, _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _name(owner: str) -> bytes:
    return b"\0lockctl:" + owner.encode("utf-8", "replace")
