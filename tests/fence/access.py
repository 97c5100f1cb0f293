"""Access control lists of files, as the kernel takes them: ``linux/posix_acl_xattr.h``."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ACL = "system.posix_acl_access"
GUEST = 4321  # a user who is neither the owner nor in the group
NOBODY = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20


def give_acl(path: Path, user: int, *, default: bool = False) -> None:
    """Let *user* read and write, too; with *default* whatever is made in this directory."""
    entries = [(OWNER, 6, NOBODY), (USER, 6, user), (GROUP, 4, NOBODY), (MASK, 6, NOBODY), (OTHERS, 0, NOBODY)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_default" if default else ACL, data)
