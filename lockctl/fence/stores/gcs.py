"""Marks of objects in Google Cloud Storage. Their generations stand for ETags: each write makes another one."""

from __future__ import annotations

from lockctl.fence.stores.objects import SUFFIX, ObjectStore
from lockctl.fence.stores.space import Head, Seen
from lockctl.names import printable
from lockctl.stores.gcs.protocol import PARAMETERS, Bucket
from lockctl.wire.http import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.fence.mark import Mark
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

NEEDED = f"storage.objects.get, .create and .delete, for the object and OBJECT{SUFFIX}*"
MARK = "lockctl-fence"  # the metadata under which the data say which token wrote them
KEPT = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "storageClass",
)
NEVER = "1"  # a generation that no object has: they are made of the time


class GcsStore(ObjectStore):
    """``gcs://BUCKET/OBJECT``. Credentials are those of locks there."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> GcsStore:
        """The store that *url* means. Raises ``ConfigError``."""
        bucket = Bucket(url, cls.parameters, NEEDED)
        bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(_Objects(bucket, url.path))


class _Objects:
    """One bucket as a ``Space`` of objects."""

    sizes = 1  # a generation tells more than the content

    def __init__(self, bucket: Bucket, root: str) -> None:
        self.root = root
        self._bucket = bucket

    def shown(self, key: str) -> str:
        return self._bucket.where + printable(key)

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        answer = self._bucket.read(key[1:], deadline)
        if answer.status == 404:
            return None
        return Seen(answer.body[:limit], self._bucket.generation(answer.headers.get("x-goog-generation")))

    def head(self, key: str, deadline: Deadline) -> Head | None:
        fields = ",".join(("generation", "metadata", *KEPT))
        target = f"{self._bucket.objects}/{quoted(key[1:])}?fields={fields}"
        answer = self._bucket.usable(self._bucket.ask("GET", target, deadline))
        if answer.status == 404:
            return None
        document = self._bucket.document(answer)
        kept = {name: document[name] for name in KEPT if document.get(name)}
        metadata = document.get("metadata")
        return Head(
            self._bucket.generation(document.get("generation")),
            {**kept, "metadata": metadata if isinstance(metadata, dict) else {}},
        )

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        what = {"contentType": "application/octet-stream", **(like.kept if like else {})}
        if mark is not None:
            what["metadata"] = {**what.get("metadata", {}), MARK: str(mark)}
        wanted = None if etag is None else etag if etag.isdecimal() else NEVER
        return self._bucket.write(key[1:], wanted, data, deadline, what) is not None

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        condition = "" if etag == "*" else f"?ifGenerationMatch={etag}"
        return self._bucket.delete(f"{self._bucket.objects}/{quoted(key[1:])}{condition}", deadline)

    def close(self) -> None:
        self._bucket.close()
