"""Marks of resources that are mounted where they are: the mark lies beside, on another file system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.run.mounts import OVERLAY

OWN = ("--token", "5", "--domain", "x")
FUSE = str(Path(__file__).with_name("fuse.py"))
LAYER = f"{OVERLAY} && cd $PWD"
VOLUME = f"{LAYER} && mkdir data && mount -t tmpfs none data"
BOUND_FILE = f"{LAYER} && : > data && : > ../.outside && mount --bind ../.outside data"


@pytest.fixture
def point(locks):
    return locks / ".mount"


def using(resource, locks):
    """Ways to use a resource."""
    return {
        "advance": ("fence", "advance", resource, *OWN),
        "exec": ("fence", "exec", *OWN, resource, "--", "echo", "ran"),
        "run": ("run", "-b", f"file://{locks}", "-l", "a", "--fence", resource, "--", "echo", "ran"),
    }


@pytest.mark.parametrize("way", ["advance", "exec", "run"])
@pytest.mark.parametrize(("setup", "advice"), [(VOLUME, "use a name in it"), (BOUND_FILE, "mount its directory")])
def test_what_is_mounted_into_a_container_has_no_mark_in_the_layer_of_the_container(
    locks, mounted, point, setup, advice, way
):
    """Of which the next container, with the same volume, has another."""
    done = mounted(setup, *using(str(point / "data"), locks)[way])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1), done.stderr
    assert "on overlay, of which every container has a copy of its own" in done.stderr
    assert advice in done.stderr


@pytest.mark.parametrize("name", ["data/stock", "data/none"])
def test_a_mark_in_the_volume_is_accepted(mounted, point, name):
    done = mounted(
        f"{VOLUME} && : > data/stock", "fence", "exec", *OWN, str(point / name), "--", "ls", str(point / "data")
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{Path(name).name}.fence" in done.stdout.split()


@pytest.mark.parametrize("made", [": > data", "mkdir data", ":"], ids=["file", "directory", "nothing"])
def test_what_is_in_the_layer_itself_has_its_mark_there(mounted, point, made):
    """The next container has data of its own, too."""
    done = mounted(f"{LAYER} && {made}", "fence", "exec", *OWN, str(point / "data"), "--", "ls", str(point))
    assert (done.returncode, done.stderr) == (0, "")
    assert "data.fence" in done.stdout


def test_a_mark_that_is_mounted_beside_its_file_is_accepted(lockctl, locks, mounted, point):
    stock = locks / ".stock"
    stock.touch()
    assert lockctl("fence", "check", str(stock), "--token", "4", "--domain", "x").returncode == 0
    both = " && ".join(f": > {name} && mount --bind ../{name} {name}" for name in (".stock", ".stock.fence"))
    done = mounted(f"{LAYER} && {both}", "fence", "check", str(point / ".stock"), *OWN)
    assert (done.returncode, done.stderr) == (0, "")
    assert lockctl("fence", "show", str(stock)).stdout == "x;5\n"


def test_a_store_in_a_layer_is_refused_unless_told(mounted, point):
    words = ("fence", "check", "stock", *OWN, "--store", f"file://{point}")
    done = mounted(LAYER, *words)
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert f"{point} is on overlay, of which every container has a copy of its own" in done.stderr
    assert mounted(LAYER, *words[:-1], f"{words[-1]}?any_filesystem=yes").returncode == 0


def test_any_of_it_is_accepted_when_told(mounted, point):
    assert mounted(VOLUME, "fence", "check", f"file://{point}/data?any_filesystem=yes", *OWN).returncode == 0


def test_what_is_mounted_on_one_host_is_accepted(mounted, point):
    setup = "mount -t tmpfs none . && cd $PWD && mkdir data && mount -t tmpfs none data"
    assert mounted(setup, "fence", "check", str(point / "data"), *OWN).returncode == 0


DEVICE = "mount -t tmpfs none . && cd $PWD && : > data && mount --bind /dev/null data"
DISK = (  # the overlay stands for it
    "mount -t tmpfs none . && cd $PWD && mkdir low up work data"
    " && mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none data"
)


def test_a_file_that_is_a_mount_point_is_not_replaced_and_stdin_is_not_read(mounted, point, lockctl):
    words = f"{lockctl.command} fence write {point}/data {' '.join(OWN)}"
    setup = "mount -t tmpfs none . && cd $PWD && echo old > data && mount --bind data data"
    # the pipe has no end: it would be read for ever
    told = f"mkfifo pipe; exec 3<> pipe; {words} <&3 2>&1 || echo status $?"
    done = mounted(f"{setup} && ( {told} ); [ $(cat data) = old ]", "fence", "show", str(point / "data"))
    said = f"{point}/data is a mount point, which cannot be replaced: mount its directory in place of it"
    assert (done.returncode, done.stdout) == (0, f"lockctl: {said}\nstatus 78\n")


@pytest.mark.parametrize("way", ["advance", "exec", "run"])
@pytest.mark.parametrize(("setup", "what"), [(DEVICE, "is a device"), (DISK, "is mounted there")])
def test_a_mark_is_not_kept_where_a_boot_removes_it_and_not_the_data(locks, mounted, point, setup, what, way):
    done = mounted(setup, *using(str(point / "data"), locks)[way])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1), done.stderr
    assert f"{point}/data {what}, and its mark would be beside it on tmpfs, which is empty after a boot" in done.stderr
    assert "--store" in done.stderr


def test_a_mark_that_a_boot_removes_is_accepted_when_told(mounted, point):
    assert mounted(DEVICE, "fence", "check", f"file://{point}/data?any_filesystem=yes", *OWN).returncode == 0


def test_data_that_a_boot_removes_have_their_mark_beside_them(mounted, point):
    setup = "mount -t tmpfs none . && cd $PWD && : > data"
    assert mounted(setup, "fence", "check", str(point / "data"), *OWN).returncode == 0


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="this user may not use /dev/fuse")
@pytest.mark.parametrize(("query", "status"), [("", 78), ("?any_filesystem=yes", 0)])
def test_the_mount_point_of_a_network_file_system_is_refused_unless_told(lockctl, locks, unshare, query, status):
    point = locks / ".mount"
    point.mkdir()
    within = [*unshare("-m"), sys.executable, FUSE, str(point), "fuse.sshfs"]
    done = lockctl("fence", "check", f"file://{point}{query}", *OWN, within=within)
    assert done.returncode == status, done.stderr
    assert (locks / ".mount.fence").exists() == (status == 0)
    if status:
        assert f"{point} is on fuse.sshfs, and its mark would be beside it on this host alone" in done.stderr
