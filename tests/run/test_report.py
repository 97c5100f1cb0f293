"""`--report`: every outcome as JSON, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from lockctl.cli import files
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import Background
from tests.jobs import LIMIT, eventually
from tests.run.mounts import FULL_DISK
from tests.servers.redis import Redis

KEYS = [
    "name",
    "backend",
    "host",
    "command",
    "token",
    "started_at",
    "duration",
    "waited",
    "outcome",
    "exit_code",
    "detail",
    "not_released",
    "labels",
    "holder",
]
HOLDER_KEYS = ["owner", "host", "pid", "user", "command", "token", "mode", "acquired_at", "expires_in", "ended_at"]
HOLDER_KEYS.append("labels")
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def report(lockctl, locks):
    """Runs with a report: (exit status, the document)."""
    path = locks / ".report"

    def run(*words, **options):
        done = lockctl("run", "-l", "a", "--report", str(path), *words, **options)
        return done.returncode, read(path)

    return run


def read(path):
    document = json.loads(path.read_text())
    assert list(document) == KEYS
    assert document["name"] == "a"
    assert document["backend"] in {"file", "redis"}
    assert document["host"] == os.uname().nodename
    assert document["waited"] >= 0
    path.unlink()
    assert not list(path.parent.glob(".report*"))
    return document


def ran(document):
    assert document["token"] > 0
    assert re.fullmatch(MOMENT, document["started_at"])
    assert document["duration"] > 0
    assert document["holder"] is None
    assert document["not_released"] is None


def test_exited(report):
    status, document = report("--", "sh", "-c", "exit 3")
    assert (status, document["outcome"], document["exit_code"]) == (3, "exited", 3)
    assert document["command"] == ["sh", "-c", "exit 3"]
    assert document["detail"] is None
    ran(document)


def test_signaled(report):
    status, document = report("--", "sh", "-c", "kill -9 $$")
    assert (status, document["outcome"], document["exit_code"]) == (137, "signaled", 137)
    ran(document)


def test_held(report, lockctl):
    holder = lockctl.start_holding("a")
    status, document = report("--", "true")
    assert (status, document["outcome"], document["exit_code"]) == (75, "held", None)
    assert (document["token"], document["started_at"], document["duration"]) == (None, None, None)
    assert list(document["holder"]) == HOLDER_KEYS
    assert document["holder"]["pid"] == holder.pid
    assert report("--skip-ok", "--", "true")[0] == 0


def test_a_lock_that_could_not_be_given_back_is_told(report, start_server):
    server = start_server(Redis)
    words = ("-b", f"{server.url}/0", "--", "sh", "-c", f"kill -9 {server.pid}")
    status, document = report(*words)
    assert (status, document["outcome"], document["exit_code"]) == (0, "exited", 0)
    assert "127.0.0.1" in document["not_released"]


def test_the_time_that_was_waited_is_told(report, lockctl):
    holder = lockctl.start_holding("a")
    running = Background(lambda: report("--wait", "60s", "--", "true"))
    with contextlib.closing(open_backend(parse_url(lockctl.url))) as observer:
        eventually(lambda: observer.inspect("a", timeout=LIMIT).waiters)
    time.sleep(0.2)
    holder.terminate()
    _, document = running.result()
    assert document["outcome"] == "exited"
    assert 0.2 < document["waited"] < 60


def started(lockctl, path, *words):
    ready = lockctl.directory / ".up"
    job = f"touch {ready}; exec sleep 60"
    run = lockctl.start("run", "-l", "a", "--report", str(path), *words, "--", "sh", "-c", job)
    eventually(ready.exists)
    return run


def test_lost(lockctl, locks):
    run = started(lockctl, locks / ".report")
    (locks / "a").unlink()
    assert run.wait(timeout=LIMIT) == 76
    document = read(locks / ".report")
    assert (document["outcome"], document["exit_code"]) == ("lost", 137)
    assert "replaced or removed" in document["detail"]
    ran(document)


def test_revoked(lockctl, locks):
    run = started(lockctl, locks / ".report")
    assert lockctl("force-release", "a", "--yes", "--reason", "repair of the disk").returncode == 0
    assert run.wait(timeout=LIMIT) == 76
    document = read(locks / ".report")
    assert (document["outcome"], document["exit_code"]) == ("revoked", 143)
    assert "repair of the disk" in document["detail"]
    ran(document)


def test_timed_out(report):
    status, document = report("--max-runtime", "150ms", "--", "sleep", "60")
    assert (status, document["outcome"], document["exit_code"]) == (124, "timed_out", 143)
    ran(document)


@pytest.mark.parametrize(("word", "status"), [("/no/such/command", 127), ("/", 126)])
def test_not_executed(report, word, status):
    found, document = report("--", word)
    assert (found, document["outcome"], document["exit_code"]) == (status, "not_executed", None)
    assert document["duration"] is None


def test_unavailable(locks, mounted):
    words = ("run", "-l", "a", "--report", str(locks / ".report"), "--", "touch", str(locks / ".ran"))
    assert mounted(FULL_DISK, *words).returncode == 69
    document = read(locks / ".report")
    assert (document["outcome"], document["exit_code"]) == ("unavailable", None)
    assert (document["token"], document["started_at"], document["duration"]) == (None, None, None)
    assert "No space left on device" in document["detail"]
    assert not (locks / ".ran").exists()


def test_interrupted_while_waiting(lockctl, locks):
    lockctl.start_holding("a")
    run = lockctl.start("run", "-l", "a", "-w", "forever", "--report", str(locks / ".report"), "--", "true")
    eventually(lambda: "waiter 1" in lockctl("inspect", "a").stdout)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=LIMIT) == 143
    document = read(locks / ".report")
    assert (document["outcome"], document["exit_code"]) == ("held", None)
    assert document["detail"] == "interrupted by signal 15"


def test_an_old_report_stays_whole_until_the_new_one_takes_its_place(lockctl, locks):
    path = locks / ".report"
    path.write_text("old")
    before = path.stat().st_ino
    line = f"cat {path}; ls -A {locks}"
    done = lockctl("run", "-l", "a", "--report", str(path), "--", "sh", "-c", line)
    assert done.stdout.startswith("old")
    assert path.stat().st_ino != before
    read(path)


def test_a_report_can_have_a_relative_path(lockctl, locks):
    assert lockctl("run", "-l", "a", "--report", ".report", "--", "true", cwd=locks).returncode == 0
    assert read(locks / ".report")["outcome"] == "exited"


@pytest.mark.parametrize("name", ["x" * 255, "\u00e4" * 127])
def test_a_report_can_have_the_longest_name_that_there_is(lockctl, locks, name):
    done = lockctl("run", "-l", "a", "--report", str(locks / name), "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert read(locks / name)["outcome"] == "exited"
    assert not list(locks.glob("*.tmp"))


@pytest.mark.parametrize(
    ("option", "place", "said"),
    [("--report", "report", "cannot write report"), ("--metrics-dir", ".", ". is not a directory in which")],
)
def test_what_is_to_be_written_into_a_directory_that_was_deleted_is_refused(lockctl, locks, option, place, said):
    line = 'cd "$0" && rmdir "$0" && exec "$@"'
    words = [lockctl.command, "run", "-l", "a", option, place, "--", "echo", "ran"]
    (locks / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", line, str(locks / "gone"), *words],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert f"{option}: {said}" in done.stderr


def test_words_that_are_no_text_are_reported_all_the_same(report):
    status, document = report("--", "test", "-n", "\udcff")
    assert (status, document["command"][0]) == (0, "test")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(lockctl, locks, without_rights):
    closed = locks / ".closed"
    closed.mkdir(mode=0o500)
    for place in (str(locks / "missing" / "report"), str(locks), str(closed / "report"), ""):
        words = ["run", "-l", "a", "--report", place, "--", "touch", str(locks / ".ran")]
        done = without_rights(lockctl.command, *words)
        assert (done.returncode, done.stdout) == (64, ""), place
        assert done.stderr.count("\n") == 1
        assert "--report" in done.stderr
        assert not (locks / ".ran").exists()


def test_an_empty_place_is_refused(lockctl, locks):
    done = lockctl("run", "-l", "a", "--report", "", "--", "touch", str(locks / ".ran"), cwd=locks)
    assert (done.returncode, (locks / ".ran").exists()) == (64, False)


@pytest.mark.parametrize(("device", "stream"), [("/dev/stderr", "stderr"), ("/dev/stdout", "stdout")])
def test_a_report_to_a_stream_goes_there_and_leaves_the_device_as_it_is(lockctl, locks, device, stream):
    place = locks / ".place"
    place.symlink_to(device)
    done = lockctl("run", "-l", "a", "--report", str(place), "--", "echo", "job")
    assert done.returncode == 0
    text = getattr(done, stream)
    assert json.loads(text.removeprefix("job\n"))["outcome"] == "exited"
    assert os.readlink(place) == device


def test_a_device_stays_what_it_is(lockctl, locks):
    place = locks / ".place"
    place.symlink_to(os.devnull)
    assert lockctl("run", "-l", "a", "--report", str(place), "--", "true").returncode == 0
    assert os.readlink(place) == os.devnull


def test_a_report_goes_through_a_fifo_and_nobody_waits_for_its_reader(lockctl, locks):
    place = locks / ".place"
    os.mkfifo(place)
    done = lockctl("run", "-l", "a", "--report", str(place), "--", "true")
    assert done.returncode == 0
    assert "cannot write the report" in done.stderr
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert lockctl("run", "-l", "a", "--report", str(place), "--", "true").returncode == 0
        assert list(json.loads(os.read(reader, 1 << 16))) == KEYS
    finally:
        os.close(reader)
    assert place.is_fifo()


def test_what_is_neither_a_file_nor_a_stream_is_refused(lockctl, locks):
    place = locks / ".place"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        done = lockctl("run", "-l", "a", "--report", str(place), "--", "touch", str(locks / ".ran"))
    assert (done.returncode, (locks / ".ran").exists()) == (64, False)
    assert place.is_socket()


def refusal(path, lockctl, *words, env=None):
    path.write_text("{}")  # what a run of yesterday has left
    done = lockctl("run", "-l", "a", *words, env={"LOCKCTL_REPORT": str(path), **(env or {})})
    document = json.loads(path.read_text())
    assert list(document) == KEYS
    assert (document["name"], document["outcome"], document["exit_code"]) == ("a", "not_executed", None)
    assert (document["token"], document["started_at"], document["duration"]) == (None, None, None)
    assert document["detail"]
    assert document["detail"] in done.stderr.replace("\n", " ")
    return done.returncode, document


@pytest.mark.parametrize(
    ("status", "backend", "words"),
    [
        (64, "file", ["--ttl", "banana", "--", "true"]),
        (64, "file", ["--no-such-option", "--", "true"]),
        (64, "file", ["--"]),
        (64, "file", ["--shared", "--slots", "2", "--", "true"]),
        (78, "redis", ["-b", "redis://127.0.0.1:1/0", "--guarantee", "correctness", "--", "true"]),
        (78, "redis", ["-b", "redis://127.0.0.1:1/0?password_file=/nonexistent", "--", "true"]),
        (78, None, ["-b", "nosuch", "--", "true"]),
        (78, "file", ["--config", "/nonexistent", "--", "true"]),
    ],
)
def test_a_run_whose_words_or_configuration_are_wrong(lockctl, locks, status, backend, words):
    code, document = refusal(locks / ".report", lockctl, *words)
    assert (code, document["backend"]) == (status, backend)


def test_what_a_wrong_command_line_does_not_say_is_null_in_the_report(lockctl, locks):
    path = locks / ".report"
    assert lockctl("run", "--no-such-option", "--report", str(path), "--", "true").returncode == 64
    document = json.loads(path.read_text())
    assert (document["name"], document["command"], document["labels"]) == (None, None, {})


def test_a_run_with_a_wrong_variable_and_one_whose_report_the_configuration_names(lockctl, locks):
    path = locks / ".report"
    assert refusal(path, lockctl, "--", "true", env={"LOCKCTL_WAIT": "soon"})[0] == 78
    (locks / ".config").write_text(f'[defaults]\nreport = "{path}"\n')
    env = {"LOCKCTL_REPORT": "", "LOCKCTL_WAIT": "soon"}
    assert refusal(path, lockctl, "--config", str(locks / ".config"), "--", "true", env=env)[0] == 78


def test_a_run_that_a_bug_ends(lockctl, locks):
    path = locks / ".report"
    path.write_text("{}")
    code = "import sys; from lockctl.cli import main, run; run.user_name = None; sys.exit(main.main(sys.argv[1:]))"
    words = ["run", "-l", "a", "-b", lockctl.url, "--report", str(path), "--", "true"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 70
    assert read(path)["detail"].startswith("a bug in lockctl: TypeError")


@pytest.mark.parametrize("place", ["nodir/r.json", "/nodir/r.json", "r.json/", ""])
def test_a_report_in_a_directory_that_is_not_there_is_refused_before_anything_runs(lockctl, locks, place):
    done = lockctl("run", "-l", "a", f"--report={place}", "--", "touch", str(locks / ".ran"), cwd=locks)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.count("\n") == 1
    assert not (locks / ".ran").exists()


def test_what_is_put_in_the_place_of_a_fifo_while_the_report_is_written_is_not_written_to(locks, monkeypatch):
    """Who owns the directory swaps it for a link to a file of root, after each call that looks at it."""
    secret, path = locks / ".secret", locks / ".report"
    secret.write_text("untouched\n")
    for call in ("stat", "lstat", "fstat"):
        look = getattr(os, call)

        def swap(*words, look=look, **more):
            found = look(*words, **more)
            if stat.S_ISFIFO(found.st_mode):
                path.unlink()
                path.symlink_to(secret)
            return found

        path.unlink(missing_ok=True)
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        monkeypatch.setattr(os, call, swap)
        files.put(str(path), b"{}\n")
        monkeypatch.undo()
        os.close(reader)
        assert secret.read_text() == "untouched\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_link_of_another_user_is_replaced_and_not_followed(locks):
    target, path = locks / ".fifo", locks / ".report"
    os.mkfifo(target)
    reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    path.symlink_to(target)
    os.chown(path, 1234, 1234, follow_symlinks=False)
    files.put(str(path), b"{}\n")
    assert (path.is_symlink(), path.read_text()) == (False, "{}\n")
    os.close(reader)
