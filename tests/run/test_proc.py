"""A /proc that is missing, of another pid namespace, covered in mid-run, or hides processes (hidepid of proc(5))."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.jobs import LIMIT, alive

COVER = "mount -t tmpfs none /proc"
# a descendant that is found neither by group nor session, and that TERM does not end; it says its number in .pid
RUNAWAY = (
    """(setsid sh -c 'trap "" TERM; echo $$ >"$0/.new"; mv "$0/.new" "$0/.pid"; """
    """while :; do sleep 0.05; done' "$0" >/dev/null 2>&1 &)"""
)
AWAIT_RUNAWAY = 'until [ -e "$0/.pid" ]; do sleep 0.02; done'
# mounts are made with all rights, then given up for good: what may not be read is not readable any more
WITHOUT_RIGHTS = 'mount -t proc -o "$0,gid=65534" proc /proc || exit 9; exec setpriv --bounding-set -all "$@"'
ENDS = pytest.mark.parametrize(("end", "status"), [("kill -9 $PPID", 137), (":", 124)], ids=["keeper", "guard"])


@pytest.fixture
def run(lockctl, unshare):
    """Run words in new namespaces; no traceback may be said."""

    def start(flags, *words, env=None):
        done = subprocess.run(
            [*unshare(flags), *words],
            env=lockctl.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr
        return done

    return start


@pytest.mark.parametrize("verb", ["run", "acquire"])
@pytest.mark.parametrize("where", ["missing", "another namespace"])
def test_what_could_not_be_watched_is_refused_before_it_runs(lockctl, locks, run, verb, where):
    words = ["acquire", "a", "--for", "20s"]
    if verb == "run":
        words = ["run", "-l", "a", "--", "touch", str(locks / ".ran")]
    if where == "missing":
        done = run("-m", "sh", "-c", f'{COVER}; exec "$@"', "sh", lockctl.command, *words)
    else:  # where it would take other processes for its children
        done = run("-pf", lockctl.command, *words)
    assert "/proc is missing, or shows another pid namespace" in done.stderr
    assert_nothing_ran(done, lockctl, locks)


@pytest.mark.parametrize("verb", ["run", "acquire", "fence"])
@pytest.mark.parametrize("before", ["", "sh -c : & wait; "], ids=["nobody there", "its first process has ended"])
def test_what_would_start_in_another_namespace_is_refused_before_it_runs(lockctl, locks, run, verb, before):
    """As after `unshare -p` without `-f`: the guard would take processes of the host for its children."""
    words = {
        "run": ["run", "-l", "a", "--", "touch", str(locks / ".ran")],
        "acquire": ["acquire", "a", "--for", "20s"],
        "fence": ["fence", "exec", "--token", "1", "--domain", "d", str(locks), "--", "touch", str(locks / ".ran")],
    }
    done = run("-p", "sh", "-c", f'{before}exec "$@"', "sh", lockctl.command, *words[verb])
    assert "gets into another pid namespace than /proc shows" in done.stderr
    assert_nothing_ran(done, lockctl, locks)


def assert_nothing_ran(done, lockctl, locks):
    assert (done.returncode, done.stdout) == (78, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (locks / ".ran").exists()
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_release_without_proc_says_so_and_not_that_the_lock_is_lost(acquirer, run):
    handle = acquirer.acquire()
    words = [acquirer.lockctl.command, "release", "--handle", handle]
    done = run("-m", "sh", "-c", f'{COVER}; exec "$@"', "sh", *words, env=acquirer.env)
    assert done.returncode == 78, done.stderr
    assert "/proc is missing" in done.stderr
    assert acquirer.state() == "held"


@pytest.mark.parametrize("words", [("acquire", "a", "--for", "20s"), ("list", "-b", "redis://h?password_command=true")])
def test_a_missing_dev_null_is_said_in_one_line(run, lockctl, words):
    done = run("-m", "sh", "-c", 'mount -t tmpfs none /dev; exec "$@"', "sh", lockctl.command, *words)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.count("\n") == 1
    assert "/dev/null: No such file" in done.stderr


@ENDS
def test_a_job_that_covers_proc_is_ended_with_all_its_processes(lockctl, locks, run, end, status):
    job = f"{COVER}; {RUNAWAY}; {AWAIT_RUNAWAY}; {end}; exec sleep 60"
    words = ["run", "-l", "a", "-k", "200ms", "--max-runtime", "1s", "--", "sh", "-c", job, str(locks)]
    done = run("-m", lockctl.command, *words)
    assert done.returncode == status, done.stderr
    assert not alive(int((locks / ".pid").read_text()))


@ENDS
@pytest.mark.parametrize("hidden", ["hidepid=1", "hidepid=2"])
def test_processes_that_proc_hides_are_ended_with_all_below_them(lockctl, locks, run, need_tool, hidden, end, status):
    need_tool("setpriv")
    private = locks / ".sh"
    shutil.copy(Path("/bin/sh").resolve(), private)
    private.chmod(0o111)  # to be executed and not to be read: its processes are shown to nobody without rights
    (locks / ".runaway").write_text(f"{RUNAWAY}; wait; sleep 60")
    below = f'"$0/.sh" -c "$(cat "$0/.runaway")" "$0" & {AWAIT_RUNAWAY}'
    job = f"{below}; ls /proc/$!/task >/dev/null 2>&1 && echo shown; {end}; exec sleep 60"
    words = [lockctl.command, "run", "-l", "a", "-k", "200ms", "--max-runtime", "1s", "--", "sh", "-c", job, str(locks)]
    # not as the first process of the namespace, with which every other ends
    look = f'"$@"; echo "status $?"; kill -0 "$(cat "{locks}/.pid")" 2>/dev/null && echo left'
    done = run("-mpf", "sh", "-c", look, "sh", "sh", "-c", WITHOUT_RIGHTS, hidden, *words)
    assert done.stdout == f"status {status}\n", done.stderr
