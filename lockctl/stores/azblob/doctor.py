"""What would break locks in a container of Azure's, or make them dear, asked as locks ask."""

from __future__ import annotations

from lockctl.finding import Check, Examination
from lockctl.locks import objects_doctor
from lockctl.stores.azblob import address as addresses
from lockctl.stores.azblob.cell import RIGHTS as NEEDED
from lockctl.stores.azblob.cell import AzureBlobBackend, AzureBlobCells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

CONDITIONS = Check(
    "azblob.conditions",
    "A server that ignores If-Match or If-None-Match lets two holders in.",
    "use Azure's own servers, and no proxy that takes these fields away",
)
RIGHTS = Check(
    "azblob.rights",
    "Without these rights a lock cannot be acquired.",
    f"give this identity {NEEDED}; lockctl-backends(7) has a role with no more",
)
VERSIONS = Check(
    "azblob.versioning",
    "Each renewal is a version that is kept, and paid for.",
    "use an account without versioning and without soft delete of blobs"
    " (az storage account blob-service-properties update)",
)
CHECKS = (CONDITIONS, RIGHTS, VERSIONS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the container of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    cells = AzureBlobCells(addresses.from_url(url, AzureBlobBackend.parameters))
    found.where = cells.where
    cells.container.load()
    try:
        if not objects_doctor.judge(cells, found, RIGHTS, CONDITIONS, "blobs", deadline):
            return
    finally:
        cells.close()
    kept = "what is written over or deleted is kept" if cells.keeps_old else "off, and so is soft delete"
    found.judge(VERSIONS, kept, warns=bool(cells.keeps_old))
