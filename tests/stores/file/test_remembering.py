"""What stays of a lock file when nobody holds it: a hold for lockctl alone, a success, a history that is cut."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import history
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Revocation
from lockctl.stores.file import hold, layout, records
from lockctl.stores.file.layout import Record
from lockctl.stores.file.lock import FileBackend
from lockctl.value import replace
from tests.contract.harness import LIMIT, refused, take, wait_for_turn
from tests.contract.keeping import holder_of, revoke
from tests.contract.remembering import a_run
from tests.contract.sharing import one_of, reader
from tests.contract.waiting import start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.contract.test_file import FileHarness

# Python 3.12 warns of any fork beside a thread; the file backend's helper only makes system calls after its own
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file of this process can become longer, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def keep(harness: FileHarness, seconds: float) -> None:
    """Have the lock kept after a job."""
    client = harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=seconds)


@pytest.mark.parametrize("kind", [reader, lambda harness: one_of(harness, 1)], ids=["reader", "slot"])
def test_who_waits_beside_others_gets_in_when_the_hold_is_over(
    harness: FileHarness, kind: Callable[[FileHarness], object]
) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    released = time.monotonic()
    client.release(grant, timeout=LIMIT, hold=1.0)
    claim = kind(harness)
    other = harness.client()
    mine = wait_for_turn(other, claim)  # type: ignore[arg-type]
    assert 1.0 <= time.monotonic() - released < 6.0
    assert mine.token > grant.token


def test_a_hold_begins_for_those_who_wait_already_and_they_are_shown_meanwhile(harness: FileHarness) -> None:
    client, other, looker = harness.client(), harness.client(), harness.client()
    grant = take(client, harness.claim(ttl=30.0))
    claim = harness.claim(ttl=30.0)
    before = start_waiting(other, claim, looker)
    client.release(grant, timeout=LIMIT, hold=60.0)
    before.result(LIMIT)
    assert refused(other, claim)
    assert holder_of(looker).ended_at
    waiting = start_waiting(other, claim, looker)
    assert waiting.running
    assert revoke(looker, holder_of(looker), now=True) is not None
    waiting.result(limit=3.0)
    assert take(other, claim).token > grant.token


def test_another_program_does_not_see_a_hold_and_does_not_lose_its_lock_with_it(
    harness: FileHarness, need_tool: Callable[[str], str]
) -> None:
    keep(harness, 60.0)
    client = harness.client()
    words = [need_tool("flock"), "-n", str(harness.directory / "nightly"), "cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(b"in\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"in\n"
        kept = holder_of(client)
        assert kept.ended_at is not None
        with pytest.raises(BackendUnavailable):
            client.revoke("nightly", kept, Revocation(now=True, by="ops", reason=""), timeout=0.3)
        assert (holder_of(client).owner, holder_of(client).ended_at) == (kept.owner, kept.ended_at)
        other.stdin.close()
    assert refused(client, harness.claim())
    inode = (harness.directory / "nightly").stat().st_ino
    assert revoke(client, holder_of(client), now=True) is not None
    assert (harness.directory / "nightly").stat().st_ino == inode
    take(client, harness.claim())


@pytest.mark.parametrize("now", [True, False])
@pytest.mark.parametrize("room", [0, 20])
def test_a_revocation_for_which_the_disk_has_no_room_leaves_nothing_and_changes_nothing(
    harness: FileHarness, room: int, *, now: bool
) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    before = sorted(os.listdir(harness.directory))
    with at_most(room), pytest.raises(BackendUnavailable, match="File too large"):
        revoke(harness.client(), holder_of(client), now=now)
    assert sorted(os.listdir(harness.directory)) == before
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_a_hold_that_is_over_is_not_shown_as_the_holder_of_another_programs_lock(harness: FileHarness) -> None:
    keep(harness, 0.05)
    client = harness.client()
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")
    with harness.foreign_hold("nightly") as process:
        lock = client.inspect("nightly", timeout=LIMIT)
        assert (lock.state, [holder.pid for holder in lock.holders]) == ("foreign", [process.pid])
        assert lock.holders[0].ended_at is None


def test_a_hold_without_end_is_a_hold(harness: FileHarness) -> None:
    keep(harness, float("inf"))
    client = harness.client()
    assert refused(client, harness.claim())
    assert revoke(client, holder_of(client), now=True) is not None
    take(client, harness.claim())


def kept_by(**changes: object) -> Record:
    now = time.time()
    document = {
        "owner": "0" * 32,
        "ended_at": now,
        "until": now + 60,
        "until_boottime": boottime() + 60,
        "boot_id": layout.boot_id(),
        **changes,
    }
    return Record(1, 7, json.dumps(document, separators=(",", ":")).encode())


def before_reboot(ended: float, until: float) -> Record:
    now = time.time()
    return kept_by(boot_id="another", until_boottime=7.0, ended_at=now + ended, until=now + until)


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (kept_by, 60),
        (lambda: kept_by(until_boottime=boottime() - 1), 0),  # over, whatever the host's clock says
        (lambda: kept_by(ended_at=time.time() - 7200, until=time.time() - 7140), 60),  # set forward by two hours since
        (lambda: kept_by(ended_at=time.time() + 7200, until=time.time() + 7260), 60),  # set back by two hours since
        (lambda: kept_by(until_boottime=boottime() + 10**6), 60),  # the clock of another container
        (lambda: kept_by(until_boottime="soon"), 60),
        (lambda: kept_by(until_boottime=None, ended_at=0, until=time.time() + 10**9), 10**9),
        (lambda: before_reboot(-30, 30), 30),
        (lambda: before_reboot(-90, -30), 0),
        (lambda: before_reboot(3600, 3660), 3660),  # the clock went back a little in the reboot
        (lambda: before_reboot(2 * 86400, 2 * 86400 + 60), 0),  # it cannot be believed
        (lambda: kept_by(ended_at=None), 0),
        (lambda: kept_by(until=True), 0),
        (lambda: kept_by(until="x", ended_at=[]), 0),
        (lambda: kept_by(until=-5), 0),
        (lambda: kept_by(owner=7), 0),
        (lambda: Record(1, 7, b'"ended_at":'), 0),
        (lambda: None, 0),
    ],
)
def test_how_long_a_hold_lasts_is_read_with_care(make: Callable[[], Record | None], left: float) -> None:
    record = make()
    assert hold.left(record) == pytest.approx(left, abs=20)
    assert (hold.left(record) > 0) == (left > 0)


def test_a_hold_that_cannot_be_written_now_is_said_and_the_lock_is_held_until_it_can(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    for _ in range(2):  # as a run that gives its lock back tries it again
        with at_most(0), pytest.raises(BackendUnavailable):
            client.release(grant, timeout=LIMIT, hold=60.0)
    assert refused(harness.client(), harness.claim())
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert holder_of(client).ended_at is not None
    assert refused(harness.client(), harness.claim())


def test_a_hold_that_cannot_be_written_ends_with_its_process(harness: FileHarness) -> None:
    client = harness.client()
    with at_most(0), pytest.raises(BackendUnavailable):
        client.release(take(client, harness.claim()), timeout=LIMIT, hold=60.0)
    client.close()
    take(harness.client(), harness.claim())


def test_a_command_that_reads_like_a_hold_is_none(harness: FileHarness) -> None:
    client = harness.client()
    words = ('{"ended_at":1,"until":99999999999}', '"ended_at":', '{"sharing":"slot","slots":3,"first":0}')
    grant = take(client, harness.claim(command=words))
    assert client.renew(grant, timeout=LIMIT) == grant
    assert refused(harness.client(), harness.claim())
    harness.expire(grant)
    take(harness.client(), harness.claim())


def past(harness: FileHarness) -> Path:
    return harness.directory / ".history.nightly"


def test_a_long_history_is_cut_and_both_kinds_of_runs_stay(harness: FileHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(0), timeout=LIMIT)
    refusal = a_run(outcome="held", started_at=None, duration=None, command=("x" * 600,))
    most = 0
    for number in range(1, 1500):
        client.remember("nightly", replace(refusal, ended_at=1_790_000_000.0 + number), timeout=LIMIT)
        most = max(most, past(harness).stat().st_size)
    assert records.LONGEST < most < records.LONGEST + 2 * history.ROOM
    assert past(harness).stat().st_size < records.LONGEST, "it was cut at least once"
    kept = client.history("nightly", timeout=LIMIT)
    assert [run.ended_at for run in kept[:-1]] == [1_790_000_000.0 + 1499 - count for count in range(history.KEPT)]
    assert kept[-1] == a_run(0)
    assert client.inspect("nightly", timeout=LIMIT).last_run == a_run(0)


def test_a_crash_while_a_history_is_cut_shows_nothing_twice(harness: FileHarness) -> None:
    client = harness.client()
    for number in range(30):
        client.remember("nightly", a_run(number), timeout=LIMIT)
    data = past(harness).read_bytes()
    lines = [line for line in data.split(b"\n") if line]
    shorter = b"".join(b"\n" + line + b"\n" for line in lines[10:])
    past(harness).write_bytes(shorter + data[len(shorter) :])  # the end of the old file is behind the new one
    assert [run.token for run in client.history("nightly", timeout=LIMIT)] == list(range(70, 50, -1))
    client.remember("nightly", a_run(30), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT)[0] == a_run(30)


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe\n", b"\0" * 5000, b'{"outcome":', b'{"outcome":7}\n[]\n7\n', b"[" * 70000, b'{"outcome":"x"}'],
    ids=lambda garbage: repr(garbage[:12]),
)
def test_lines_that_are_no_runs_are_skipped(harness: FileHarness, garbage: bytes) -> None:
    client = harness.client()
    client.remember("nightly", a_run(1), timeout=LIMIT)
    with past(harness).open("ab") as file:
        file.write(garbage)
    client.remember("nightly", a_run(2), timeout=LIMIT)
    shown = client.history("nightly", timeout=LIMIT)
    assert [run.token for run in shown if run.started] == [43, 42]
    assert client.inspect("nightly", timeout=LIMIT).last_run == a_run(2)


def test_a_history_that_another_hand_made_huge_is_read_in_part_and_cut_by_the_next_run(harness: FileHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(1), timeout=LIMIT)
    os.truncate(past(harness), 1 << 36)
    assert client.history("nightly", timeout=LIMIT) == ()
    client.remember("nightly", a_run(2), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (a_run(2),)
    assert past(harness).stat().st_size < 1000


def test_a_run_that_does_not_fit_is_said_and_the_others_stay(harness: FileHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(1), timeout=LIMIT)
    size = past(harness).stat().st_size
    for room in (size, size + 20):
        with at_most(room), pytest.raises(BackendUnavailable, match="File too large"):
            client.remember("nightly", a_run(2), timeout=LIMIT)
        assert past(harness).stat().st_size == size
    client.remember("nightly", a_run(3), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (a_run(3), a_run(1))


def test_a_success_that_does_not_fit_is_said(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    with at_most(0), pytest.raises(BackendUnavailable):
        client.note_success(grant, timeout=LIMIT)
    assert client.last_success("nightly", timeout=LIMIT) is None
    client.note_success(grant, timeout=LIMIT)
    assert client.last_success("nightly", timeout=LIMIT) == grant.at


@pytest.mark.parametrize("name", [".history.nightly", ".success.nightly"])
@pytest.mark.parametrize(
    "put",
    [lambda path: path.symlink_to("nightly"), os.mkfifo, lambda path: path.mkdir()],
    ids=["link", "fifo", "directory"],
)
def test_what_is_no_file_of_ours_is_not_followed_and_holds_nobody_up(
    harness: FileHarness, name: str, put: Callable[[Path], None]
) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    put(harness.directory / name)
    write, read = (
        (lambda: client.remember("nightly", a_run(), timeout=LIMIT), lambda: client.history("nightly", timeout=LIMIT))
        if "history" in name
        else (
            lambda: client.note_success(grant, timeout=LIMIT),
            lambda: client.last_success("nightly", timeout=LIMIT),
        )
    )
    for call in (write, read):
        with pytest.raises((ConfigError, BackendUnavailable)):
            call()
    assert client.inspect("nightly", timeout=LIMIT).last_run is None
    assert client.renew(grant, timeout=LIMIT) == grant


def test_a_success_that_another_program_wrote_is_not_believed(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    file = harness.directory / ".success.nightly"
    file.write_text("yesterday\n")
    with pytest.raises(ConfigError, match="not lockctl's"):
        client.last_success("nightly", timeout=LIMIT)
    with pytest.raises(ConfigError, match="not lockctl's"):
        client.note_success(grant, timeout=LIMIT)
    assert file.read_text() == "yesterday\n"


@pytest.mark.parametrize("at", ["true", '"x"', "-1", "1e999", "null", "[1]", "NaN"])
def test_a_success_at_no_possible_time_is_none(harness: FileHarness, at: str) -> None:
    client = harness.client()
    take(client, harness.claim())
    descriptor = os.open(harness.directory / ".success.nightly", os.O_RDWR | os.O_CREAT, 0o600)
    layout.write(descriptor, Record(1, 0, b'{"owner":"x","at":%s}' % at.encode()), durable=False)
    os.close(descriptor)
    assert client.last_success("nightly", timeout=LIMIT) is None


def test_a_torn_note_of_a_success_leaves_the_one_before(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    client.note_success(replace(grant, at=1000.5), timeout=LIMIT)
    client.note_success(replace(grant, at=2000.5), timeout=LIMIT)
    with (harness.directory / ".success.nightly").open("r+b") as file:
        file.seek(len(layout.MAGIC) + 70)
        file.write(b"torn")
    assert client.last_success("nightly", timeout=LIMIT) == 1000.5


def test_what_is_kept_has_the_mode_of_the_locks_and_another_user_can_go_on_with_it_in_a_shared_directory(
    harness: FileHarness,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    client = harness.client()
    client.remember("mine", a_run(), timeout=LIMIT)
    assert (harness.directory / ".history.mine").stat().st_mode & 0o777 == 0o600
    harness.directory.chmod(0o1777)
    client.remember("nightly", a_run(1), timeout=LIMIT)
    first = take(client, harness.claim())
    client.note_success(first, timeout=LIMIT)
    later = first.at + 100
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setuid(65534)
            other = FileBackend(str(harness.directory))
            other.remember("nightly", a_run(2), timeout=LIMIT)
            grant = take(other, harness.claim("other"))
            claim = replace(grant.claim, name="nightly")
            other.note_success(replace(grant, claim=claim, at=later), timeout=LIMIT)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.history("nightly", timeout=LIMIT) == (a_run(2), a_run(1))
    assert client.last_success("nightly", timeout=LIMIT) == later


def test_nothing_is_made_by_a_look(locks: Path) -> None:
    client = FileBackend(str(locks / "none"))
    assert client.history("nightly", timeout=LIMIT) == ()
    assert client.last_success("nightly", timeout=LIMIT) is None
    assert client.inspect("nightly", timeout=LIMIT).last_run is None
    assert os.listdir(locks) == []
    client.close()
