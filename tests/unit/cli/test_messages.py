"""lockctl.cli.messages: writing to what may take nothing, in a process of its own that a test can wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockctl.cli.messages import Talk

BEGIN = """
import ctypes, fcntl, os, pty, select, socket, threading, time
from lockctl.cli import writing
from lockctl.cli.messages import Talk
from lockctl.cli.writing import write_at_once
LINE = b"lockctl: a line" + b" of words" * 8 + b"\\n"
def fill(descriptor):
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(again, b"x" * size)
        except BlockingIOError:
            pass
    os.close(again)
def open_descriptors():
    return set(os.listdir("/proc/self/fd"))
"""
# nobody but the one who has it may use it, as the pipe that cron made for another user
LOCKED = """
os.fchmod(writable, 0)
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    os.open(f"/proc/self/fd/{writable}", os.O_WRONLY)
    raise AssertionError("it can be opened again")
except PermissionError:
    pass
"""
PIPE = """
readable, writable = os.pipe()
before = None
"""
USE = """
before = open_descriptors()
assert write_at_once(writable, LINE) == len(LINE)
assert os.read(readable, 1 << 16) == LINE
fill_size = fcntl.fcntl(writable, fcntl.F_GETPIPE_SZ)
os.write(writable, b"x" * fill_size)
for _ in range(50):
    assert write_at_once(writable, LINE) == 0
os.read(readable, fill_size)
assert write_at_once(writable, LINE) == len(LINE)
assert not fcntl.fcntl(writable, fcntl.F_GETFL) & os.O_NONBLOCK
assert open_descriptors() == before
"""
RACE = """
ended = False
def other():
    while not ended:
        if select.select([], [writable], [], 0)[1]:
            os.write(writable, b"x" * 4096)
def read():
    while not ended:
        if select.select([readable], [], [], 0.01)[0]:
            os.read(readable, 5000)
        time.sleep(0.0001)
threads = [threading.Thread(target=work, daemon=True) for work in (other, other, read)]
for thread in threads:
    thread.start()
slowest = 0
for _ in range(2000):
    write_at_once(writable, LINE)
ended = True
os._exit(0)
"""
TERMINAL = """
master, terminal = pty.openpty()
def stop():
    os.write(master, b"\\x13")
    while select.select([], [terminal], [], 0)[1]:
        time.sleep(0.001)
"""


@pytest.mark.parametrize(
    "script",
    [
        PIPE + USE,
        PIPE + LOCKED + USE,
        PIPE + RACE,
        PIPE + LOCKED + RACE,
        # less room than the line: not a part of it
        PIPE
        + """
size = fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, 4096)
os.write(writable, b"x" * (size - 10))
assert write_at_once(writable, LINE) == 0
assert write_at_once(writable, b"123456789\\n") == 10
""",
        # nobody reads any more
        PIPE
        + """
os.close(readable)
os.dup2(writable, 2)
Talk()("error", "text")
Talk().finish()
""",
        # no more descriptors
        PIPE
        + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, open_descriptors())), 4096))
assert write_at_once(writable, LINE) == len(LINE)
assert os.read(readable, 1 << 16) == LINE
""",
        # Ctrl-S, and another writer who waits for Ctrl-Q with the terminal locked
        TERMINAL
        + """
stop()
child = os.fork()
if child == 0:
    os.write(terminal, b"waits\\n")
    os._exit(0)
while b"S" not in open(f"/proc/{child}/stat", "rb").read().rpartition(b")")[2].split()[:1]:
    time.sleep(0.001)
for _ in range(50):
    assert write_at_once(terminal, LINE) == 0
os.write(master, b"\\x11")
os.waitpid(child, 0)
assert write_at_once(terminal, LINE) == len(LINE)
""",
        # the same with a terminal of another user's, which is not ours to open
        TERMINAL
        + """
os.fchmod(terminal, 0)
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
assert write_at_once(terminal, LINE) == len(LINE)
assert os.read(master, 1 << 16).replace(b"\\r", b"") == LINE
stop()
begun = time.monotonic()
for _ in range(50):
    write_at_once(terminal, LINE)
assert time.monotonic() - begun < 5, "waited each time"
os.write(master, b"\\x11")
writing.finish()
assert os.read(master, 1 << 16).replace(b"\\r", b"") == LINE, "the one that waited is written in the end"
assert write_at_once(terminal, LINE) == len(LINE)
""",
        # a socket
        """
one, other = socket.socketpair()
descriptor = one.detach()
assert write_at_once(descriptor, LINE) == len(LINE)
assert other.recv(1 << 16) == LINE
while write_at_once(descriptor, LINE * 50):
    pass
assert write_at_once(descriptor, LINE) == 0
assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK
""",
        # a file
        """
import tempfile
with tempfile.TemporaryFile() as file:
    for _ in range(3):
        assert write_at_once(file.fileno(), LINE) == len(LINE)
    assert os.pread(file.fileno(), 1000, 0) == LINE * 3
""",
        # for what goes nowhere no thread is needed
        """
def no_thread(*_):
    raise AssertionError("a thread was started")
writing._thread.start_new_thread = no_thread
with open(os.devnull, "w") as null:
    assert write_at_once(null.fileno(), LINE) == len(LINE)
""",
        # a line that was cut is ended before the next one
        """
one, other = socket.socketpair()
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
os.dup2(one.detach(), 2)
talk = Talk()
for _ in range(3):
    talk("warning", "x" * 100_000)
got = b""
def drain():
    global got
    while select.select([other], [], [], 0)[0]:
        got += other.recv(1 << 20)
drain()
talk("warning", "last")
talk.finish()
drain()
lines = got.decode().splitlines()
assert lines[-1] == "lockctl: last", lines[-2:]
assert lines[-2].endswith("dropped here: stderr was blocked"), lines[-2:]
assert lines[-2].startswith("lockctl: 3 lines ("), lines[-2:]
assert set(lines[-3].removeprefix("lockctl: ")) == {"x"}
""",
    ],
    ids=[
        *("pipe", "locked pipe", "race", "race on a locked pipe", "little room", "no reader", "no descriptors"),
        *("terminal", "locked terminal", "socket", "file", "nowhere", "cut"),
    ],
)
def test_nothing_waits_in_a_process_of_its_own(script: str) -> None:
    words = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("columns", "shown"), [(60, "held by vm pid 29267 (root)"), (30, "held by vm pid"), (8, "lockctl")]
)
def test_a_line_that_is_written_again_has_as_many_words_as_fit(
    columns: int, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Talk().rewrite("held by vm pid 29267 (root)", columns)
    written = capfd.readouterr().err
    assert written.endswith(shown)
    assert len(written.rpartition("\x1b[K")[2]) < columns
