"""Locks between containers of one host that count another time since the boot, or have another id of it."""

from __future__ import annotations

import subprocess
import uuid

import pytest

from tests.jobs import LIMIT, eventually

BOOT_ID = 'mount --bind "$0" /proc/sys/kernel/random/boot_id; exec "$@"'
TIMES = ("100000", "-5")  # seconds since the boot, more than the host counts


@pytest.fixture
def contained(lockctl, locks, unshare):
    """Runs lockctl in a container: ``contained(HOW, *WORDS)``, one of ``TIMES``, "boot id", or "host" for none."""
    other = locks / ".boot-id"
    other.write_text(f"{uuid.uuid4()}\n")

    def run(how, *words):
        if how == "boot id":
            within = [*unshare("-m"), "sh", "-c", BOOT_ID, str(other)]
        elif how == "host":
            within = []
        else:
            within = [*unshare("-T"), "--fork", "--boottime", how]
        return lockctl(*words, within=within)

    return run


@pytest.mark.parametrize("how", [*TIMES, "boot id"])
@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_containers_exclude_each_other_and_free_the_lock_for_each_other(lockctl, locks, contained, scheme, how):
    url = f"{scheme}://{locks}/locks.db"
    job = lockctl.start_holding("a", "-b", url, "-t", "30", "--", "cat", stdin=subprocess.PIPE)
    for _ in range(2):
        done = contained(how, "run", "-b", url, "-l", "a", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (75, ""), done.stderr
    job.stdin.close()
    assert job.wait(LIMIT) == 0
    eventually(lambda: contained(how, "run", "-b", url, "-l", "a", "--", "true").returncode == 0)


@pytest.mark.parametrize(
    ("first", "second"), [*((each, "host") for each in TIMES), *(("host", each) for each in TIMES)]
)
def test_a_hold_is_as_long_in_each_container(locks, contained, first, second):
    words = ("run", "-b", f"file://{locks}/there", "-l", "a")
    assert contained(first, *words, "--min-hold", "1h", "--", "true").returncode == 0
    done = contained(second, *words, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (75, ""), done.stderr
