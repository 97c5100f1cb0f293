"""Files whose words run commands and say where locks are: who may write them, and whether they can be read twice."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError
from lockctl.url import KIND, REGULAR

DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # paths of what a process was given open
PIPE = 0o010000  # S_IFIFO: the module stat takes long to load


def check_owner(name: str, found: os.stat_result, what: str, remedy: str) -> None:
    """Raise ``ConfigError`` for a file that another user can write: its words run commands and say where locks are."""
    who = os.geteuid()
    if found.st_uid not in (0, who):
        message = f"{name}: {what} belongs to user {found.st_uid}, and user {who} accepts only its own and root's"
        raise ConfigError(f"{message}: {remedy}")
    by_group = found.st_mode & 0o020 and found.st_gid not in (0, os.getegid())  # a user's own group is usual
    if found.st_mode & KIND == REGULAR and (found.st_mode & 0o002 or by_group):
        raise ConfigError(f"{name}: other users can write {what}: chmod go-w")


def is_pipe(path: str) -> bool:
    """Whether a file gives what it has only once."""
    try:
        return os.stat(path).st_mode & KIND == PIPE
    except OSError:
        return False  # said by who reads it
