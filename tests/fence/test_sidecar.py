"""Marks in files beside the resource: the contract, and what a crash, a link or a stranger can do to them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence import Mark, locate
from lockctl.fence.stores import slots
from lockctl.fence.stores.sidecar import SidecarStore
from tests.fence.access import ACL, GUEST, give_acl
from tests.fence.contract import DOMAIN, LIMIT, FenceHarness, StoreContract, mark
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SidecarHarness(FenceHarness):
    crashes = 12

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return str(self.directory / resource), ""

    def damage(self, resource: str = "stock") -> None:
        (self.directory / f"{resource}.fence").write_bytes(b"\0\xff somebody's own file\n" * 500)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        with open(self.directory / "stock.fence", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="lockctl-fence-", dir=local_directory()))
    yield path
    shutil.rmtree(path)


class TestSidecar(StoreContract):
    @pytest.fixture
    def harness(self, directory: Path) -> SidecarHarness:
        return SidecarHarness(directory)


class TestSidecarAsStore(StoreContract):
    """The same with a directory as the store, and names in it."""

    @pytest.fixture
    def harness(self, directory: Path) -> SidecarHarness:
        class Named(SidecarHarness):
            crashes = 2

            def words(self, resource: str = "stock") -> tuple[str, str]:
                return resource, f"file://{self.directory}"

        return Named(directory)


def advance(path: Path | str, token: int, store: str | None = None, timeout: float = LIMIT) -> Mark:
    location = locate(str(path), store)
    return location.store.advance(location.resource, mark(token), timeout=timeout)


def current(path: Path | str) -> Mark | None:
    location = locate(str(path))
    return location.store.current(location.resource, timeout=LIMIT)


@settings(max_examples=200, deadline=None)
@given(
    cut=st.integers(0, 2 * slots.SLOT),
    order=st.sampled_from(["forwards", "backwards"]),
    offered=st.sampled_from([mark(12), None]),
)
@pytest.mark.slow
def test_a_write_that_is_cut_off_anywhere_leaves_the_old_mark_or_the_new_one(
    cut: int, order: str, offered: Mark | None
) -> None:
    """Of what is written to a slot, any part may have reached the disk, but nothing of the other before all of it."""
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        os.pwrite(number, slots.empty(), 0)
        for token in range(9, 12):
            slots.write(number, slots.read(number), mark(token))
        old = os.pread(number, slots.SIZE, 0)
        slots.write(number, slots.read(number), offered)
        new = os.pread(number, slots.SIZE, 0)
        first = 1 if slots.read(number).first == slots.read(number).second else 0
        torn = bytearray(old)
        for position in range(cut):
            slot, inside = divmod(position, slots.SLOT)
            if order == "backwards":
                inside = slots.SLOT - 1 - inside
            place = (slot ^ first) * slots.SLOT + inside
            torn[place] = new[place]
        os.pwrite(number, bytes(torn), 0)
        seen = slots.read(number).newest
        assert seen is not None
        assert seen.mark in (mark(11), offered)
        if cut >= slots.SLOT:
            assert seen.mark == offered
        # whoever comes next goes on from there, and a cut in its write loses nothing either
        slots.write(number, slots.read(number), mark(13))
        assert slots.read(number).settled
        assert slots.read(number).newest == slots.State(seen.sequence + 1, mark(13))


@settings(max_examples=100, deadline=None)
@given(slot=st.integers(0, 1), start=st.integers(0, slots.SLOT - 1), junk=st.binary(min_size=1, max_size=slots.SLOT))
def test_the_damage_of_one_slot_never_lowers_the_mark(slot: int, start: int, junk: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        os.pwrite(number, slots.empty(), 0)
        for token in (9, 10):
            slots.write(number, slots.read(number), mark(token))
        os.pwrite(number, junk[: slots.SLOT - start], slot * slots.SLOT + start)
        newest = slots.read(number).newest
        assert newest is not None
        assert newest.mark == mark(10)


@pytest.mark.parametrize("damaged", [0, 1, None])
def test_the_slot_that_has_the_mark_is_written_last(damaged: int | None) -> None:
    """Or a crash in the repair of one slot could take both. Here the writes to the second slot fail."""
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        os.pwrite(number, slots.empty(), 0)
        slots.write(number, slots.read(number), mark(10))
        if damaged is not None:
            os.pwrite(number, b"x" * slots.SLOT, damaged * slots.SLOT)
        before = slots.read(number)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (slots.SLOT, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                slots.write(number, before, mark(11))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        after = slots.read(number)
        first_was_spare = damaged == 0
        assert after.first == slots.State(2 if first_was_spare else 1, mark(11 if first_was_spare else 10))
        slots.write(number, after, mark(12))
        assert slots.read(number).settled
        assert slots.read(number).newest == slots.State(3 if first_was_spare else 2, mark(12))


def test_a_mark_that_the_limit_of_a_file_cuts_short_is_not_made(directory: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (slots.SLOT, limits[1]))
    try:
        with pytest.raises(BackendUnavailable, match="File too large"):
            advance(directory / "stock", 33)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(directory) == []
    assert advance(directory / "stock", 33) == mark(33)


def test_a_step_that_was_cut_off_is_finished_before_it_is_acknowledged(directory: Path) -> None:
    advance(directory / "stock", 33)
    path = directory / "stock.fence"
    old = path.read_bytes()
    advance(directory / "stock", 34)
    path.write_bytes(path.read_bytes()[: slots.SLOT] + old[slots.SLOT :])
    assert current(directory / "stock") == mark(34)
    assert advance(directory / "stock", 34) == mark(34)
    content = path.read_bytes()
    assert content[: slots.SLOT] == content[slots.SLOT :]


@pytest.mark.parametrize("content", [b"", b"\0" * slots.SIZE, b"7\n", b"lockctl-fence1 "])
def test_a_file_that_was_emptied_or_is_of_somebody_else_is_not_a_mark_of_zero(directory: Path, content: bytes) -> None:
    advance(directory / "stock", 33)
    (directory / "stock.fence").write_bytes(content)
    with pytest.raises(ConfigError, match=r"stock\.fence is damaged.*lockctl fence reset"):
        advance(directory / "stock", 34)
    assert (directory / "stock.fence").read_bytes() == content


def test_a_valid_checksum_does_not_make_a_wrong_content_a_mark(directory: Path) -> None:
    from lockctl.names import remainder

    for body in (b"x;0", b"x;-5", b";5", b"x\n;5", b"x", b"x;9223372036854775808", b"\xff;5", b"x;5;"):
        head = b"%020d %05d " % (7, len(body))
        slot = (slots.MAGIC + head + b"%08x\n" % remainder(head + body) + body).ljust(slots.SLOT - 1) + b"\n"
        (directory / "stock.fence").write_bytes(2 * slot)
        with pytest.raises(ConfigError, match="damaged"):
            advance(directory / "stock", 10**18)
        with pytest.raises(ConfigError, match="damaged"):
            current(directory / "stock")


def test_all_symbolic_links_to_a_file_have_its_mark(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "data/stock").write_text("1")
    (directory / "link").symlink_to("data/stock")
    (directory / "there").symlink_to("data")
    advance(directory / "link", 33)
    assert current(directory / "there/stock") == mark(33)
    assert os.listdir(directory / "data") == ["stock", "stock.fence"] or (directory / "data/stock.fence").exists()
    assert not (directory / "link.fence").exists()


def test_what_was_resolved_stays_one_file_when_its_directory_is_replaced(directory: Path) -> None:
    """Also between two steps, and whoever else uses the path meanwhile has another mark."""
    (directory / "data").mkdir()
    (directory / "data/stock").write_text("1")
    (directory / "link").symlink_to("data/stock")
    location = locate(str(directory / "link"))
    assert isinstance(location.store, SidecarStore)
    with location.store.resolved(location.resource) as found:
        os.rename(directory / "data", directory / "away")
        (directory / "data").mkdir()
        (directory / "data/stock").write_text("2")
        found.advance(mark(33), timeout=LIMIT)
        assert found.current() == mark(33)
        assert current(directory / "link") is None
        with found.holding(mark(34), timeout=LIMIT):
            assert advance(directory / "link", 5) == mark(5)
    assert current(directory / "away/stock") == mark(34)


def test_a_link_that_is_swapped_while_it_is_followed_leads_to_one_file_and_its_mark(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part of the path was no link when the path was followed, and is one when the directory is open."""
    (directory / "a").mkdir()
    (directory / "b").mkdir()
    (directory / "b/stock").write_text("1")
    (directory / "a/stock").write_text("2")
    follow = os.path.realpath

    def swapped(path: str) -> str:
        real = follow(path)
        (directory / "a/stock").unlink()
        (directory / "a/stock").symlink_to("../b/stock")
        monkeypatch.undo()
        return real

    monkeypatch.setattr(os.path, "realpath", swapped)
    advance(directory / "a/stock", 33)
    assert current(directory / "b/stock") == mark(33)
    assert not (directory / "a/stock.fence").exists()


def test_a_loop_of_links_is_refused_in_one_line(directory: Path) -> None:
    (directory / "stock").symlink_to("stock")
    with pytest.raises(ConfigError, match="loop"):
        advance(directory / "stock", 33)


def test_a_link_in_the_place_of_the_mark_is_refused(directory: Path) -> None:
    (directory / "other").write_text("precious")
    (directory / "stock.fence").symlink_to("other")
    with pytest.raises(ConfigError, match="symbolic link"):
        advance(directory / "stock", 33)
    assert (directory / "other").read_text() == "precious"


def test_a_pipe_or_a_directory_in_its_place_is_refused_at_once(directory: Path) -> None:
    os.mkfifo(directory / "a.fence")
    (directory / "b.fence").mkdir()
    for name, said in (("a", "not a regular file"), ("b", "is a directory")):
        with pytest.raises(ConfigError, match=said):
            advance(directory / name, 33, timeout=1.0)
    with pytest.raises(ConfigError, match="not a regular file"):
        current(directory / "a")


@pytest.mark.parametrize(
    ("mode", "umask", "wanted"), [(0o640, 0o022, 0o640), (0o755, 0o077, 0o644), (0o444, 0o022, 0o644)]
)
def test_whoever_may_write_the_data_may_advance_its_mark(directory: Path, mode: int, umask: int, wanted: int) -> None:
    (directory / "stock").write_text("1")
    (directory / "stock").chmod(mode)
    before = os.umask(umask)
    try:
        advance(directory / "stock", 33)
        advance(directory / "new", 33)
    finally:
        os.umask(before)
    assert (directory / "stock.fence").stat().st_mode & 0o7777 == wanted
    assert (directory / "new.fence").stat().st_mode & 0o7777 == 0o666 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_mark_gets_the_owner_of_the_data_and_that_of_a_stranger_is_not_believed(directory: Path) -> None:
    (directory / "stock").write_text("1")
    os.chown(directory / "stock", 1234, 1235)
    advance(directory / "stock", 33)
    made = (directory / "stock.fence").stat()
    assert (made.st_uid, made.st_gid) == (1234, 1235)
    os.chown(directory / "stock.fence", 4321, 4321)
    advance(directory / "stock", 34)  # whoever can write to this directory could replace the data, too
    directory.chmod(0o1777)
    with pytest.raises(ConfigError, match="belongs to user 4321"):
        advance(directory / "stock", 35)


def test_who_is_on_the_access_control_list_of_the_data_may_advance_its_mark(directory: Path) -> None:
    stock, bare = directory / "stock", directory / "bare"
    for path in (stock, bare):
        path.write_text("1")
        path.chmod(0o660)
    give_acl(stock, GUEST)
    advance(stock, 33)
    assert os.getxattr(f"{stock}.fence", ACL) == os.getxattr(stock, ACL)
    give_acl(directory, GUEST, default=True)
    advance(bare, 33)
    assert ACL not in os.listxattr(f"{bare}.fence")
    assert (directory / "bare.fence").stat().st_mode & 0o7777 == 0o660


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
@pytest.mark.parametrize(("groups", "group", "mode"), [([1235], 1235, 0o664), ([], GUEST, 0o604)])
def test_a_member_of_the_group_makes_the_mark_for_the_group(
    directory: Path, groups: list[int], group: int, mode: int
) -> None:
    directory.chmod(0o777)
    stock = directory / "stock"
    stock.write_text("1")
    os.chown(stock, 1234, 1235)
    stock.chmod(0o664)
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(directory)
            os.setgroups(groups)
            os.setgid(GUEST)
            os.setuid(GUEST)
            advance("stock", 33)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    made = (directory / "stock.fence").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (GUEST, group, mode)


def test_who_is_killed_while_it_makes_a_mark_leaves_nothing(directory: Path) -> None:
    killed = """
import os, sys
from lockctl import fence
sys.addaudithook(lambda event, _: os.kill(os.getpid(), 9) if event == "os.link" else None)
fence.advance(sys.argv[1], fence.Mark("d", 33))
"""
    done = subprocess.run([sys.executable, "-c", killed, str(directory / "stock")], check=False, timeout=LIMIT)
    assert done.returncode == -9
    assert os.listdir(directory) == []


@pytest.mark.parametrize("step", [SidecarStore.advance, SidecarStore.reset])
def test_the_name_of_a_mark_whose_maker_was_killed_is_on_the_disk_before_the_first_token(
    directory: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[..., object]
) -> None:
    """Or a loss of power would take the mark with what was acknowledged."""
    killed = """
import os, stat, sys
from lockctl import fence
fsync = os.fsync
def kill(number):
    if stat.S_ISDIR(os.fstat(number).st_mode):
        os.kill(os.getpid(), 9)
    fsync(number)
os.fsync = kill
fence.advance(sys.argv[1], fence.Mark("d", 33))
"""
    path = str(directory / "stock")
    done = subprocess.run([sys.executable, "-c", killed, path], check=False, timeout=LIMIT)
    assert done.returncode == -9
    assert os.listdir(directory) == ["stock.fence"]
    marks_at_sync: list[Mark | None] = []
    fsync = os.fsync

    def note(number: int) -> None:
        fsync(number)
        if os.path.samestat(os.fstat(number), os.stat(directory)):
            marks_at_sync.append(current(path))

    monkeypatch.setattr(os, "fsync", note)
    store = locate(path).store
    assert isinstance(store, SidecarStore)
    step(store, path, mark(5), timeout=LIMIT)
    advance(path, 6)
    assert marks_at_sync == [None]
    assert current(path) == mark(6)


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_does_not_count(directory: Path) -> None:
    advance(directory / "stock", 33)
    advance(directory / "other", 50)
    path = directory / "stock.fence"
    with open(path, "rb") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                old.close()  # or the lock would be this process's, too
                advance(directory / "stock", 40)
            except Exception as refused:
                status = 2 if "50" in str(refused) else 3
            finally:
                os._exit(status)
        with pytest.raises(BackendUnavailable):
            advance(directory / "stock", 41, timeout=0.3)
        os.rename(directory / "other.fence", path)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert current(directory / "stock") == mark(50)


def test_a_child_that_was_forked_does_not_keep_a_mark_after_its_block(directory: Path) -> None:
    location = locate(str(directory / "stock"))
    with location.store.holding(location.resource, mark(33), timeout=LIMIT):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        with pytest.raises(BackendUnavailable):
            advance(directory / "stock", 34, timeout=0.2)
    try:
        assert advance(directory / "stock", 34, timeout=1.0) == mark(34)
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


def test_a_mark_is_shown_while_it_is_held(directory: Path) -> None:
    location = locate(str(directory / "stock"))
    with location.store.holding(location.resource, mark(33), timeout=LIMIT):
        assert current(directory / "stock") == mark(33)


@pytest.mark.parametrize(
    "words",
    [
        ("file://host/srv/stock", None),
        ("file:///srv/stock?any_filesystem=maybe", None),
        ("file:///srv/stock?banana=1", None),
        ("stock", "file://user@/srv"),
        ("no/such/directory/stock", None),
        ("x" * 300, None),
    ],
)
def test_words_that_cannot_be_a_place_are_refused_in_one_line(
    directory: Path, words: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    with pytest.raises(ConfigError) as told:
        advance(words[0], 1, words[1])
    assert "\n" not in str(told.value)
    assert not list(directory.iterdir())


@pytest.mark.parametrize("name", ["../stock", "/etc/stock", "..", "a/b"])
def test_a_name_in_a_directory_does_not_leave_it(directory: Path, name: str) -> None:
    with pytest.raises(UsageError):
        advance(name, 1, f"file://{directory}")


def test_nothing_lies_about_after_the_first_mark(directory: Path) -> None:
    advance(directory / "stock", 33)
    assert os.listdir(directory) == ["stock.fence"]
    assert (directory / "stock.fence").stat().st_size == slots.SIZE
    assert f"{DOMAIN};33".encode() in (directory / "stock.fence").read_bytes()
