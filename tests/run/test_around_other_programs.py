"""`run` inside and around other programs: nested, under timeout(1), as PID 1, with closed streams."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually


def test_nested_runs_hold_both_locks_and_pass_the_status(lockctl):
    inner = [lockctl.command, "run", "-b", lockctl.url, "-l", "b", "--", "sh", "-c"]
    line = f"{lockctl.command} list -b {lockctl.url}; echo inner=$LOCKCTL_LOCK; exit 5"
    done = lockctl("run", "-l", "a", "--", *inner, line)
    assert done.returncode == 5
    rows = done.stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:3]] == [["a", "held"], ["b", "held"]]
    assert rows[3] == "inner=b"
    assert lockctl("run", "-l", "b", "--", "true").returncode == 0


def test_a_nested_run_on_the_same_lock_is_refused_and_names_the_outer_one(lockctl):
    inner = [lockctl.command, "run", "-b", lockctl.url, "-l", "a", "--", "echo", "ran"]
    done = lockctl("run", "-l", "a", "--", *inner)
    assert (done.returncode, done.stdout) == (75, "")
    assert "lockctl: a: held by " in done.stderr
    assert done.stderr.rstrip().endswith(f"see: lockctl inspect -b {lockctl.url} a")


def test_a_nested_run_without_a_backend_is_refused_where_its_files_would_be_elsewhere(lockctl, locks):
    """The scheme in $LOCKCTL_BACKEND is what the outer run tells its command, not a place."""
    state = {"XDG_STATE_HOME": str(locks / "state"), "HOME": str(locks)}
    done = lockctl("run", "-l", "a", "--", lockctl.command, "run", "-l", "a", "--", "echo", "inner", env=state)
    assert (done.returncode, done.stdout) == (78, "")
    assert "under a lock in another directory" in done.stderr


def test_a_nested_run_takes_the_longest_lease_for_what_the_outer_one_tells_its_command(lockctl):
    inner = f"{lockctl.command} run -b {lockctl.url} -l b -- printenv LOCKCTL_TTL"
    done = lockctl("run", "-l", "a", "--ttl", "1234567s", "--", "sh", "-c", f"printenv LOCKCTL_TTL; {inner}")
    assert (done.stdout, done.stderr) == ("1234567\n30\n", "")


@pytest.mark.parametrize("limit", range(6, 16))
def test_a_run_with_too_few_descriptors_leaves_no_lock(lockctl, locks, redis_server, limit):
    url = f"redis://{redis_server.address}/?prefix={os.urandom(4).hex()}:"
    for more in ((), ("--fence", str(locks / "data"))):
        line = f'ulimit -n {limit}; exec "$@"'
        within = ["sh", "-c", line, "sh"]
        done = lockctl("run", "-b", url, "-l", "few", *more, "--", "/bin/true", within=within)
        assert done.returncode != 70
        assert json.loads(lockctl("inspect", "-b", url, "few", "--json").stdout)["state"] == "free"


@pytest.fixture
def in_flight():
    """More descriptors of this user on their way between processes than a process that may have 40 may send."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(one, [b"."], [0] * 80)
    yield
    one.close()
    other.close()


@pytest.mark.usefixtures("in_flight")
def test_a_run_that_may_not_hand_over_its_lock_ends_and_leaves_no_lock(lockctl, locks, after):
    # without CAP_SYS_ADMIN and CAP_SYS_RESOURCE the limit is root's, too
    launcher = after(
        "for capability in (21, 24):\n    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"
    )
    done = launcher(lockctl.command, "run", "-l", "a", "--", "touch", str(locks / ".ran"))
    said = "lockctl: a: cannot start: Too many references: cannot splice: raise the limit (ulimit -a)"
    assert (done.returncode, done.stderr.partition(" or ")[0]) == (126, said)
    assert not (locks / ".ran").exists()
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_timeout_around_run_ends_the_job_and_frees_the_lock(lockctl, locks):
    timeout = shutil.which("timeout")
    assert timeout
    job = f"echo $$ > {locks}/.pid; exec sleep 60"
    words = ("run", "-l", "a", "--", "sh", "-c", job)
    done = lockctl(*words, within=[timeout, "0.7"], start_new_session=True)
    assert done.returncode == 124
    pid = int((locks / ".pid").read_text())
    eventually(lambda: not alive(pid))
    assert lockctl("run", "-l", "a", "--wait", "5s", "--", "true").returncode == 0


def test_as_the_first_process_of_a_container_it_passes_the_status(lockctl, unshare):
    job = "cut -d' ' -f1,4 /proc/self/stat; exit 7"
    done = lockctl("run", "-l", "a", "--", "sh", "-c", job, within=[*unshare("-pf"), "--mount-proc"])
    assert (done.returncode, done.stderr) == (7, "")
    assert len(done.stdout.split()) == 2


def test_as_the_first_process_of_a_container_it_reaps_orphans_and_stops_them(lockctl, locks, unshare):
    job = f"(setsid sh -c 'trap \"\" TERM; touch {locks}/.up; while :; do sleep 0.05; done' &) >/dev/null 2>&1"
    job += f"; while ! [ -e {locks}/.up ]; do sleep 0.02; done; exit 4"
    words = [lockctl.command, "run", "-k", "300ms", "-l", "a", "--", "sh", "-c", job]
    done = subprocess.run(
        [*unshare("-pf"), "--mount-proc", *words],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 4
    assert "that the command had left behind" in done.stderr


def test_a_signal_to_the_first_process_of_a_container_reaches_the_command(lockctl, locks, unshare):
    job = f'trap "exit 21" TERM; touch {locks}/.up; while :; do sleep 0.05; done'
    process = subprocess.Popen(
        [*unshare("-pf"), "--kill-child", "--mount-proc", lockctl.command, "run", "-l", "a", "--", "sh", "-c", job],
        env=lockctl.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually((locks / ".up").exists)
        (keeper,) = tree.children(process.pid)
        tree.send(keeper, signal.SIGTERM)
        assert process.wait(timeout=LIMIT) == 21
    finally:
        process.kill()
        process.wait(timeout=LIMIT)


@pytest.mark.parametrize("line", ["exit 6", "(sleep 0.2; exit 1) & wait $!; exit 6"])
def test_it_works_when_the_parent_ignores_sigchld(lockctl, after, line):
    launcher = after("signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    done = launcher(lockctl.command, "run", "-l", "a", "--", "bash" if "wait" in line else "sh", "-c", line)
    assert done.returncode == 6


def test_doctor_sees_what_became_of_its_children_when_the_parent_ignores_sigchld(lockctl, after):
    launcher = after("signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    done = launcher(lockctl.command, "doctor")
    assert "an orphan was killed" in done.stdout, done.stderr


def test_a_child_of_the_parent_that_became_lockctl_is_left_alone(lockctl, after, locks):
    """A shell's `sleep 60 & exec lockctl run ...`: the sleep is not of the job."""
    launcher = after("")
    line = f"sleep 60 & echo $! > {locks}/.sleep; exec {lockctl.command} run -l a -- true"
    done = launcher("sh", "-c", line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = int((locks / ".sleep").read_text())
    assert done.returncode == 0
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_guard_that_is_killed_at_once_leaves_the_job_to_the_keeper_and_strangers_alone(lockctl, after, locks):
    """The job's guard is killed by the command itself, before anything else can happen."""
    launcher = after("")
    job = f"setsid sleep 60 >/dev/null 2>&1 & echo $! > {locks}/.daemon; kill -9 $PPID; sleep 60"
    line = f"sleep 60 & echo $! > {locks}/.sleep; exec {lockctl.command} run -l a -- sh -c '{job}'"
    done = launcher("sh", "-c", line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stranger, daemon = (int((locks / name).read_text()) for name in (".sleep", ".daemon"))
    assert done.returncode == 137
    assert not alive(daemon)
    assert alive(stranger)
    os.kill(stranger, signal.SIGKILL)


def test_an_orphan_of_a_stranger_is_left_alone_when_the_guard_is_killed(lockctl, after, locks):
    """A daemon that a shell has begun to start before it became lockctl is not of the job."""
    launcher = after("")
    go, stranger, orphan = (locks / name for name in (".go", ".stranger", ".orphan"))
    starts = f"while ! test -e {go}; do sleep 0.02; done; sleep 60 & echo $! > {orphan}"
    job = f'trap "kill -9 $PPID" USR1; : > {go}; while :; do sleep 0.05; done'
    line = f"({starts}) & echo $! > {stranger}; exec {lockctl.command} run -l a -- sh -c '{job}'"
    keeper = launcher.start("sh", "-c", line)
    eventually(lambda: all(file.exists() and file.read_text().strip() for file in (stranger, orphan)))
    first, second = int(stranger.read_text()), int(orphan.read_text())
    eventually(lambda: not Path(f"/proc/{first}").exists())
    tree.send(keeper.pid, signal.SIGUSR1)  # behind the end of the stranger
    assert keeper.wait(timeout=LIMIT) == 137
    assert alive(second)
    os.kill(second, signal.SIGKILL)


@pytest.fixture
def closed_pipe():
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_a_reader_that_went_away_is_no_bug_without_dev_null(lockctl, closed_pipe, unshare):
    words = [*unshare("-m"), "sh", "-c", 'mount -t tmpfs none /dev; exec "$@"', "sh", lockctl.command, "config", "show"]
    done = subprocess.run(
        words, env=lockctl.environment(), stdout=closed_pipe, stderr=subprocess.PIPE, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("variable", [{"PYTHONWARNINGS": "error"}, {"PYTHONDEVMODE": "1"}])
def test_warnings_that_somebody_asked_python_for_are_the_commands_affair(lockctl, redis_server, variable):
    for words in (["run", "-l", "warned", "--", "printenv", *variable], ["history", "warned"], ["list", "--all"]):
        done = lockctl(*words[:1], "-b", redis_server.url, *words[1:], env=variable)
        assert (done.returncode, [line for line in done.stderr.splitlines() if "arning" in line]) == (0, [])


def test_stdout_that_nobody_reads_is_the_commands_affair(lockctl, closed_pipe):
    assert lockctl("run", "-l", "a", "--", "true", stdout=closed_pipe).returncode == 0
    done = lockctl("run", "-l", "a", "--", "sh", "-c", "echo x; exit 3", stdout=closed_pipe)
    assert done.returncode in (3, 128 + signal.SIGPIPE)
    assert "Traceback" not in done.stderr


def test_stderr_that_nobody_reads_changes_no_status(lockctl, closed_pipe):
    lockctl.start_holding("a")
    assert lockctl("run", "-l", "a", "--", "true", stderr=closed_pipe).returncode == 75
    assert lockctl("run", "-l", "b", "-v", "--", "sh", "-c", "exit 3", stderr=closed_pipe).returncode == 3


def test_a_reader_of_list_that_went_away_causes_no_traceback(lockctl, closed_pipe):
    lockctl.start_holding("a")
    for verb in (["list"], ["list", "--json"], ["inspect", "a"], ["inspect", "a", "--json"]):
        done = lockctl(*verb, stdout=closed_pipe)
        assert done.stderr in ("", f"lockctl: 1 lock in {lockctl.url}\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_closed_standard_streams_stay_closed_and_the_lock_is_never_written_to(lockctl, after, locks, closed):
    launcher = after("".join(f"os.close({number})\n" for number in closed))
    look = [sys.executable, "-ISB", str(Path(__file__).parent / "descriptors.py")]
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    launcher(*look, str(locks / ".direct"), **nowhere)
    launcher(lockctl.command, "run", "-v", "-l", "a", "--", *look, str(locks / ".ours"), **nowhere)
    direct, ours = ((locks / name).read_text().splitlines() for name in (".direct", ".ours"))
    assert [line for line in ours if int(line.split()[0]) < 512] == direct
    assert len(ours) == len(direct) + 1
    line = "printf 'no%s' ise; printf 'no%s' ise >&2; exit 8"
    assert launcher(lockctl.command, "run", "-v", "-l", "a", "--", "sh", "-c", line).returncode == 8
    record = (locks / "a").read_bytes()
    assert record.startswith(b"lockctl1 ")
    assert b"noise" not in record


@pytest.mark.parametrize("entry", ["", ".", "../job"])
def test_modules_in_the_current_directory_are_not_those_of_lockctl(lockctl, tmp_path, entry):
    """As `PYTHONPATH=$PYTHONPATH:/modules` has it where that was not set."""
    root = Path(__file__).parents[2]
    program, job = tmp_path / "lockctl", tmp_path / "job"
    text = (root / "lockctl" / "script.py").read_text()
    program.write_text(text.replace("#!python\n", f"#!{sys.executable}\n", 1))
    program.chmod(0o755)
    job.mkdir()
    for name in ("select", "re", "fcntl", "_json", "click"):
        (job / f"{name}.py").write_text("raise SystemExit('executed')\n")
    for words in (["run", "-l", "a", "--", "printenv", "PYTHONPATH"], ["list"]):
        environment = {**lockctl.environment(), "PYTHONPATH": f"{entry}:{root}"}
        done = subprocess.run(
            [program, *words], env=environment, cwd=job, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert (done.returncode, "executed" in done.stderr) == (0, False), done.stderr
        assert words == ["list"] or done.stdout == f"{entry}:{root}\n"
