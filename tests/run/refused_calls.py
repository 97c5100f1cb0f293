"""Has the kernel refuse one system call, by a seccomp filter, then becomes a program.

``refused_calls.py CALL[=FIRST] ERRNO COMMAND [ARG]...``: all of these calls, or those with this first argument
"""

import ctypes
import os
import platform
import struct
import sys

X86_64 = {"prctl": 157, "timerfd_create": 283, "signalfd": 289, "pidfd_open": 434, "timerfd_settime": 286}
X86_64.update(sched_getaffinity=204, sched_setaffinity=203, sched_yield=24, socketpair=53, sendmsg=46)
# aarch64, riscv64, loongarch64
GENERIC = {"prctl": 167, "timerfd_create": 85, "signalfd": 74, "pidfd_open": 434, "timerfd_settime": 86}
GENERIC.update(sched_getaffinity=123, sched_setaffinity=122, sched_yield=124, socketpair=199, sendmsg=211)
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, FIRST = (
    0,
    16,
)  # where these are in struct seccomp_data; of an argument the lower half, on little-endian machines
ALLOW, ERRNO = 0x7FFF0000, 0x00050000

(call, _, first), number = sys.argv[1].partition("="), int(sys.argv[2])
calls = X86_64 if platform.machine() == "x86_64" else GENERIC
wanted = [(NUMBER, calls[call]), *([(FIRST, int(first))] if first else [])]
steps = []
for place, content in wanted:
    steps += [(LOAD, 0, 0, place), (IF_EQUAL, 1, 0, content), (RETURN, 0, 0, ALLOW)]
steps.append((RETURN, 0, 0, ERRNO | number))
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
header = struct.pack("HP", len(steps), ctypes.addressof(program))
library = ctypes.CDLL(None, use_errno=True)
if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
