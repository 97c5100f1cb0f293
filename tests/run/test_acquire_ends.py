"""How an acquired lock ends: with its time, its process, its lease, its daemon, or before it was handed out."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.cli.daemon import carried
from lockctl.cli.daemon.command import BOUND_ENDED, Task
from lockctl.cli.daemon.remains import reason
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.acquirer import Acquirer, read, word
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.mark.parametrize("socket_is_there", ["yes", "no"])
def test_it_ends_when_its_time_is_over_and_release_says_so(acquirer: Acquirer, socket_is_there: str) -> None:
    path = acquirer.acquire(span="1s")
    if socket_is_there == "no":
        Path(read(path)["socket"]).unlink()
    eventually(acquirer.free, pause=0.05)
    for verb in ("renew", "release"):
        code, text = word(acquirer(verb, "--handle", path))
        assert (code, "--for" in text) == (76, True)
    assert acquirer.remains() == []


def test_it_ends_at_once_with_the_process_that_it_is_bound_to(acquirer: Acquirer) -> None:
    line = f'{shlex.quote(acquirer.lockctl.command)} acquire deploy --for 60s --bind-pid $$ > "$0"; sleep 60; true'
    path = str(acquirer.runtime / "handle")
    step = subprocess.Popen(
        ["bash", "-c", line, path], env=acquirer.lockctl.environment(acquirer.env), start_new_session=True
    )
    eventually(lambda: os.path.exists(path) and os.path.getsize(path))
    assert acquirer.state() == "held"
    os.killpg(step.pid, signal.SIGKILL)
    step.wait(timeout=LIMIT)
    eventually(acquirer.free, limit=3.0)
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "--bind-pid" in text) == (76, True)


@pytest.mark.parametrize("by", ["--for", "--bind-pid"])
def test_an_end_that_was_planned_is_a_success_for_history_and_metrics(acquirer: Acquirer, by: str) -> None:
    metrics = acquirer.runtime / "metrics"
    metrics.mkdir()
    with subprocess.Popen(["sleep", "60"]) as bound:
        span = "1s" if by == "--for" else "60s"
        path = acquirer.acquire("--bind-pid", str(bound.pid), span=span, env={"LOCKCTL_METRICS_DIR": str(metrics)})
        if by == "--bind-pid":
            bound.kill()
        eventually(acquirer.free, pause=0.05)
        bound.kill()
    code, text = word(acquirer("release", "--handle", path))  # waits until the daemon has ended
    assert code == 76
    (run,) = json.loads(acquirer("history", "deploy", "--json").stdout)
    assert (run["outcome"], run["exit_code"]) == ("exited", 0)
    assert by in run["detail"]
    assert text.endswith(run["detail"])
    samples = (metrics / "lockctl-deploy.prom").read_text()
    assert 'lockctl_last_exit_code{lock="deploy"} 0' in samples
    assert 'lockctl_last_success_timestamp_seconds{lock="deploy"}' in samples


def test_the_end_of_a_daemon_of_an_older_version_is_told_as_before() -> None:
    report = {"outcome": "exited", "exit_code": BOUND_ENDED, "detail": None}
    assert reason(report) == "the process that it was bound to (--bind-pid) had ended"


@pytest.mark.parametrize("python", ["that of the daemon", "another, which has come in its place"])
def test_a_process_that_ended_before_the_daemon_looked_is_not_mistaken_for_another_of_its_number(
    acquirer: Acquirer, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if python != "that of the daemon":
        monkeypatch.setattr(carried, "MAGIC_NUMBER", b"another")
        monkeypatch.setattr(carried, "MODULES", "")  # what there is, it could not execute
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with subprocess.Popen(["sleep", "60"]) as bound:
        descriptor = os.pidfd_open(bound.pid)
        bound.kill()
    task = Task(str(acquirer.runtime / ("0" * 32)), 60.0, descriptor, other.fileno())
    with own, other:
        carried.send(own)
        done = subprocess.run(task.words(), pass_fds=[other.fileno(), descriptor], timeout=LIMIT, check=False)
    os.close(descriptor)
    assert done.returncode == BOUND_ENDED


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that takes no byte more."""
    read_end, write_end = os.pipe()
    size = fcntl.fcntl(write_end, 1032)  # F_GETPIPE_SZ
    assert os.write(write_end, bytes(size)) == size
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("by", ["--for", "--bind-pid"])
def test_it_ends_in_time_although_nobody_takes_the_handle(
    acquirer: Acquirer, full_pipe: tuple[int, int], by: str
) -> None:
    _, write_end = full_pipe
    bound = subprocess.Popen(["sleep", "60"])
    words = ["--for", "1s" if by == "--for" else "60s", "--bind-pid", str(bound.pid)]
    step = acquirer.lockctl.start(
        "acquire", "deploy", *words, env=acquirer.env, stdout=write_end, stderr=subprocess.PIPE
    )
    if by == "--bind-pid":
        # the daemon listens when it tells `acquire` of the grant: before that `acquire` would see the end by itself
        eventually(lambda: any(str(path).endswith(".sock") for path in acquirer.remains()))
        eventually(lambda: acquirer.state() == "held")
        bound.kill()
    bound_ended = step.wait(timeout=LIMIT)
    assert step.stderr is not None
    assert (bound_ended, by in step.stderr.read()) == (75, True)
    assert acquirer.free()
    assert acquirer.remains() == []
    bound.kill()
    bound.wait()


def test_an_acquire_that_cannot_print_obeys_a_signal(acquirer: Acquirer, full_pipe: tuple[int, int]) -> None:
    _, write_end = full_pipe
    step = acquirer.lockctl.start("acquire", "deploy", "--for", "60s", env=acquirer.env, stdout=write_end)
    eventually(lambda: acquirer.state() == "held")
    step.terminate()
    assert step.wait(timeout=LIMIT) == 128 + signal.SIGTERM
    assert acquirer.free()


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-", ">&-"])
def test_closed_standard_descriptors_cost_no_handle(acquirer: Acquirer, closed: str) -> None:
    command = f"{shlex.quote(acquirer.lockctl.command)} acquire deploy --for 60s"
    environment = acquirer.lockctl.environment(acquirer.env)

    def step(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)

    if ">&-" not in closed.split():
        path = acquirer.runtime / "printed"
        assert step(f"{command} {closed} >{path}").returncode == 0
    else:
        assert step(f"{command} {closed}").returncode == 64
        assert acquirer.free()
        path = acquirer.runtime / "handle"
        assert step(f"{command} --handle {path} --bind-pid $$ {closed}; [ $? = 0 ] && exec sleep 0").returncode == 0
        eventually(acquirer.free)
        return
    assert acquirer.state() == "held"
    assert acquirer("release", "--handle", str(path)).returncode == 0


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", ">&- 2>&-"])
def test_closed_standard_descriptors_do_not_fail_a_renewal(acquirer: Acquirer, closed: str) -> None:
    """The handle, or a connection, would be opened with the number of a stream, and be taken for it."""
    path = str(acquirer.runtime / "handle")
    assert acquirer("acquire", "deploy", "--for", "60s", "--handle", path).returncode == 0
    before = read(path)["expires_at"]
    line = f"{shlex.quote(acquirer.lockctl.command)} renew --for 1h --handle {path} {closed}"
    environment = acquirer.lockctl.environment(acquirer.env)
    assert subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False).returncode == 0
    assert read(path)["expires_at"] > before
    assert acquirer("release", "--handle", path).returncode == 0


def test_it_outlives_the_shell_session_and_terminal_of_the_step_and_leaves_no_stream_open(acquirer: Acquirer) -> None:
    """`run` ends when nobody has the pipes any more: a daemon that kept one would hold the step up for ever."""
    path = str(acquirer.runtime / "handle")
    line = f"exec 7>&1; {shlex.quote(acquirer.lockctl.command)} acquire deploy --for 60s --handle {path}"
    environment = acquirer.lockctl.environment(acquirer.env)
    step = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, timeout=10, check=True)
    assert step.stdout == b""
    daemon = read(path)["pid"]
    os.kill(daemon, signal.SIGHUP)
    time.sleep(0.2)
    assert os.getsid(daemon) == daemon
    assert os.readlink(f"/proc/{daemon}/cwd") == "/"
    assert acquirer.state() == "held"
    assert acquirer("release", "--handle", path).returncode == 0


def test_a_revocation_is_told_to_who_renews_or_releases(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    assert acquirer("force-release", "deploy", "--yes", "--reason", "rollback", env={"LOGNAME": "ops"}).returncode == 0
    for verb in ("renew", "release"):
        code, text = word(acquirer(verb, "--handle", path))
        assert code == 76
        assert f"revoked by ops@{os.uname().nodename}: rollback" in text


def test_a_lease_that_was_lost_is_told(
    new_acquirer: Callable[[str], Acquirer], start_server: Callable[..., Any]
) -> None:
    server = start_server(Redis)
    acquirer = new_acquirer(f"{server.url}/0")
    path = acquirer.acquire("--ttl", "2s")
    server.kill()
    daemon = read(path)["pid"]
    eventually(lambda: not alive(daemon), limit=10.0)
    for verb in ("renew", "release"):
        code, text = word(acquirer(verb, "--handle", path))
        assert (code, "its lease was lost" in text) == (76, True)


@pytest.mark.servers("redis_server", "etcd_server")
@pytest.mark.parametrize("served", ["file", "redis", "etcd"])
@pytest.mark.parametrize("successor", ["nobody", "somebody"])
def test_a_loss_that_no_renewal_has_seen_yet_is_told_to_who_releases(
    served: str, successor: str, new_acquirer: Callable[[str], Acquirer], request: pytest.FixtureRequest
) -> None:
    url = ""
    if served != "file":
        url = f"{served}://{request.getfixturevalue(f'{served}_server').address}/?prefix=loss{os.urandom(6).hex()}/"
    acquirer = new_acquirer(url or request.getfixturevalue("lockctl").url)
    path = acquirer.acquire("--ttl", "5m")
    assert acquirer("force-release", "deploy", "--now", "--yes").returncode == 0
    other = acquirer.acquire() if successor == "somebody" else None
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "its lease was lost" in text) == (76, True)
    assert acquirer.state() == ("free" if other is None else "held")
    if other is not None:
        assert acquirer("release", "--handle", other).returncode == 0


def test_a_lock_that_could_not_be_given_back_is_not_called_free(
    new_acquirer: Callable[[str], Acquirer], start_server: Callable[..., Any]
) -> None:
    server = start_server(Redis)
    acquirer = new_acquirer(f"{server.url}/0")
    path = acquirer.acquire("--ttl", "10s")
    server.kill()
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "could not release the lock" in text) == (69, True)


def test_a_lock_that_was_held_until_now_is_not_called_lost_when_there_is_no_report(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    Path(read(path)["socket"]).with_suffix(".end").mkdir()  # no report can be written there
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "its daemon has left no report" in text) == (69, True)
    assert acquirer.free()


@pytest.mark.parametrize("way", ["--handle", "--export"])
def test_a_lock_is_not_called_free_when_a_logout_has_removed_its_socket(acquirer: Acquirer, way: str) -> None:
    done = acquirer("acquire", "deploy", "--for", "60s", way, "-" if way == "--handle" else "sh")
    for entry in acquirer.remains():
        entry.unlink()
    if way == "--handle":
        released = acquirer("release", "--handle", "-", input=done.stdout)
    else:
        handle = shlex.split(done.stdout.splitlines()[-1])[1].partition("=")[2]
        released = acquirer("release", env={"LOCKCTL_HANDLE": handle})
    code, text = word(released)
    assert (code, "still held" in text, acquirer.state()) == (69, True, "held")
    os.kill(int(re.findall(r"kill (\d+)", text)[0]), signal.SIGTERM)
    eventually(acquirer.free)


def test_a_release_without_the_socket_alone_does_not_wait_for_the_end_of_the_time(acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    Path(read(path)["socket"]).unlink()
    for verb in ("renew", "release"):
        code, text = word(acquirer(verb, "--handle", path))
        assert (code, "still held" in text, acquirer.state()) == (69, True, "held")
    os.kill(int(re.findall(r"kill (\d+)", text)[0]), signal.SIGTERM)
    eventually(acquirer.free)


def test_a_daemon_leaves_its_socket_so_that_one_that_is_missing_was_removed(acquirer: Acquirer) -> None:
    """Without it, a release in the moment before the end of the daemon said that it must be killed."""
    path = acquirer.acquire(span="0.1s")
    eventually(acquirer.free)
    assert Path(read(path)["socket"]).is_socket()
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "its time (--for) was over" in text) == (76, True)
    assert acquirer.remains() == []


def test_of_several_who_release_at_a_time_one_does_and_no_other_is_told_of_a_loss(acquirer: Acquirer) -> None:
    for _ in range(3):
        path = acquirer.acquire()
        words = ("release", "--handle", path)
        several = [acquirer.lockctl.start(*words, env=acquirer.env) for _ in range(8)]
        assert sorted(each.wait(timeout=LIMIT) for each in several) == [0, *[75] * 7]
    assert acquirer.remains() == []


@pytest.mark.parametrize("victim", ["keeper", "guard"])
def test_a_killed_process_of_the_daemon_frees_the_lock_and_is_told(victim: str, acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    daemon = read(path)["pid"]
    os.kill(daemon if victim == "keeper" else guard_of(daemon), signal.SIGKILL)
    eventually(acquirer.free, limit=5.0)
    code, text = word(acquirer("release", "--handle", path))
    assert (code, "deploy is not held any more: its daemon was" in text) == (76, True)
    assert acquirer.remains() == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_acquire_that_is_ended_while_it_waits_holds_nothing(signum: int, acquirer: Acquirer) -> None:
    path = acquirer.acquire()
    waiter = acquirer.lockctl.start("acquire", "deploy", "--for", "60s", "--wait", "forever", env=acquirer.env)

    def waiters() -> int:
        return len(json.loads(acquirer("inspect", "deploy", "--json").stdout)["waiters"] or ())

    eventually(lambda: waiters() == 1, pause=0.05)
    waiter.send_signal(signum)
    assert waiter.wait(timeout=5) == (-9 if signum == signal.SIGKILL else 128 + signum)
    eventually(lambda: waiters() == 0, limit=3.0, pause=0.05)
    assert acquirer("release", "--handle", path).returncode == 0
    time.sleep(0.2)
    assert acquirer.free()


# a signal from another process as soon as the file with the handle has its name
SIGNALLED = """
import os, sys
me = os.getpid()
def hook(event, arguments):
    if event == "os.rename" and os.getpid() == me:
        sender = os.fork()
        if sender == 0:
            os.kill(me, 15)
            os._exit(0)
        os.waitpid(sender, 0)
sys.addaudithook(hook)
"""


def test_an_acquire_that_is_ended_after_the_handle_was_written_holds_nothing(
    acquirer: Acquirer, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SIGNALLED)
    words = ("acquire", "deploy", "--for", "60s", "--handle", str(tmp_path / "handle"))
    assert acquirer(*words, env={"PYTHONPATH": str(tmp_path)}).returncode == 128 + signal.SIGTERM
    assert acquirer.free()


def test_an_acquire_whose_handle_nobody_can_read_holds_nothing(acquirer: Acquirer) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = acquirer("acquire", "deploy", "--for", "60s", stdout=write_end)
    os.close(write_end)
    assert (done.returncode, "stdout" in done.stderr) == (78, True)
    assert acquirer.free()
    assert acquirer.remains() == []


def test_what_ended_daemons_left_goes_away_after_a_week(acquirer: Acquirer) -> None:
    daemon = read(acquirer.acquire())["pid"]
    os.kill(daemon, signal.SIGKILL)
    eventually(acquirer.free)
    left = acquirer.remains()
    eventually(lambda: not alive(daemon))
    for entry in left:
        os.utime(entry, (0, 0), follow_symlinks=False)
    acquirer.acquire()
    assert left
    assert not set(left) & set(acquirer.remains())


def test_an_acquire_that_is_killed_while_it_hands_out_holds_nothing(
    acquirer: Acquirer, full_pipe: tuple[int, int]
) -> None:
    """Its stdout is a pipe that is full: the lock is taken, the handle is not out."""
    _, write_end = full_pipe
    killed = acquirer.lockctl.start("acquire", "deploy", "--for", "60s", env=acquirer.env, stdout=write_end)
    eventually(lambda: acquirer.state() == "held")
    time.sleep(0.2)
    killed.kill()
    eventually(acquirer.free, limit=3.0)
