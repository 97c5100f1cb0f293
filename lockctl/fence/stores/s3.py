"""Marks of objects in S3, and in what speaks its protocol with conditional writes."""

from __future__ import annotations

from urllib.parse import quote

from lockctl.fence.stores.objects import SUFFIX, Head, ObjectStore, Seen
from lockctl.names import printable
from lockctl.stores.s3 import address as addresses
from lockctl.stores.s3.protocol import Bucket, etag_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.fence.mark import Mark
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Response

NEEDED = f"s3:GetObject, s3:PutObject and s3:DeleteObject for the key and KEY{SUFFIX}*, and s3:ListBucket"
METADATA = "x-amz-meta-"
MARK = f"{METADATA}lockctl-fence"  # under which token the data was written, for who reads it
KEPT = (  # what belongs to an object beside its content
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "x-amz-storage-class",
)


class S3Store(ObjectStore):
    """``s3://BUCKET/KEY?endpoint=URL&region=REGION``. Credentials are found as the AWS command line finds them.

    Or they stand in the URL: ``s3://ACCESSKEY@BUCKET/KEY?password_file=FILE``.
    """

    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> S3Store:
        """The store that *url* means. Raises ``ConfigError``."""
        bucket = Bucket(addresses.from_url(url, cls.parameters), NEEDED)
        bucket.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(_Objects(bucket, url.path))


class _Objects:
    """One bucket as a space of objects."""

    sizes = 1  # ETags are made of the content

    def __init__(self, bucket: Bucket, root: str) -> None:
        self.root = root
        self._bucket = bucket

    def shown(self, key: str) -> str:
        """See ``Space``."""
        return self._bucket.where + printable(key)

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        """See ``Space``."""
        answer = self._look("GET", key, deadline)
        return None if answer is None else Seen(answer.body[:limit], etag_of(answer, self.shown(key)))

    def head(self, key: str, deadline: Deadline) -> Head | None:
        """See ``Space``."""
        answer = self._look("HEAD", key, deadline)
        if answer is None:
            return None
        kept = {
            # as it was sent: of text that is not ASCII, the bytes
            name: text.encode("latin-1").decode("utf-8", "replace")
            for name, text in answer.headers.items()
            if name in KEPT or name.startswith(METADATA)
        }
        return Head(etag_of(answer, self.shown(key)), kept)

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        """See ``Space``."""
        headers = dict(like.kept) if like else {}
        headers |= {"if-none-match": "*"} if etag is None else {"if-match": etag}
        if mark is not None:
            headers[MARK] = quote(str(mark), safe=" !#$&'()*+,/:;=?@[]")  # a domain need not be ASCII
        answer = self._bucket.ask("PUT", key[1:], deadline, body=data, headers=headers)
        return answer is not None and answer.status != 404

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        """See ``Space``: without the comparison, which too few servers know."""
        return self._bucket.ask("DELETE", key[1:], deadline) is not None

    def close(self) -> None:
        """See ``Space``."""
        self._bucket.close()

    def _look(self, method: str, key: str, deadline: Deadline) -> Response | None:
        answer = self._bucket.ask(method, key[1:], deadline)
        return None if answer is None or answer.status == 404 else answer
