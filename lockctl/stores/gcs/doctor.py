"""What would break locks in a bucket of Google's, or make them dear, asked as locks ask."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import Check, Examination
from lockctl.locks import objects_doctor
from lockctl.names import printable
from lockctl.stores.gcs.cell import GcsBackend, GcsCells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

CONDITIONS = Check(
    "gcs.conditions",
    "A server that ignores ifGenerationMatch lets two holders in.",
    "use Google's own servers: not every emulator compares",
)
RIGHTS = Check(
    "gcs.rights",
    "Without these rights a lock cannot be acquired.",
    "give this account the role of lockctl-backends(7): storage.objects.get, .create, .delete and .list",
)
VERSIONS = Check(
    "gcs.versioning",
    "Each renewal is a version that is kept, and paid for.",
    "use a bucket without versioning and without soft delete (gcloud storage buckets update)",
)
CHECKS = (CONDITIONS, RIGHTS, VERSIONS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the bucket of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    cells = GcsCells(url, GcsBackend.parameters)
    found.where = cells.where
    cells.bucket.load()
    try:
        if objects_doctor.judge(cells, found, RIGHTS, CONDITIONS, "objects", deadline):
            _judge_versions(cells, found, deadline)
    finally:
        cells.close()


def _judge_versions(cells: GcsCells, found: Examination, deadline: Deadline) -> None:
    target = f"/storage/v1/b/{cells.bucket.name}?fields=versioning,softDeletePolicy"
    try:
        answer = cells.bucket.ask("GET", target, deadline)
        document = answer.json() if answer is not None else {}
    except ConfigError as refused:  # a right that locks do not need
        found.judge(VERSIONS, printable(str(refused)), warns=True)
        return
    kept = (document.get("softDeletePolicy") or {}).get("retentionDurationSeconds", "0")
    versions = bool((document.get("versioning") or {}).get("enabled"))
    seen = f"versioning is {'on' if versions else 'off'}; what is deleted is kept for {printable(str(kept))[:12]} s"
    found.judge(VERSIONS, seen, warns=versions or str(kept) != "0")
