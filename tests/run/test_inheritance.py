"""What the command gets: the same as without lockctl, and lockctl's own variables."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import LIMIT

DESCRIPTORS = [sys.executable, "-ISB", str(Path(__file__).parent / "descriptors.py")]
OURS = {
    "LOCKCTL_LOCK",
    "LOCKCTL_TOKEN",
    "LOCKCTL_FENCING",
    "LOCKCTL_TOKEN_DOMAIN",
    "LOCKCTL_OWNER",
    "LOCKCTL_BACKEND",
    "LOCKCTL_TTL",
}
PRESETS = {
    "nothing": "",
    "hangup ignored": "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
    "interrupt and quit ignored": "for s in (2, 3): signal.signal(s, signal.SIG_IGN)",
    "children ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "job control ignored": "for s in (20, 21, 22): signal.signal(s, signal.SIG_IGN)",
    "user and real-time signals ignored": "for s in (10, 12, 34, 64): signal.signal(s, signal.SIG_IGN)",
    "some blocked": "signal.pthread_sigmask(signal.SIG_SETMASK, [1, 10, 15, 17, 20, 40])",
    "all blocked": "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
    "ignored and blocked": "signal.signal(15, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_SETMASK, [15, 10])",
}


def both(lockctl, launcher, *command, **options):
    """What *command* prints directly, and what it prints under a lock."""
    direct = launcher(*command, **options)
    under = launcher(lockctl.command, "run", "-l", "a", "--", *command, **options)
    assert (under.returncode, under.stderr) == (direct.returncode, direct.stderr)
    return direct.stdout, under.stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_signal_dispositions_and_mask_are_those_that_lockctl_was_started_with(lockctl, after, preset):
    command = ["grep", "-E", "^(Sig|Shd)(Blk|Ign|Cgt|Pnd)", "/proc/self/status"]
    direct, under = both(lockctl, after(PRESETS[preset]), *command)
    assert direct
    assert under == direct


def test_of_signals_that_the_c_library_keeps_for_itself_nothing_is_said(lockctl, after):
    """They are blocked by who starts programs without that library."""
    call = 14 if platform.machine() == "x86_64" else 135  # rt_sigprocmask
    launcher = after(f"ctypes.CDLL(None).syscall({call}, 0, ctypes.byref(ctypes.c_uint64(3 << 31)), None, 8)")
    blocked = launcher("grep", "SigBlk", "/proc/self/status")
    assert int(blocked.stdout.split()[1], 16) == 3 << 31
    done = launcher(lockctl.command, "run", "-l", "a", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def test_ignored_sigpipe_and_sigxfsz_become_default(lockctl, after):
    """The documented limit: Python itself ignores them before anything could see what was inherited."""
    launcher = after("for s in (13, 25): signal.signal(s, signal.SIG_IGN)")
    done = launcher(lockctl.command, "run", "-l", "a", "--", "grep", "SigIgn", "/proc/self/status")
    assert int(done.stdout.split()[1], 16) & (1 << 12 | 1 << 24) == 0


def test_what_a_process_inherits_besides_is_the_same(lockctl, after):
    launcher = after(
        "os.umask(0o027); os.nice(3); os.chdir('/usr'); resource.setrlimit(resource.RLIMIT_NOFILE, (700, 701))"
    )
    line = (
        "pwd; umask; nice; ulimit -a; cat /proc/self/oom_score_adj /proc/self/timerslack_ns;"
        " grep -E '^(Umask|Cap|NoNewPrivs|Seccomp:|Cpus_allowed|Groups|Uid|Gid)' /proc/self/status; cut -d' ' -f6 /proc/$$/stat"
    )
    direct, under = both(lockctl, launcher, "sh", "-c", line)
    assert "/usr\n0027\n" in direct
    assert under == direct


def environment_of(words, env):
    done = subprocess.run([*words, "env", "-0"], env=env, capture_output=True, timeout=LIMIT, check=True)
    return dict(pair.split(b"=", 1) for pair in done.stdout.split(b"\0") if pair)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"LANG": "C"},
        {"LC_ALL": "POSIX"},
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_CTYPE": "C"},
        {"PYTHONUTF8": "1", "PYTHONPATH": "/nowhere"},
        {b"BYTES": b"\xff\xfe", "LINES": "two\nlines", "EMPTY": "", "EQUALS": "a=b"},
    ],
)
def test_the_environment_is_the_same_but_for_our_variables(lockctl, extra):
    env = {"PATH": os.environ["PATH"], "LOCKCTL_BACKEND": lockctl.url, **extra}
    direct = environment_of([], env)
    under = environment_of([lockctl.command, "run", "-l", "a", "--"], env)
    names = {name.decode() for name in under if name.startswith(b"LOCKCTL_")}
    assert names == OURS
    del direct[b"LOCKCTL_BACKEND"]
    assert {name: content for name, content in under.items() if not name.startswith(b"LOCKCTL_")} == direct


def test_our_variables_say_what_was_granted_and_replace_inherited_ones(lockctl, locks):
    inherited = dict.fromkeys([*OURS, "LOCKCTL_TOKENS"], "inherited") | {
        "LOCKCTL_BACKEND": f"{lockctl.url}?prefix=secretive-",
        "LOCKCTL_TTL": "12s",
    }
    report = locks / ".report"
    done = lockctl("run", "-l", "a", "--report", str(report), "--", "env", env=inherited)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    ours = {name: content for name, content in seen.items() if name.startswith("LOCKCTL_")}
    assert set(ours) == OURS
    assert ours["LOCKCTL_LOCK"] == "a"
    assert ours["LOCKCTL_TOKEN"] == str(json.loads(report.read_text())["token"])
    assert ours["LOCKCTL_FENCING"] == "strict"
    assert ours["LOCKCTL_TOKEN_DOMAIN"].startswith("file:")
    assert re.fullmatch("[0-9a-f]{32}", ours["LOCKCTL_OWNER"])
    assert ours["LOCKCTL_BACKEND"] == "file"
    assert ours["LOCKCTL_TTL"] == "12"
    assert "secretive" not in done.stdout
    assert (locks / "secretive-a").exists()


def test_each_token_is_greater_than_the_one_before(lockctl):
    tokens = [int(lockctl("run", "-l", "a", "--", "printenv", "LOCKCTL_TOKEN").stdout) for _ in range(5)]
    assert tokens == sorted(set(tokens))


@pytest.fixture
def inherited():
    """A descriptor that programs started from here inherit under its own number."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    higher = os.dup2(descriptor, 77)
    os.close(descriptor)
    yield higher
    os.close(higher)


def test_descriptors_are_the_same_but_for_the_one_of_the_lock(lockctl, after, locks, inherited):
    launcher = after("")
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "pass_fds": (inherited,)}
    launcher(*DESCRIPTORS, str(locks / ".direct"), **options)
    launcher(lockctl.command, "run", "-l", "a", "--", *DESCRIPTORS, str(locks / ".ours"), **options)
    direct, ours = ((locks / name).read_text().splitlines() for name in (".direct", ".ours"))
    assert any(line.startswith("77 ") for line in direct)
    (added,) = set(ours) - set(direct)
    assert set(direct) - set(ours) == set()
    number, _, inode = added.split()
    assert int(number) >= 512
    assert int(inode) == (locks / "a").stat().st_ino


def test_a_low_limit_on_open_files_does_not_keep_the_command_from_running(lockctl, after):
    launcher = after("resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))")
    done = launcher(lockctl.command, "run", "-l", "a", "--", "sh", "-c", "echo x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


@pytest.mark.parametrize("limit", range(5, 13))
def test_a_limit_on_open_files_that_is_too_low_is_said_in_one_line_and_nothing_runs(lockctl, after, limit):
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0  # everything is compiled
    launcher = after(f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))")
    done = launcher(lockctl.command, "run", "-l", "a", "--", "sh", "-c", "echo x; exit 3")
    if done.returncode == 3:
        assert (done.stdout, done.stderr) == ("x\n", "")
    else:
        assert (done.returncode in {69, 126}, done.stdout) == (True, ""), done.stderr
        assert done.stderr.startswith("lockctl: ")
        assert "Too many open files" in done.stderr
        assert done.stderr.count("\n") == 1


def test_stdin_is_passed_from_a_pipe_and_from_a_file(lockctl, locks):
    file = locks / ".input"
    file.write_text("from a file\n")
    with file.open() as stdin:
        assert lockctl("run", "-l", "a", "--", "cat", stdin=stdin).stdout == "from a file\n"
    process = lockctl.start("run", "-l", "a", "--", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.communicate("from a pipe\n", timeout=LIMIT)[0] == "from a pipe\n"


def test_streams_of_any_size_pass_through(lockctl):
    size = 128 << 20
    line = f'head -c {size} /dev/zero | "$0" run -l a -- cat | wc -c'
    done = lockctl(
        "run", "-l", "outer", "--", "sh", "-c", line.replace("run", f"run -b {lockctl.url}"), lockctl.command
    )
    assert int(done.stdout) == size


def test_words_reach_the_command_as_they_are(lockctl):
    words = ["", " ", "-l", "--", "$HOME", "two\nlines", "\udcff\udcfe", "\u00e4", "*", "%s"]
    done = subprocess.run(
        [lockctl.command, "run", "-l", "a", "--", "printf", "[%s]", *words],
        env=lockctl.environment(),
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == b"".join(b"[" + os.fsencode(word) + b"]" for word in words)
