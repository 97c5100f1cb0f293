"""Run a command while an empty file system of FUSE is mounted: ``DIRECTORY TYPE COMMAND [ARG]...``.

It stands for those whose locks other hosts may not see. In a mount namespace of its own, which it needs rights for.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading

LOOKUP, GETATTR, FORGET, INIT = 1, 3, 2, 26  # <linux/fuse.h>
ATTRIBUTES = struct.pack("<QII" + "6Q10I", 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
VERSION = struct.pack("<IIIIHHI", 7, 31, 0, 0, 12, 10, 4096).ljust(64, b"\0")
ANSWERS = {GETATTR: (0, ATTRIBUTES), INIT: (0, VERSION), LOOKUP: (-2, b"")}


def serve(device: int) -> None:
    """Answer: there is one directory, and nothing in it."""
    while True:
        _, operation, unique = struct.unpack_from("<IIQ", os.read(device, 1 << 20))
        if operation != FORGET:
            error, answer = ANSWERS.get(operation, (-38, b""))
            os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def main(directory: str, kind: str, *words: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"server:/", os.fsencode(directory), kind.encode(), 0, options):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    threading.Thread(target=serve, args=(device,), daemon=True).start()
    status = subprocess.call(words)
    libc.umount2(os.fsencode(directory), 2)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
