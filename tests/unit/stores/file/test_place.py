"""lockctl.stores.file.address: a directory that nobody else can replace, on a file system whose locks hold."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from lockctl import mounts
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.file import address

if TYPE_CHECKING:
    from pathlib import Path


def usable(path: Path, *, any_filesystem: bool = False) -> bool:
    """Whether a directory is accepted for lock files."""
    os.close(address.open_directory(str(path), any_filesystem=any_filesystem))
    return True


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse", "9p", "ceph", "virtiofs", "overlay", "aufs"]
)
def test_network_and_layered_file_systems_are_refused_unless_told(
    locks: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(mounts, "filesystem", lambda *_: kind)
    with pytest.raises(ConfigError, match=f"is on {kind}, .*any_filesystem=yes"):
        usable(locks)
    assert usable(locks, any_filesystem=True)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "zfs", "f2fs", "ext2/ext3", ""])
def test_local_file_systems_are_accepted(locks: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(mounts, "filesystem", lambda *_: kind)
    assert usable(locks)


def test_a_missing_directory_is_made_with_its_parents_and_others_cannot_write_there(locks: Path) -> None:
    assert usable(locks / "a/b")
    assert (locks / "a/b").stat().st_mode & 0o022 == 0
    if os.geteuid() != 0:
        assert (locks / "a/b").stat().st_mode & 0o077 == 0


def test_a_symbolic_link_is_refused_wherever_it_leads(locks: Path) -> None:
    (locks / "real").mkdir()
    for name, target in (("link", "real"), ("dangling", "nowhere")):
        (locks / name).symlink_to(locks / target)
        with pytest.raises(ConfigError, match=r"cannot use .*--backend|symbolic link"):
            usable(locks / name)
    assert not (locks / "nowhere").exists()


def test_what_is_no_directory_is_refused(locks: Path) -> None:
    (locks / "file").touch()
    for path in (locks / "file", locks / "file/below"):
        with pytest.raises(ConfigError, match="not a directory"):
            usable(path)


def test_the_directory_of_a_stranger_is_refused(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid() or 65534
    if os.geteuid() == 0:
        os.chown(locks, owner, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=f"belongs to user {owner}, who could replace"):
        usable(locks)


def test_a_directory_that_everybody_may_write_to_must_be_sticky(locks: Path) -> None:
    locks.chmod(0o777)
    with pytest.raises(ConfigError, match=r"make it sticky \(chmod \+t\)"):
        usable(locks)
    locks.chmod(0o1777)
    assert usable(locks)


@pytest.mark.parametrize(
    ("directory", "file"), [(0o700, 0o600), (0o755, 0o600), (0o775, 0o660), (0o1777, 0o666), (0o2770, 0o660)]
)
def test_who_may_make_files_may_take_locks_and_nobody_else_may_even_open_them(
    locks: Path, directory: int, file: int
) -> None:
    if os.geteuid() == 0:
        os.chown(locks, -1, 12345)
    locks.chmod(directory)
    descriptor = address.open_directory(str(locks), any_filesystem=True)
    made = os.fstat(address.open_file(descriptor, "a"))
    assert made.st_mode & 0o777 == file
    if file & 0o060:
        assert made.st_gid == locks.stat().st_gid
    os.close(descriptor)


def test_a_reader_makes_no_directory(locks: Path) -> None:
    assert address.open_existing(str(locks / "missing")) is None
    assert not (locks / "missing").exists()
    descriptor = address.open_existing(str(locks))
    assert descriptor is not None
    os.close(descriptor)
    (locks / "file").touch()
    with pytest.raises(ConfigError):
        address.open_existing(str(locks / "file"))


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.EACCES, ConfigError, "no permission"),
        (errno.EROFS, ConfigError, "read-only"),
        (errno.ELOOP, ConfigError, "symbolic link"),
        (errno.EISDIR, ConfigError, "is a directory"),
        (errno.ENOSPC, BackendUnavailable, "No space left"),
        (errno.EIO, BackendUnavailable, "Input/output"),
        (errno.EMFILE, BackendUnavailable, "Too many open files"),
    ],
)
def test_what_a_person_must_change_is_configuration_and_what_may_pass_is_unavailability(
    number: int, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as refused:
        address.refuse("/a\x1b[2Jb", OSError(number, os.strerror(number)))
    assert "\x1b" not in str(refused.value)
