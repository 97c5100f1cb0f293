"""``lockctl release``: have the daemon that a handle names give the lock back."""

from __future__ import annotations

import os

from lockctl.cli import exit_status
from lockctl.cli.daemon.client import GIVE_BACK, Gone, ask, ended, say_end
from lockctl.cli.daemon.handle import read
from lockctl.cli.daemon.remains import Remains
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import HANDLE
from lockctl.errors import BackendUnavailable
from lockctl.names import printable


@verb(
    "release",
    examples={
        "lockctl release --handle deploy.lock": "In the last step of a job, which runs in any case.",
        "lockctl release": "In the shell that has evaluated what `lockctl acquire --export sh` printed.",
    },
)
@HANDLE
def command(*, file: str | None) -> int:
    """Release an acquired lock, and wait until it is free.

    An old handle releases nothing.
    """
    # 75: this handle holds nothing any more, 76: the lock was lost
    handle, _ = read(file, os.environ)
    remains = Remains(handle.socket.removesuffix(".sock"))
    try:
        ask(handle, {"verb": "release", "owner": handle.owner})
    except Gone:
        status = ended(handle, remains)
        if status == exit_status.LOST:  # else another release is there, which removes what it has read
            remains.remove()
        return status
    if not remains.await_end(handle.ttl + GIVE_BACK):
        raise BackendUnavailable(f"{handle.name}: the daemon (pid {handle.pid}) has not released the lock yet")
    report = remains.report()
    remains.remove()
    if report is None:  # it held the lock until now; its disk is full, or it was killed
        text = "its daemon has left no report: the lock is free, or becomes free when its lease ends"
    elif report.get("outcome") not in ("exited", "signaled"):
        return say_end(handle, report)
    elif report.get("not_released"):
        failure = printable(str(report["not_released"]))
        text = f"could not release the lock; it becomes free when its lease ends: {failure}"
    else:
        return exit_status.OK
    Talk()("warning", f"{handle.name}: {text}")
    return exit_status.UNAVAILABLE
