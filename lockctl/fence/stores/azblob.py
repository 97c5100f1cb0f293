"""Marks of blobs in Azure Blob Storage."""

from __future__ import annotations

from lockctl.fence.stores.bucket import BucketObjects, Fields
from lockctl.fence.stores.objects import ObjectStore
from lockctl.stores.azblob import address as addresses
from lockctl.stores.azblob.cell import RIGHTS
from lockctl.stores.azblob.protocol import Container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url

KEPT = {
    "cache-control": "x-ms-blob-cache-control",
    "content-disposition": "x-ms-blob-content-disposition",
    "content-encoding": "x-ms-blob-content-encoding",
    "content-language": "x-ms-blob-content-language",
    "content-type": "x-ms-blob-content-type",
    "x-ms-access-tier": "x-ms-access-tier",
}
# names of metadata are those of variables: without a hyphen
FIELDS = Fields("x-ms-meta-", "x-ms-meta-lockctl_fence", KEPT, {"x-ms-blob-type": "BlockBlob"})


class AzureBlobStore(ObjectStore):
    """``azblob://CONTAINER/BLOB?account=ACCOUNT``. Credentials are those of locks there."""

    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> AzureBlobStore:
        """The store that *url* means. Raises ``ConfigError``."""
        container = Container(addresses.from_url(url, cls.parameters), RIGHTS)
        container.load()  # now: loading takes a part of a short lease that would else be counted
        return cls(BucketObjects(container, url.path, FIELDS))
