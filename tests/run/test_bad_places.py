"""Places where no lock can live: one line, 78 or 69, nothing ran, and nothing that was there is harmed."""

from __future__ import annotations

import errno
import http.server
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from lockctl import kernel
from tests.jobs import Lockctl, eventually
from tests.run.conftest import DROP_RIGHTS
from tests.run.mounts import FULL_DISK, OVERLAY, READ_ONLY

REFUSED_CALLS = str(Path(__file__).parent / "refused_calls.py")
DEATH_SIGNAL = f"prctl={kernel.PR_SET_PDEATHSIG}"
ANOTHER_USER = 12345


@pytest.fixture
def spot(locks):
    """A path below the directory for locks, where a test puts what it likes."""
    return locks / ".spot"


def at(path):
    return f"--backend=file://{path}"


def test_a_full_disk(refused, mounted):
    said = refused.check(mounted(FULL_DISK, *refused.command("-l", "a")), 69)
    assert "No space left on device" in said


def test_a_full_disk_with_a_lock_that_was_used_before(refused, mounted):
    setup = f"{FULL_DISK} && : > a"
    refused.check(mounted(setup, *refused.command("-l", "a")), 69)


def test_a_read_only_file_system(refused, mounted):
    assert "read-only" in refused.check(mounted(READ_ONLY, *refused.command("-l", "a")), 78)


def test_an_overlay_is_refused_unless_told(refused, mounted):
    assert "overlay" in refused.check(mounted(OVERLAY, *refused.command("-l", "a")), 78)


def test_an_overlay_is_accepted_when_told(mounted):
    assert mounted(OVERLAY, "run", "-l", "a", "--", "sh", "-c", "exit 6", query="?any_filesystem=yes").returncode == 6


def test_a_directory_that_may_not_be_written(refused, spot, without_rights):
    spot.mkdir(mode=0o500)
    assert "no permission" in refused(78, "-l", "a", at(spot), through=without_rights)


def test_a_directory_that_may_not_be_made(refused, spot, without_rights):
    spot.mkdir(mode=0o500)
    assert "no permission" in refused(78, "-l", "a", at(spot / "new" / "newer"), through=without_rights)


def test_a_lock_file_that_may_not_be_opened(refused, spot, without_rights):
    spot.mkdir()
    (spot / "a").write_text("")
    (spot / "a").chmod(0)
    assert "no permission" in refused(78, "-l", "a", at(spot), through=without_rights)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", ["file://{}", "sqlite://{}/a"])
def test_a_file_of_another_user_in_a_directory_for_all(lockctl, refused, spot, without_rights, place):
    spot.mkdir()
    spot.chmod(0o1777)
    backend = f"--backend={place.format(spot)}"
    assert lockctl("run", "-l", "a", backend, "--", "true").returncode == 0
    for path in spot.iterdir():
        path.chmod(0o644)
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    said = refused(78, "-l", "a", backend, through=without_rights)
    assert f"belongs to user {ANOTHER_USER}" in said
    assert "place" in said


def test_a_missing_directory_is_made(lockctl, spot):
    assert lockctl("run", "-l", "a", at(spot / "one" / "two"), "--", "true").returncode == 0
    assert (spot / "one" / "two" / "a").is_file()


@pytest.mark.parametrize("mask", [0o277, 0o777])
@pytest.mark.parametrize(
    "words",
    [
        ("--backend=file://{}/one/two",),
        ("--backend=sqlite://{}/locks.db",),
        ("--fence={}/stock",),
        ("--log={}/log", "--verbose"),
        ("--metrics-dir={}", "--report={}/report"),
    ],
    ids=["directory", "database", "mark", "log", "metrics"],
)
def test_what_is_made_under_a_umask_that_takes_the_users_own_rights_is_used_later(
    lockctl, after, without_rights, spot, mask, words
):
    spot.mkdir()
    job = [lockctl.command, "run", "-l", "a", *(word.format(spot) for word in words), "--", "true"]
    for begun in (after(f"os.umask({mask})\n{DROP_RIGHTS}"), without_rights, without_rights):
        done = begun(*job)
        assert done.returncode == 0, done.stderr
    assert [path for path in (spot, *spot.rglob("*")) if path.stat().st_mode & 0o600 != 0o600] == []
    for metrics in spot.glob("*.prom"):
        assert 'lockctl_runs_total{lock="a",outcome="exited"} 3' in metrics.read_text()


def test_a_symbolic_link_as_directory(refused, spot, locks):
    spot.symlink_to(locks)
    assert "symbolic link" in refused(78, "-l", "a", at(spot))
    assert "symbolic link" in refused(78, "-l", "a", at(f"{spot}/"))


def test_a_file_as_directory(refused, spot):
    spot.write_text("precious")
    refused(78, "-l", "a", at(spot))
    refused(78, "-l", "a", at(spot / "below"))
    assert spot.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user(refused, spot):
    spot.mkdir()
    os.chown(spot, ANOTHER_USER, ANOTHER_USER)
    assert f"belongs to user {ANOTHER_USER}" in refused(78, "-l", "a", at(spot))


def test_a_directory_where_everybody_may_replace_files(refused, lockctl, spot):
    spot.mkdir()
    spot.chmod(0o777)
    assert "everybody may replace files" in refused(78, "-l", "a", at(spot))
    spot.chmod(0o1777)
    assert lockctl("run", "-l", "a", at(spot), "--", "true").returncode == 0


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_symbolic_link_as_lock_file(refused, locks, target):
    (locks / ".elsewhere").write_text("precious")
    (locks / "a").symlink_to(locks / f".{target}")
    assert "symbolic link" in refused(78, "-l", "a")
    assert (locks / ".elsewhere").read_text() == "precious"
    assert not (locks / ".missing").exists()


def test_a_pipe_as_lock_file_is_refused_without_waiting_for_its_other_end(refused, locks):
    os.mkfifo(locks / "a")
    begin = time.monotonic()
    assert "not a regular file" in refused(78, "-l", "a")
    assert time.monotonic() - begin < 5


def test_a_directory_as_lock_file(refused, locks):
    (locks / "a").mkdir()
    assert "directory" in refused(78, "-l", "a")


@pytest.mark.parametrize("content", [b"precious\n", b"x" * 10000, b"lockctl\n", b"\0" * 50 + b"x", b"x" * 4096 + b"lo"])
def test_a_file_with_content_of_another_program_is_not_written_over(refused, locks, content):
    (locks / "a").write_bytes(content)
    assert "not lockctl's" in refused(78, "-l", "a")
    assert (locks / "a").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 8192])
def test_an_empty_file_made_by_flock_is_used(lockctl, locks, content):
    (locks / "a").write_bytes(content)
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_record_that_is_torn_in_both_halves_does_not_keep_the_lock_from_working(lockctl, locks):
    (locks / "a").write_bytes(b"lockctl1 torn".ljust(4096) + b"lockctl1 torn".ljust(4096))
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize("verb", [["list"], ["inspect", "a"], ["force-release", "a", "--yes"]])
def test_the_other_verbs_say_one_line_too(without_rights, lockctl, spot, verb):
    spot.mkdir()
    (spot / "a").write_text("")
    spot.chmod(0)
    done = without_rights(lockctl.command, *verb, at(spot))
    assert (done.returncode, done.stderr.count("\n")) == (78, 1), done.stderr
    spot.chmod(0o700)


def test_looking_makes_nothing(lockctl, spot):
    assert lockctl("list", at(spot)).returncode == 0
    assert lockctl("inspect", "a", at(spot)).returncode == 1  # as of any name that is not known
    assert lockctl("force-release", "a", at(spot)).returncode == 0
    assert not spot.exists()


def test_a_server_that_is_no_consul(refused):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        line = refused(69, "-l", "a", f"--backend=consul://{address}/")
        server.shutdown()
    assert line.endswith(f"consul at {address}: status 404: a page in HTML; is this address a Consul server's?\n")


class Elsewhere(http.server.SimpleHTTPRequestHandler):
    """A web server that has nothing of what is asked for."""

    def do_PUT(self):
        self.send_error(404)

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        """Nothing on stderr."""


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOSYS])
@pytest.mark.parametrize(
    "call",
    ["prctl", DEATH_SIGNAL, "signalfd", "timerfd_create", "timerfd_settime", "socketpair", "sendmsg"],
)
def test_a_system_call_that_is_refused_is_no_bug_of_ours(refused, lockctl, call, number):
    launch = Lockctl(sys.executable, lockctl.directory)
    line = refused(78, "-l", "a", through=partial(launch, "-ISB", REFUSED_CALLS, call, str(number)))
    assert call.partition("=")[0] in line
    assert os.strerror(number) in line
    assert ("Linux 5.3" if number == errno.ENOSYS else "seccomp") in line
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("call", ["sched_getaffinity", "sched_setaffinity", "sched_yield"])
def test_a_system_call_that_only_saves_time_may_be_refused(lockctl, call, number):
    launch = Lockctl(sys.executable, lockctl.directory)
    words = ["-ISB", REFUSED_CALLS, call, str(number), lockctl.command, "run", "-l", "a", "--", "sh", "-c", "exit 3"]
    done = launch(*words)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.parametrize("call", ["prctl", DEATH_SIGNAL, "signalfd", "timerfd_create", "pidfd_open", "socketpair"])
def test_a_system_call_that_is_refused_to_acquire_is_no_bug_of_ours(acquirer, call):
    launch = Lockctl(sys.executable, acquirer.lockctl.directory)
    words = [
        "-ISB",
        REFUSED_CALLS,
        call,
        str(int(errno.EPERM)),
        acquirer.lockctl.command,
        "acquire",
        "deploy",
        "--for",
        "9s",
    ]
    done = launch(*words, env=acquirer.env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1), done.stderr
    assert f"lockctl needs {call.partition('=')[0]}, which is not permitted here" in done.stderr
    eventually(acquirer.free)
    assert not acquirer.remains()
