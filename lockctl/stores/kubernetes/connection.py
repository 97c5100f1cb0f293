"""Connections to an API server as one user, whose certificate may be exchanged while requests are under way."""

from __future__ import annotations

from lockctl.wire.http import Clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Fields
    from lockctl.wire.stream import Endpoint


class Connections(Clients):
    """Connections with one certificate, whose *files* are there until the last of them has been opened."""

    def __init__(self, endpoint: Endpoint, files: tuple[object, ...]) -> None:
        """*files*: what tells this certificate from others, and keeps it."""
        super().__init__(endpoint)
        self.files = files
        self._retired = False

    def request(
        self, method: str, target: str, deadline: Deadline, *, body: bytes = b"", headers: Fields = ()
    ) -> Response:
        """See ``Clients``."""
        answer = super().request(method, target, deadline, body=body, headers=headers)
        if self._retired:
            self.close()
        return answer

    def retire(self) -> None:
        """Others take its place: keep no connection after the requests that are under way."""
        self._retired = True
        self.close()
