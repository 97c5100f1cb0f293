"""The number that `run` ends with, and that the lock is free again whatever it was."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.jobs import LIMIT, eventually

NOT_DEADLY = {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGSTOP,
}
AT_ONCE = 4


def statuses(lockctl, lines):
    """The exit status of `run` for each line of shell, in their order."""

    def run(job):
        number, line = job
        return lockctl("run", "-l", f"job-{number}", "--", "sh", "-c", line).returncode

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, enumerate(lines)))


def test_the_exit_status_of_the_command_is_ours(lockctl):
    some = [
        *range(3),
        *range(63, 80),
        *range(123, 131),
        137,
        143,
        254,
        255,
    ]  # those of lockctl and of shells among them
    assert statuses(lockctl, [f"exit {number}" for number in some]) == some


def test_a_command_that_a_signal_ends_gives_128_plus_its_number(lockctl):
    real_time = set(range(signal.SIGRTMIN + 1, signal.SIGRTMAX))  # all of one kind
    deadly = sorted(signal.valid_signals() - NOT_DEADLY - real_time)
    found = statuses(lockctl, [f"ulimit -c 0; kill -{int(number)} $$" for number in deadly])
    assert found == [128 + number for number in deadly]


@pytest.fixture
def free(lockctl):
    """Asserts that a lock can be taken."""

    def check(name):
        assert lockctl("run", "-l", name, "--", "true").returncode == 0

    return check


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_command_that_is_not_found_gives_127_and_frees_the_lock(lockctl, locks, free):
    missing = ["no-such-program-anywhere", str(locks / "missing"), str(locks / "missing" / "below"), ""]
    for word in missing:
        done = lockctl("run", "-l", "a", "--", word)
        assert done.returncode == 127, word
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("lockctl: a: cannot run ")
        free("a")


def test_a_line_of_shell_in_the_place_of_a_command_gets_the_option_for_it(lockctl):
    said = [lockctl("run", "-l", "a", "--", *words).stderr for words in (["echo hello world"], ["no-such-command"])]
    cannot = "lockctl: a: cannot run '{}': No such file or directory{}\n"
    assert said[0] == cannot.format("echo hello world", "; to run a line of shell, give -c (--shell) before it")
    assert "--shell" not in said[1]


def test_a_script_whose_interpreter_is_missing_gives_127(lockctl, locks, free):
    hint = ": not the file, but the interpreter that it names: its first line (#!) may end in CR LF\n"
    for text in ("#!/no/such/shell\n", "#!/bin/sh\r\nexit 0\r\n"):
        done = lockctl("run", "-l", "a", "--", script(locks / ".job", text))
        assert (done.returncode, done.stderr.endswith(f": No such file or directory{hint}")) == (127, True)
        words = ("fence", "exec", "--token", "3", "--domain", "d", str(locks / ".data"), "--", str(locks / ".job"))
        assert lockctl(*words).stderr == done.stderr.replace("lockctl: a: ", "lockctl: ")
    free("a")


def test_a_component_of_the_path_that_is_a_file_gives_126(lockctl, locks, free):
    """As timeout(1), env(1) and bash have it: 127 is for what is not there."""
    done = lockctl("run", "-l", "a", "--", script(locks / ".file", "") + "/below")
    assert (done.returncode, "Not a directory" in done.stderr) == (126, True)
    free("a")


def test_a_file_that_may_not_be_executed_gives_126_and_frees_the_lock(lockctl, locks, free):
    done = lockctl("run", "-l", "a", "--", script(locks / ".job", "#!/bin/sh\n", 0o644))
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.endswith("Permission denied\n")
    free("a")


def test_a_directory_as_command_gives_126(lockctl, locks, free):
    assert lockctl("run", "-l", "a", "--", str(locks)).returncode == 126
    free("a")


def test_a_script_without_a_first_line_runs_with_sh(lockctl, locks):
    job = script(locks / ".job", 'echo "$1"; exit 3\n')
    done = lockctl("run", "-l", "a", "--", job, "word with blanks")
    assert (done.returncode, done.stdout, done.stderr) == (3, "word with blanks\n", "")


def test_the_search_goes_on_after_a_file_that_may_not_be_executed(lockctl, locks):
    first, second = locks / ".first", locks / ".second"
    first.mkdir()
    second.mkdir()
    script(first / "job", "#!/bin/sh\nexit 1\n", 0o644)
    path = {"PATH": f"{first}:{second}:{os.environ['PATH']}"}
    assert lockctl("run", "-l", "a", "--", "job", env=path).returncode == 126
    script(second / "job", "#!/bin/sh\nexit 4\n")
    assert lockctl("run", "-l", "a", "--", "job", env=path).returncode == 4


def test_a_second_run_is_refused_with_75_and_names_the_holder(lockctl):
    holder = lockctl.start_holding("a", "--", "sleep", "61")
    done = lockctl("run", "-l", "a", "--", "touch", str(lockctl.directory / ".ran"), env={"LOGNAME": "ops"})
    assert (done.returncode, done.stdout) == (75, "")
    assert not (lockctl.directory / ".ran").exists()
    assert done.stderr.count("\n") == 1
    host = re.escape(os.uname().nodename)
    assert re.match(
        rf"lockctl: a: held by {host} pid {holder.pid} \(\S+\)"
        r" since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \(\d+s\): sh -c .* sleep 61; see: lockctl inspect a\n$",
        done.stderr,
    )


def test_the_command_to_look_further_looks_at_the_same_lock(lockctl):
    path = lockctl.directory / ".a config.toml"
    path.write_text(f'[backends.near]\nurl = "{lockctl.url}"\n')
    holder = lockctl.start_holding("a")
    elsewhere = {"LOCKCTL_BACKEND": f"{lockctl.url}/.elsewhere"}
    for words in (("-b", lockctl.url), ("--config", str(path), "-b", "near")):
        for verb in (("run", "-l", "a", *words, "--", "true"), ("acquire", "a", "--for", "5s", *words)):
            done = lockctl(*verb, env=elsewhere)
            assert done.returncode == 75
            _, *look = shlex.split(done.stderr.partition("see: ")[2])
            assert f"pid {holder.pid}" in lockctl(*look, env=elsewhere).stdout


def test_the_status_of_a_refusal_can_be_chosen(lockctl):
    lockctl.start_holding("a")
    for words, status in ((("-E", "0"), 0), (("-E", "33"), 33), (("--conflict-exit-code=1",), 1), (("-E255",), 255)):
        assert lockctl("run", "-l", "a", *words, "--", "true").returncode == status


def test_skip_ok_says_nothing_and_is_a_success(lockctl):
    lockctl.start_holding("a")
    done = lockctl("run", "-l", "a", "--skip-ok", "--", "false")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert lockctl("run", "-l", "b", "--skip-ok", "--", "false").returncode == 1


def test_a_good_run_writes_nothing_of_its_own(lockctl):
    done = lockctl("run", "-l", "a", "--", "echo", "data")
    assert (done.returncode, done.stdout, done.stderr) == (0, "data\n", "")


def test_max_runtime_stops_the_command_with_124(lockctl, free):
    begin = time.monotonic()
    done = lockctl("run", "-l", "a", "--max-runtime", "200ms", "--", "sleep", "60")
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr == "lockctl: a: --max-runtime 200ms was reached, the command was stopped after 0s\n"
    assert 0.2 <= time.monotonic() - begin < 3
    free("a")


def test_a_max_runtime_of_zero_is_none_as_with_timeout_and_ends_one_that_is_configured(lockctl):
    done = lockctl("run", "-l", "a", "--max-runtime", "0", "--", "sleep", "0.5", env={"LOCKCTL_MAX_RUNTIME": "100ms"})
    assert (done.returncode, done.stderr) == (0, "")


def test_max_runtime_kills_a_command_that_ignores_the_first_signal(lockctl, locks, free):
    job = f'trap "" TERM; echo $$ > {locks}/.pid; while :; do sleep 0.05; done'
    words = ("--max-runtime", "200ms", "--kill-after", "300ms", "--", "sh", "-c", job)
    begin = time.monotonic()
    assert lockctl("run", "-l", "a", *words).returncode == 124
    assert 0.5 <= time.monotonic() - begin < 4
    assert not os.path.exists(f"/proc/{(locks / '.pid').read_text().strip()}")
    free("a")


def test_max_runtime_begins_with_the_signal_that_was_chosen(lockctl, locks):
    job = f'trap "echo usr1 > {locks}/.got; exit 0" USR1; while :; do sleep 0.05; done'
    done = lockctl("run", "-l", "a", "--max-runtime", "300ms", "--signal", "USR1", "--", "sh", "-c", job)
    assert done.returncode == 124
    assert (locks / ".got").read_text() == "usr1\n"


def test_the_lock_is_free_the_moment_that_run_has_ended(lockctl):
    for _ in range(5):
        assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_waiting_run_gets_the_lock_when_the_holder_ends(lockctl):
    holder = lockctl.start_holding("a", "--", "sleep", "0.5")
    done = lockctl("run", "-l", "a", "--wait", "forever", "--", "sh", "-c", "exit 9")
    assert done.returncode == 9
    eventually(lambda: holder.poll() is not None)
    assert holder.returncode == 0


# what the command leaves behind stops the guard as soon as the guard knows that the command has ended
STOPS_THE_GUARD = """
guard=$PPID
(trap '' TERM; : >"$0/.up"; while kill -0 $$ 2>/dev/null; do sleep 0.01; done; kill -STOP $guard; exec sleep 60) &
exec sleep 60
"""


@pytest.mark.parametrize(
    ("options", "end", "status", "said"),
    [
        (["--on-lost", "term"], lambda lockctl: (lockctl.directory / "a").unlink(), 76, "the lease was lost"),
        ([], lambda lockctl: lockctl.start("force-release", "a", "--yes"), 76, "the lock was revoked"),
        (["--max-runtime", "300ms"], lambda _: None, 124, "--max-runtime 300ms was reached"),
    ],
    ids=["lost", "revoked", "timed out"],
)
def test_the_cause_counts_also_when_the_guard_is_stopped_before_its_last_kill(
    lockctl, locks, options, end, status, said
):
    words = ["-t", "3s", "-k", "1s", *options, "--", "sh", "-c", STOPS_THE_GUARD, str(locks)]
    holder = lockctl.start("run", "-l", "a", *words, stderr=subprocess.PIPE)
    eventually((locks / ".up").exists)
    end(lockctl)
    _, stderr = holder.communicate(timeout=LIMIT)
    assert holder.returncode == status, stderr
    assert said in stderr
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


# what the command leaves behind, and is waited for, ends or stops the guard when the command has ended
MEETS_THE_GUARD = """
guard=$PPID
(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; sleep 0.3; kill -$1 $guard; exec sleep 60) &
"""


@pytest.mark.parametrize("how", ["KILL", "STOP"])
def test_a_run_is_lost_when_what_it_waits_for_is_killed_and_no_success(lockctl, how):
    words = ["--once-per", "80000h", "--leftover", "wait", "-t", "3s", "-k", "1s"]
    done = lockctl("run", "-l", "a", *words, "--", "sh", "-c", MEETS_THE_GUARD, "sh", how)
    assert done.returncode == 76, done.stderr
    again = lockctl("run", "-l", "a", *words, "--", "sh", "-c", "exit 9")
    assert again.returncode == 9, again.stderr
