"""Marks of objects in S3, and in what speaks its protocol with conditional writes."""

from __future__ import annotations

from lockctl.fence.stores.bucket import BucketObjects, Fields
from lockctl.fence.stores.objects import SUFFIX, ObjectStore
from lockctl.stores.s3 import address as addresses
from lockctl.stores.s3.protocol import Bucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url

NEEDED = f"s3:GetObject, s3:PutObject and s3:DeleteObject for the key and KEY{SUFFIX}*, and s3:ListBucket"
KEPT = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
)
FIELDS = Fields("x-amz-meta-", "x-amz-meta-lockctl-fence", {name: name for name in KEPT}, {})


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
        return cls(BucketObjects(bucket, url.path, FIELDS))
