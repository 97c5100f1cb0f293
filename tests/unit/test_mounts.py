"""lockctl.mounts: the file system that a path is on."""

from __future__ import annotations

import io
import os

import pytest

from lockctl import mounts
from lockctl.fence.stores.filesystem import mount_of

MOUNTS = """\
21 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/a - nfs
22 21 8:1 / /srv rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw
23 21 0:44 / /srv/nfs rw - nfs4 server:/export rw
24 21 0:45 / /mnt/with\\040blank rw - fuse.sshfs x rw
25 21 0:46 /@home /home rw - btrfs /dev/sdb rw
26 21 0:47 / /windows rw - 9p drivers rw
"""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of mounts as on a host with all of them."""
    monkeypatch.setattr(mounts, "open", lambda *_, **__: io.BytesIO(MOUNTS.encode()), raising=False)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/var/lib/lockctl", os.makedev(0, 20), "overlay"),
        ("/srv/locks", os.makedev(8, 1), "ext4"),
        ("/srv/nfs/locks", os.makedev(0, 44), "nfs4"),
        ("/mnt/with blank/locks", os.makedev(0, 45), "fuse.sshfs"),
        ("/home/a/locks", os.makedev(0, 99), "btrfs"),
        ("/homeless", os.makedev(0, 98), "overlay"),
        ("/mnt/with blank", os.makedev(0, 97), "fuse.sshfs"),
        ("/windows", os.makedev(0, 47), "9p"),
    ],
)
def test_the_file_system_goes_by_the_device_and_else_by_the_longest_mount_point(
    path: str, device: int, kind: str
) -> None:
    assert mounts.filesystem(path, device) == kind


@pytest.mark.usefixtures("table")
def test_the_number_of_the_mount_decides_if_it_is_known() -> None:
    assert mounts.filesystem("/srv/nfs/locks", os.makedev(8, 1), 26) == "9p"
    assert mounts.filesystem("/srv/nfs/locks", os.makedev(8, 1), 27) == "ext4"


def test_an_open_path_has_the_number_of_its_mount() -> None:
    for path, kind in (("/proc", "proc"), ("/", mounts.filesystem("/", os.stat("/").st_dev))):
        descriptor = os.open(path, os.O_PATH)
        number = mount_of(descriptor)
        os.close(descriptor)
        assert number is not None
        assert mounts.filesystem("/nowhere", 0, number) == kind
    assert mount_of(descriptor) is None


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("path", "device", "superblock"),
    [
        ("/srv/locks", (8, 1), (8, 1)),
        ("/srv/locks", (8, 9), (8, 9)),
        ("/srv/nfs/locks", (0, 44), (0, 44)),
        ("/home/a/locks", (0, 99), (0, 46)),
    ],
)
def test_a_subvolume_has_the_superblock_of_its_mount(
    path: str, device: tuple[int, int], superblock: tuple[int, int]
) -> None:
    assert mounts.superblock(path, os.makedev(*device)) == os.makedev(*superblock)


def test_the_real_table_of_mounts_is_read() -> None:
    assert mounts.filesystem("/proc", os.stat("/proc").st_dev) == "proc"
    assert mounts.filesystem("/", os.stat("/").st_dev)


def test_without_a_table_of_mounts_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(mounts, "open", unreadable, raising=False)
    assert mounts.filesystem("/", os.stat("/").st_dev) == ""
    assert mounts.superblock("/", os.makedev(0, 99)) == os.makedev(0, 99)
