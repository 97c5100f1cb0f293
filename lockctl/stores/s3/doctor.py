"""What would break locks in a bucket, or make them dear, asked as locks ask."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import Check, Examination
from lockctl.locks import objects_doctor
from lockctl.locks.objects import between
from lockctl.names import printable
from lockctl.stores.s3 import address as addresses
from lockctl.stores.s3.cell import S3Backend, S3Cells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

CONDITIONS = Check(
    "s3.conditions",
    "A server that ignores If-Match or If-None-Match lets two holders in.",
    "use a server that has conditional writes, and no proxy that takes these fields away",
)
RIGHTS = Check(
    "s3.rights",
    "Without these rights a lock cannot be acquired.",
    "attach the policy of lockctl-backends(7) to this user: s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket",
)
VERSIONS = Check(
    "s3.versioning",
    "Each renewal is a version that is kept, and paid for, for ever.",
    "use a bucket without versioning, or a lifecycle rule with NoncurrentDays 1",
)
LIFECYCLE = Check(
    "s3.lifecycle",
    "A rule that deletes objects takes histories, and successes for --once-per.",
    "leave the prefix of the locks out of the rule",
)
CHECKS = (CONDITIONS, RIGHTS, VERSIONS, LIFECYCLE)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the bucket of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    address = addresses.from_url(url, S3Backend.parameters)
    cells = S3Cells(address)
    found.where = cells.where
    try:
        try:
            objects_doctor.look(cells, found, deadline)
        except ConfigError as refused:
            if not objects_doctor.is_forbidden(refused):
                raise
            found.judge(RIGHTS, str(refused), fails=True)
            return
        _judge_writes(cells, found, deadline)
        _judge_settings(cells, found, deadline)
    finally:
        cells.close()


def _judge_writes(cells: S3Cells, found: Examination, deadline: Deadline) -> None:
    try:
        cells.prove(deadline)
    except ConfigError as refused:
        found.judge(RIGHTS if objects_doctor.is_forbidden(refused) else CONDITIONS, str(refused), fails=True)
        return
    objects_doctor.judge_sound(cells, found, RIGHTS, CONDITIONS, "objects")


def _judge_settings(cells: S3Cells, found: Examination, deadline: Deadline) -> None:
    for check, query in ((VERSIONS, "versioning="), (LIFECYCLE, "lifecycle=")):
        try:
            answer = cells.bucket.ask("GET", "", deadline, query=query)
        except ConfigError as refused:
            # NoSuchLifecycleConfiguration, or a right that locks do not need
            absent = "NoSuch" in str(refused)
            found.judge(check, "none" if absent else printable(str(refused)), warns=not absent)
            continue
        text = answer.body.decode("utf-8", "replace") if answer else ""
        if check is VERSIONS:
            status = between(text, "Status") or "off"
            found.judge(check, printable(status[:20]), warns=status == "Enabled")
        else:
            rules = [rule for rule in text.split("<Rule>")[1:] if between(rule, "Status") == "Enabled"]
            expiring = [rule for rule in rules if "<Expiration>" in rule and _covers(cells, between(rule, "Prefix"))]
            found.judge(check, f"{len(expiring)} rules delete objects of locks", warns=bool(expiring))


def _covers(cells: S3Cells, prefix: str) -> bool:
    ours = cells.shown("")
    return ours.startswith(prefix) or prefix.startswith(ours)
