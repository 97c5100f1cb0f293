"""The system calls for a job in a pid namespace, which few runs have."""

from __future__ import annotations

import os

from lockctl.kernel import call

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_PRIVATE = 2, 4, 8, 1 << 18


def enter(*, user: bool) -> None:
    """Enter a mount namespace, and have all that this process forks from now on live in a pid namespace.

    With *user* in a user namespace, too, in which the ids are as they were. What is mounted in one of the mount
    namespaces is seen in the other, as far as it is shared there. Raises ``OSError``.
    """
    ids = os.geteuid(), os.getegid()
    _system_call("unshare", CLONE_NEWPID | CLONE_NEWNS | (CLONE_NEWUSER if user else 0))
    if user:
        uids, gids = (f"{number} {number} 1" for number in ids)
        for entry, content in (("setgroups", "deny"), ("uid_map", uids), ("gid_map", gids)):
            descriptor = os.open("/proc/self/" + entry, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, content.encode())
            finally:
                os.close(descriptor)


def leave_pid_namespace() -> None:
    """Have what this process forks live in its own pid namespace again. Raises ``OSError``."""
    descriptor = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _system_call("setns", descriptor, CLONE_NEWPID)
    finally:
        os.close(descriptor)


def mount_proc() -> None:
    """Mount a /proc that shows the pid namespace of this process, in this mount namespace alone. Raises ``OSError``."""
    _system_call("mount", None, b"/proc\0", None, MS_PRIVATE, None)
    _system_call("mount", b"proc\0", b"/proc\0", b"proc\0", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def _system_call(name: str, *arguments: int | bytes | None) -> None:
    """A call that the system may well refuse. Raises ``OSError``; what is tried again then fails again."""
    if call(name, *arguments) < 0:
        import ctypes

        if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
