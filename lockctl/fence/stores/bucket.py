"""Objects in buckets whose servers tell and take in header fields what belongs to an object: S3, and Azure's."""

from __future__ import annotations

from urllib.parse import quote

from lockctl.fence.stores.space import Head, Seen
from lockctl.locks.objects import etag_of, unconditional
from lockctl.names import printable
from lockctl.value import Protocol, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.fence.mark import Mark
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline


class Fields(Value):
    """The header fields of a protocol. Names are in lower case."""

    metadata: str  # what the names of metadata begin with
    mark: str  # the metadata under which the data say which token wrote them
    kept: dict[str, str]  # what belongs to an object beside its content: as it is told -> as it is taken
    always: dict[str, str]  # goes with each write


class Bucket(Protocol):
    """Requests for the objects of one bucket."""

    where: str

    def ask(
        self, method: str, name: str, deadline: Deadline, *, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Response | None:
        """The answer; with 404 there is no such object. ``None``: a condition is not met."""

    def close(self) -> None:
        """Close the connections."""


class BucketObjects:
    """One bucket as a ``Space`` of objects."""

    sizes = 1  # ETags are made of the content, or of more

    def __init__(self, bucket: Bucket, root: str, fields: Fields) -> None:
        """Nothing is sent yet."""
        self.root = root
        self._bucket = bucket
        self._fields = fields

    def shown(self, key: str) -> str:
        return self._bucket.where + printable(key)

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        answer = self._look("GET", key, deadline)
        return None if answer is None else Seen(answer.body[:limit], etag_of(answer, self.shown(key)))

    def head(self, key: str, deadline: Deadline) -> Head | None:
        answer = self._look("HEAD", key, deadline)
        if answer is None:
            return None
        kept = {
            # as it was sent: of text that is not ASCII, the bytes
            self._fields.kept.get(name, name): text.encode("latin-1").decode("utf-8", "replace")
            for name, text in answer.headers.items()
            if name in self._fields.kept or name.startswith(self._fields.metadata)
        }
        return Head(etag_of(answer, self.shown(key)), kept)

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        headers = {**self._fields.always, **(like.kept if like else {})}
        headers |= {"if-none-match": "*"} if etag is None else {"if-match": etag}
        if mark is not None:
            headers[self._fields.mark] = quote(str(mark), safe=" !#$&'()*+,/:;=?@[]")  # a domain need not be ASCII
        answer = self._bucket.ask("PUT", key[1:], deadline, body=data, headers=headers)
        return answer is not None and answer.status != 404

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        """See ``Space``: without the comparison, which too few servers know."""
        return self._bucket.ask("DELETE", key[1:], deadline) is not None

    def close(self) -> None:
        self._bucket.close()

    def _look(self, method: str, key: str, deadline: Deadline) -> Response | None:
        answer = unconditional(self._bucket.ask(method, key[1:], deadline), self.shown(key))
        return None if answer.status == 404 else answer
