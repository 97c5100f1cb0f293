"""lockctl.kernel: structures as the C library of this machine has them, and as one of any other would."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys

import pytest

from lockctl import kernel


def test_times_and_longs_have_the_sizes_of_this_machine() -> None:
    assert ctypes.sizeof(ctypes.c_long) == kernel.LONG
    assert kernel._size_of_time() == kernel.TIME


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize(("size", "letter"), [(4, "L"), (8, "Q")])
def test_numbers_are_packed_as_an_array_of_c(order: str, size: int, letter: str) -> None:
    numbers = [0, 1, 0x01020304, 2 ** (8 * size) - 1]
    expected = struct.pack((">" if order == "big" else "<") + letter * len(numbers), *numbers)
    assert kernel.pack(numbers, size, order) == expected  # type: ignore[arg-type]
    if order == sys.byteorder:
        assert kernel.pack(numbers, size) == expected


ASK = """
import os, signal
from lockctl import kernel
asked = [signal.SIGUSR1, signal.SIGRTMIN, signal.SIGRTMAX]  # of the first word and of the last
signal.pthread_sigmask(signal.SIG_BLOCK, [*asked, signal.SIGUSR2])
descriptor = kernel.signal_descriptor(asked)
for number in [*asked, signal.SIGUSR2]:
    os.kill(os.getpid(), number)
found = [(number, sender) for number, _, sender in kernel.read_signals(descriptor)]
assert sorted(found) == sorted((int(number), os.getpid()) for number in asked), found
"""


def test_every_signal_that_was_asked_for_is_read_with_its_sender_and_no_other() -> None:
    subprocess.run([sys.executable, "-c", ASK], check=True, timeout=30)
