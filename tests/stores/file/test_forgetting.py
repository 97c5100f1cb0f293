"""Removing lock files that nobody uses, beside programs that may be about to lock them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.model import Claim
from lockctl.stores.file import address, prune
from lockctl.stores.file.lock import FileBackend
from tests.contract.harness import claim
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 10.0
SPAN = 3.0  # seconds
# each shows that it is alone inside by a directory that only one can make
FLOCK = """
while [ "$(date +%s)" -lt "$1" ]; do
  flock "$2/nightly" sh -c 'mkdir "$0/.in" 2>/dev/null || echo TWO >>"$0/.log"; echo flock >>"$0/.log"; rmdir "$0/.in"' "$2"
  sleep 0.0$((RANDOM % 30))
done
"""
LOCKCTL = """
import os, random, sys, time
from lockctl.stores.file.lock import FileBackend
from lockctl.model import Claim
backend = FileBackend(sys.argv[2])
while time.time() < float(sys.argv[1]):
    claim = Claim("nightly", os.urandom(16).hex(), 30.0, "web3", os.getpid(), "ops", ("x",))
    grant = backend.try_acquire(claim, timeout=10)
    if grant is not None:
        with open(sys.argv[2] + "/.log", "a") as log:
            try:
                os.mkdir(sys.argv[2] + "/.in")
            except FileExistsError:
                log.write("TWO\\n")
            log.write("%d\\n" % grant.token)
        os.rmdir(sys.argv[2] + "/.in")
        backend.release(grant, timeout=10)
    time.sleep(random.random() * 0.02)
"""
LEASE = """
import fcntl, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
lease = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
signal.sigtimedwait([signal.SIGIO], 10)
"""


@pytest.fixture
def backend(locks: Path) -> Iterator[FileBackend]:
    made = FileBackend(str(locks))
    yield made
    made.close()


def use(backend: FileBackend, name: str = "nightly") -> int:
    """One run; its token."""
    grant = backend.try_acquire(claim(name), timeout=LIMIT)
    assert grant is not None
    backend.release(grant, timeout=LIMIT)
    return grant.token


def forget(backend: FileBackend, name: str = "nightly") -> bool:
    return backend.forget(name, older_than=0.0, timeout=LIMIT)


def flock(file: Path, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["flock", str(file), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def is_opening(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process waits in the kernel for a lease to end, with the file not open yet."""
    with open(f"/proc/{process.pid}/stat", "rb") as file:
        sleeping = file.read().rpartition(b")")[2].split()[0] in (b"S", b"D")
    with open(f"/proc/{process.pid}/syscall", "rb") as file:
        return sleeping and file.read().split()[0] in (b"257", b"56", b"2")  # openat on x86 and ARM, open


def test_a_request_that_nobody_answered_is_forgotten_with_its_lock_or_after_it(
    locks: Path, backend: FileBackend
) -> None:
    for name in ("nightly", "nightly", "gone"):
        if name == "nightly":
            use(backend, name)
        (locks / address.request_file(name, None)).write_text("{}")
        assert name in [found for found, _ in backend.unused("*", older_than=0.0, timeout=LIMIT)]
        assert forget(backend, name)
        assert [each.name for each in locks.iterdir()] == [address.FLOOR]


def test_flock_and_lockctl_exclude_each_other_and_tokens_rise_while_names_are_forgotten(
    locks: Path, backend: FileBackend
) -> None:
    until = int(time.time() + SPAN)
    words = (str(until), str(locks))
    programs = [subprocess.Popen(["bash", "-c", FLOCK, "x", *words]) for _ in range(2)]
    programs.append(subprocess.Popen([sys.executable, "-c", LOCKCTL, *words]))
    forgotten = 0
    while time.time() < until:
        forgotten += forget(backend)
    assert [program.wait(30) for program in programs] == [0, 0, 0]
    log = (locks / ".log").read_text().split()
    assert forgotten, "else nothing was tried"
    assert "flock" in log
    assert "TWO" not in log
    tokens = [int(line) for line in log if line.isdigit()]
    assert tokens
    assert tokens == sorted(set(tokens))


def test_who_has_the_file_open_or_opens_it_meanwhile_keeps_it(
    locks: Path, backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = use(backend)
    inode = (locks / "nightly").stat().st_ino
    with (locks / "nightly").open("rb"):
        assert not forget(backend)
    started: list[subprocess.Popen[bytes]] = []
    write = prune._raise_floor

    def come(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        started.append(flock(locks / "nightly", "cat"))
        eventually(lambda: is_opening(started[0]))

    monkeypatch.setattr(prune, "_raise_floor", come)
    assert not forget(backend)
    assert (locks / "nightly").stat().st_ino == inode
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).state == "foreign")
    started[0].communicate(timeout=LIMIT)
    assert use(backend) > token


def test_a_file_that_was_found_before_it_was_renamed_gets_its_name_back(
    locks: Path, backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(backend)
    inode = (locks / "nightly").stat().st_ino
    started: list[subprocess.Popen[bytes]] = []
    rename = os.rename

    def late(before: str, after: str, **where: int) -> None:
        rename(before, after, **where)
        started.append(flock(locks / after, "cat"))  # as if it had looked it up under its old name
        eventually(lambda: is_opening(started[0]))

    monkeypatch.setattr(os, "rename", late)
    assert not forget(backend)
    assert sorted(file.name for file in locks.iterdir()) == [address.FLOOR, "nightly"]
    assert (locks / "nightly").stat().st_ino == inode
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).state == "foreign")
    assert backend.try_acquire(claim(), timeout=LIMIT) is None
    started[0].communicate(timeout=LIMIT)


def test_who_was_left_with_the_old_file_and_who_made_a_new_one_are_never_inside_together(
    locks: Path, backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(backend)
    old: list[subprocess.Popen[bytes]] = []
    new: list[subprocess.Popen[bytes]] = []
    rename = os.rename

    def late(before: str, after: str, **where: int) -> None:
        rename(before, after, **where)
        new.append(flock(locks / before, "sh", "-c", "echo in; cat; date +%s%N"))
        assert new[0].stdout is not None
        assert new[0].stdout.readline() == b"in\n"
        old.append(flock(locks / after, "sh", "-c", "date +%s%N; cat; date +%s%N"))
        eventually(lambda: is_opening(old[0]))

    monkeypatch.setattr(os, "rename", late)
    assert not forget(backend)
    left, _ = new[0].communicate(timeout=LIMIT)
    assert old[0].stdout is not None
    entered = old[0].stdout.readline()
    assert int(entered) >= int(left), "the one who has the old file comes after the one who has the new one"
    assert backend.try_acquire(claim(), timeout=LIMIT) is None, "and keeps all others out"
    old[0].communicate(timeout=LIMIT)

    def taken() -> bool:
        grant = backend.try_acquire(claim(), timeout=LIMIT)
        if grant is not None:
            backend.release(grant, timeout=LIMIT)
        return grant is not None

    eventually(taken)
    assert sorted(file.name for file in locks.iterdir()) == [address.FLOOR, "nightly"]


def test_a_run_that_meets_a_lease_waits_for_its_end(locks: Path, backend: FileBackend) -> None:
    use(backend)
    holder = subprocess.Popen([sys.executable, "-c", LEASE, str(locks / "nightly")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"leased\n"
    use(backend)
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    holder.communicate(timeout=LIMIT)


def test_the_token_rises_although_the_clock_was_set_back_and_the_file_is_new(locks: Path) -> None:
    now = time.time_ns() // 1000
    ahead = FileBackend(str(locks), wall_us=lambda: now)
    token = use(ahead)
    assert forget(ahead)
    behind = FileBackend(str(locks), wall_us=lambda: now - 3_600_000_000)
    assert use(behind, "other") == token + 1
    grant = behind.try_acquire(Claim(**{**_fields(claim()), "mode": "shared"}), timeout=LIMIT)  # type: ignore[arg-type]
    assert grant is not None
    assert grant.token == token + 1
    behind.release(grant, timeout=LIMIT)
    assert forget(behind)
    assert forget(behind, "other")
    assert use(behind) == token + 2


def _fields(made: Claim) -> dict[str, object]:
    return {name: getattr(made, name) for name in Claim.__annotations__}


def test_a_prefix_keeps_to_its_own(locks: Path) -> None:
    ours, theirs = FileBackend(str(locks), prefix="a."), FileBackend(str(locks), prefix="b.")
    use(ours)
    use(theirs)
    assert [name for name, _ in ours.unused("*", older_than=0.0, timeout=LIMIT)] == ["nightly"]
    assert forget(ours)
    assert (locks / "b.nightly").exists()
    assert not (locks / "a.nightly").exists()


def test_a_file_that_only_others_use_is_not_ours_to_remove(locks: Path, backend: FileBackend) -> None:
    (locks / "empty").touch()
    (locks / "text").write_text("12345\n")
    assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == []
    assert not forget(backend, "empty")
    assert not forget(backend, "text")
    assert sorted(file.name for file in locks.iterdir()) == ["empty", "text"]


def test_a_floor_in_a_sticky_directory_counts_only_from_its_owner_or_root(locks: Path, backend: FileBackend) -> None:
    if os.geteuid() != 0:
        return  # another user's file cannot be made
    token = use(backend)
    (locks / address.FLOOR).write_bytes((locks / "nightly").read_bytes().replace(b"%020d" % token, b"%020d" % token))
    os.chown(locks / address.FLOOR, 12345, 12345)
    locks.chmod(0o1777)
    behind = FileBackend(str(locks), wall_us=lambda: 5)
    assert use(behind, "other") == 5
    locks.chmod(0o755)
    assert use(behind, "third") > 5


def test_a_success_that_is_noted_while_its_file_is_removed_is_not_lost(
    backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = backend.try_acquire(claim(), timeout=LIMIT)
    assert grant is not None
    backend.note_success(grant, timeout=LIMIT)
    opened = address.open_file

    def late(directory: int, file: str) -> int:
        descriptor = opened(directory, file)
        monkeypatch.setattr(address, "open_file", opened)
        os.unlink(file, dir_fd=directory)
        return descriptor

    monkeypatch.setattr(address, "open_file", late)
    backend.note_success(grant, timeout=LIMIT)
    assert backend.last_success("nightly", timeout=LIMIT) is not None
    backend.release(grant, timeout=LIMIT)


def test_nobody_is_killed_by_the_signal_of_a_lease(locks: Path) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "from lockctl.stores.file import prune\n"
        "from lockctl.stores.file.lock import FileBackend\n"
        "write = prune._raise_floor\n"
        "def come(*words):\n"
        "    write(*words)\n"
        "    try:\n"
        "        os.open(sys.argv[1] + '/nightly', os.O_RDONLY | os.O_NONBLOCK)\n"
        "    except BlockingIOError:\n"
        "        print('refused', flush=True)\n"
        "prune._raise_floor = come\n"
        "print(FileBackend(sys.argv[1]).forget('nightly', older_than=0, timeout=10))\n"
    )
    use(FileBackend(str(locks)))
    done = subprocess.run(
        [sys.executable, "-c", script, str(locks)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "refused\nFalse\n"), signal.Signals(-min(done.returncode, 0) or 1)
