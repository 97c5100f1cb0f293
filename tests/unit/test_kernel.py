"""lockctl.kernel: structures as the C library of this machine has them, and as one of any other would."""

from __future__ import annotations

import ast
import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

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


ERASE = """
import os
from lockctl.kernel import erase_variables
erase_variables(["SECRET", "EMPTY", "MISSING"])
with open("/proc/self/environ", "rb") as file:
    print(file.read().split(b"\\0"))
"""


def test_a_variable_that_is_there_twice_is_erased_twice() -> None:
    """No dictionary of an environment has that, but what a program is given may."""
    given = [
        b"A=1",
        b"SECRET=hunter2",
        b"EMPTY=",
        b"B=2",
        b"SECRET=hunter3",
        b"PYTHONPATH=" + os.fsencode(Path(kernel.__file__).parents[1]),
        b"C=3",
    ]
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writable, 1)
        words = [os.fsencode(sys.executable), b"-c", ERASE.encode()]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        ctypes.CDLL(None).execve(words[0], argv, (ctypes.c_char_p * (len(given) + 1))(*given, None))
        os._exit(1)
    os.close(writable)
    with open(readable, "rb") as shown:
        found = ast.literal_eval(shown.read().decode())
    assert os.waitpid(pid, 0)[1] == 0
    erased = [b"A=1", b"SECRET=", *[b""] * 7, b"EMPTY=", b"B=2", b"SECRET=", *[b""] * 7, given[5], b"C=3", b""]
    assert found == erased
