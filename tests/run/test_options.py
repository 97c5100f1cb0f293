"""Options that change what is said, where the lock's name comes from, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.mounts import FULL_DISK

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def name_of(lockctl, *words, **options):
    """The lock that a run takes."""
    done = lockctl("run", *words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("words", [["run", "-l", "a", "--", "true"], ["run", "-l", "b", "--", "/no/such/command"]])
def test_log_format_json_writes_one_document_per_line(lockctl, words):
    lockctl.start_holding("a")
    done = lockctl(words[0], "--log-format", "json", "-v", *words[1:])
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines
    for line in lines:
        assert list(line) == ["ts", "level", "lock", "event", "message", "token", "holder", "seconds"]
        assert re.fullmatch(MOMENT, line["ts"])
        assert line["level"] in ("debug", "info", "warning", "error")
        assert line["lock"] == words[2]
        assert "\n" not in line["message"]


def test_the_lines_of_the_guard_have_the_token_too(lockctl, locks):
    token, said = locks / ".token", locks / ".said"
    script = f"trap '' TERM; echo $LOCKCTL_TOKEN > {token}; while :; do sleep 0.1; done"
    words = ("-v", "--log-format", "json", "-k", "300ms", "--", "sh", "-c", script)
    with said.open("w") as stderr:
        keeper = lockctl.start("run", "-l", "a", *words, stderr=stderr)
    number = int(eventually(lambda: token.exists() and token.read_text().strip()))
    guard = guard_of(keeper.pid)
    os.kill(keeper.pid, signal.SIGKILL)
    eventually(lambda: not alive(guard))
    lines = [json.loads(line) for line in said.read_text().splitlines()]
    told = [(line["event"], line["token"]) for line in lines if line["event"] in ("stopping", "killed")]
    assert told == [("stopping", number), ("killed", number)]


def test_the_events_of_a_run_have_their_names_and_their_numbers(lockctl, redis_server):
    words = (
        "-v",
        "--log-format",
        "json",
        "-b",
        f"redis://{redis_server.address}/?prefix={os.urandom(4).hex()}:",
        "-l",
        "a",
        "-t",
        "3s",
    )
    stubborn = "trap '' TERM; while :; do sleep 0.1; done"
    done = lockctl("run", *words, "-k", "300ms", "--max-runtime", "1.5s", "--", "sh", "-c", stubborn)
    assert done.returncode == 124
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    first = {line["event"]: line for line in reversed(lines)}
    assert list(dict.fromkeys(line["event"] for line in lines if line["event"] != "renewed")) == [
        *("acquired", "started", "stopping", "killed", "released", "timed_out")
    ]
    assert {line["token"] for line in lines} == {first["acquired"]["token"]}
    assert 0 < first["renewed"]["seconds"] <= 3
    assert 1.5 <= first["timed_out"]["seconds"] <= first["released"]["seconds"]


def test_log_format_json_also_holds_for_wrong_usage(lockctl):
    done = lockctl("run", "--log-format", "json", "--ttl", "banana", "--", "true")
    assert done.returncode == 64
    assert "banana" in json.loads(done.stderr)["message"]


def test_the_events_of_the_end_come_in_the_order_of_the_manual(lockctl, pytestconfig):
    job = ("--max-runtime", "1s", "--", "sh", "-c", "sleep 60 & trap 'exit 0' TERM; wait")
    left = ("--", "sh", "-c", "sleep 60 > /dev/null 2>&1 &")
    page = (pytestconfig.rootpath / "man/text/lockctl-run.1.txt").read_text()
    manual = re.findall(r"`(\w+)`", page.partition("The events are")[2].partition("# EXIT")[0])
    for words in (job, left):
        done = lockctl("run", "-v", "--log-format", "json", "-l", "a", *words)
        events = list(dict.fromkeys(json.loads(line)["event"] for line in done.stderr.splitlines()))
        assert events == sorted(events, key=manual.index)
        assert {"acquired", "released"} < set(events)
    assert "leftovers" in events


@pytest.mark.parametrize(
    ("options", "environment", "code"),
    [
        (["--ttl", "banana"], {}, 64),
        (["--nosuch", "--ttl", "banana"], {}, 64),
        ([], {"LOCKCTL_TTL": "banana"}, 78),
    ],
    ids=["option", "unknown", "variable"],
)
@pytest.mark.parametrize("source", ["option", "variable", "file"])
def test_a_mistake_is_told_in_the_format_of_every_source(lockctl, locks, source, options, environment, code):
    file = locks / ".config.toml"
    file.write_text('[defaults]\nlog_format = "json"\n')
    wanted = {"option": ["--log-format", "json"], "file": ["--config", str(file)]}.get(source, [])
    if source == "variable":
        environment = {**environment, "LOCKCTL_LOG_FORMAT": "json"}
    done = lockctl("run", "-l", "a", *wanted, *options, "--", "true", env=environment)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "error"


def test_a_mistake_in_the_format_is_told_as_text(lockctl):
    done = lockctl("run", "-l", "a", "--", "true", env={"LOCKCTL_LOG_FORMAT": "xml", "LOCKCTL_QUIET": "banana"})
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert done.stderr.startswith("lockctl: a: $LOCKCTL_")


def test_verbose_says_what_happens(lockctl):
    done = lockctl("run", "-v", "-l", "a", "--", "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(r"^lockctl: a: acquired \S+/a with token \d+$", done.stderr, re.MULTILINE)
    assert re.search(r"^lockctl: a: started as pid \d+$", done.stderr, re.MULTILINE)


def test_quiet_keeps_only_errors(lockctl):
    lockctl.start_holding("a")
    done = lockctl("run", "-q", "-l", "a", "--", "true")
    assert (done.returncode, done.stderr) == (75, "")
    done = lockctl("run", "-q", "-l", "b", "--", "sh", "-c", "sleep 60 > /dev/null 2>&1 & exit 1")
    assert (done.returncode, done.stderr) == (1, "")
    done = lockctl("run", "-q", "-l", "b", "--", "/no/such/command")
    assert (done.returncode, done.stderr.count("\n")) == (127, 1)


def test_splay_delays_the_start_by_at_most_as_long_as_asked(lockctl):
    begin = time.monotonic()
    for _ in range(3):
        assert lockctl("run", "-l", "a", "--splay", "100ms", "--", "true").returncode == 0
    assert time.monotonic() - begin < 5


def test_a_splayed_run_does_not_hold_the_lock_meanwhile(lockctl):
    delayed = lockctl.start("run", "-l", "a", "--splay", "3650d", "--", "true")
    eventually(lambda: delayed.poll() is None)
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("options", "word"), [(["--leftover", "leave"], "--leftover"), (["--on-unavailable", "run"], "--on-unavailable")]
)
def test_guarantee_correctness_refuses_what_cannot_fence(lockctl, locks, options, word):
    command = ["run", "-l", "a", "--guarantee", "correctness"]
    done = lockctl(*command, *options, "--", "touch", str(locks / ".ran"))
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert word in done.stderr
    assert not (locks / ".ran").exists()
    assert lockctl(*command, "--", "true").returncode == 0


def test_on_unavailable_run_runs_without_a_lock_and_says_so(mounted):
    line = "env | grep -c ^LOCKCTL_; exit 7"
    done = mounted(FULL_DISK, "run", "-l", "a", "--on-unavailable", "run", "--", "sh", "-c", line)
    assert (done.returncode, done.stdout) == (7, "0\n")
    assert done.stderr.startswith("lockctl: a: RUNNING WITHOUT A LOCK: ")
    assert done.stderr.count("\n") == 1


def test_a_signal_and_a_limit_hold_without_a_lock_too(mounted):
    options = ("--on-unavailable", "run", "--max-runtime", "200ms")
    assert mounted(FULL_DISK, "run", "-l", "a", *options, "--", "sleep", "60").returncode == 124


def test_a_line_for_the_shell_goes_to_the_shell_of_the_user(lockctl, locks):
    shell = locks / ".shell"
    shell.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    shell.chmod(0o755)
    done = lockctl("run", "-c", "echo a  b | cat", env={"SHELL": str(shell)})
    assert done.stdout == "<-c>\n<echo a  b | cat>\n"


@pytest.mark.parametrize("shell", [None, ""])
def test_a_line_for_the_shell_goes_to_sh_when_no_shell_is_set(lockctl, after, shell):
    launcher = after("os.environ.pop('SHELL', None)" if shell is None else "os.environ['SHELL'] = ''")
    done = launcher(lockctl.command, "run", "-l", "a", "--shell", "tr '\\0' ' ' < /proc/$$/cmdline; exit 5")
    assert done.returncode == 5
    assert done.stdout.startswith("/bin/sh -c tr ")


def test_a_line_for_the_shell_is_one_word(lockctl, locks):
    done = lockctl("run", "-c", "touch", str(locks / ".ran"))
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert not (locks / ".ran").exists()


def test_the_name_of_a_lock_comes_from_all_words_of_the_command(lockctl, locks):
    job = locks / ".backup.sh"
    job.write_text("#!/bin/sh\necho $LOCKCTL_LOCK\n")
    job.chmod(0o755)
    plain = name_of(lockctl, "--", str(job))
    assert re.fullmatch(r"backup\.sh-[0-9a-f]{8}", plain)
    assert name_of(lockctl, str(job)) == plain
    assert name_of(lockctl, "--", str(job), "x") != plain
    assert name_of(lockctl, "--", str(job), "x", "y") != name_of(lockctl, "--", str(job), "x y")


def test_the_name_of_a_line_does_not_depend_on_the_shell(lockctl):
    line = "echo $LOCKCTL_LOCK"
    first, second = (name_of(lockctl, "-c", line, env={"SHELL": shell}) for shell in ("/bin/sh", "/bin/bash"))
    assert first == second
    assert first.startswith("echo-")


def test_two_crontab_lines_with_the_same_words_exclude_each_other(lockctl, locks):
    job = locks / ".job"
    job.write_text(f'#!/bin/sh\necho "$1" >> {locks}/.started\nexec sleep 60\n')
    job.chmod(0o755)
    first = lockctl.start("run", "--", str(job), "nightly")
    eventually((locks / ".started").exists)
    assert lockctl("run", "--", str(job), "nightly").returncode == 75
    other = lockctl.start("run", "--", str(job), "weekly")
    eventually(lambda: (locks / ".started").read_text() == "nightly\nweekly\n")
    for run in (first, other):
        run.terminate()
        assert run.wait(timeout=LIMIT) == 143


def test_words_that_look_like_nothing_still_make_a_name(lockctl, locks):
    job = locks / "..-\u00e4 \x1b["
    job.write_text("#!/bin/sh\necho $LOCKCTL_LOCK\n")
    job.chmod(0o755)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:@+-]*-[0-9a-f]{8}", name_of(lockctl, "--", str(job)))
    job.unlink()


@pytest.mark.parametrize("words", [["-l", "a", "-t5s"], ["--lock=a", "--ttl=5s"], ["-la", "-vt", "5s"], ["-qnla"]])
def test_options_can_be_written_in_every_usual_way(lockctl, words):
    done = lockctl("run", *words, "printenv", "LOCKCTL_LOCK")
    assert (done.returncode, done.stdout) == (0, "a\n")


def test_options_after_the_command_belong_to_the_command(lockctl):
    assert lockctl("run", "-l", "a", "echo", "-l", "b", "--ttl", "--help").stdout == "-l b --ttl --help\n"


def test_a_variable_sets_an_option_and_a_flag_overrides_it(lockctl):
    lockctl.start_holding("a")
    env = {"LOCKCTL_CONFLICT_EXIT_CODE": "9"}
    assert lockctl("run", "-l", "a", "--", "true", env=env).returncode == 9
    assert lockctl("run", "-l", "a", "-E", "10", "--", "true", env=env).returncode == 10
    assert os.environ.get("LOCKCTL_CONFLICT_EXIT_CODE") is None
