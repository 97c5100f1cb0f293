"""`watch`: a live table on a real terminal, and lines for each change everywhere else."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs import LIMIT, eventually
from tests.run.terminal import INTERRUPT, PROMPT, SUSPEND, Screen, Terminal
from tests.servers.redis import Redis

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
EVIL = "[bold red]x[/] \x1b[2J\x07\u202e[/nothing]"
FILL = """
local value = redis.call('GET', KEYS[1])
for number = 1, ARGV[1] do
  local key = string.format('lockctl:n%05d', number)
  redis.call('SET', key, value, 'PX', 600000)
  redis.call('SET', '{' .. key .. '}:fence', number)
end
"""


@pytest.fixture
def screen(lockctl):
    """Start `lockctl watch` on a terminal."""
    made = []

    def start(*words, env=(), **size):
        made.append(Screen(lockctl.command, "watch", *words, env=lockctl.environment(dict(env)), **size))
        return made[-1]

    yield start
    for each in made:
        each.end()


class Lines:
    """`lockctl watch` with a pipe behind it."""

    def __init__(self, process):
        self.process = process
        self._left = b""

    def next(self, limit=10.0):
        """The next line."""
        until = time.monotonic() + limit
        while b"\n" not in self._left:
            assert select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0], "no line came"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, "it has ended"
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def stop(self, number=signal.SIGTERM):
        """(status, what else was printed, stderr)."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, self._left.decode() + out, err


@pytest.fixture
def piped(lockctl):
    def start(*words, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return Lines(lockctl.start("watch", "--interval", "100ms", *words, **pipes))

    return start


def end(process):
    process.terminate()
    assert process.wait(timeout=LIMIT) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_a_pipe_it_prints_each_lock_and_then_each_change(lockctl, piped, number):
    for name in "ab":  # a file that is made and not locked yet may be seen as a free lock
        lockctl("run", "-l", name, "--", "true")
    watching = piped("--all")
    for name in "ab":
        assert re.fullmatch(rf"{MOMENT}\t{name}\tfree\t-\t-", watching.next())
    holder = lockctl.start_holding("a", env={"LOGNAME": "ada"})
    token = json.loads(lockctl("inspect", "a", "--json").stdout)["holders"][0]["token"]
    host = re.escape(os.uname().nodename)

    def noted():
        """The next line of a lock whose record says what the kernel does: at either end one comes before the other."""
        return next(line for line in iter(watching.next, None) if "\tforeign\t" not in line)

    assert re.fullmatch(rf"{MOMENT}\ta\theld\t{host} pid {holder.pid} \(ada\)\t{token}", noted())
    end(holder)
    assert re.fullmatch(rf"{MOMENT}\ta\tfree\t-\t-", noted())
    assert watching.stop(number) == (0, "", f"lockctl: watching * in {lockctl.url}\n")


def test_on_a_narrow_terminal_no_word_is_cut_and_a_question_keeps_its_answers(lockctl, screen):
    name = "nightly-backup-of-everything"
    lockctl.start_holding(name)
    shown = screen(columns=60)
    first, *_, last = shown.until("^q quit.*a all$")
    assert "  1 held" in first
    assert len(first) <= 60
    shown.type("f")
    *_, last = shown.until("^Release")
    assert last.startswith(f"Release {name}?")
    assert last.endswith("? [y/N]")
    assert "…" not in last


def test_as_json_each_change_is_a_document_in_one_line(lockctl, locks, piped):
    lockctl("run", "-l", "a", "--", "true")
    watching = piped("a*", "--all", "--json")
    assert json.loads(watching.next())["state"] == "free"
    holder = lockctl.start_holding("b")
    holder = lockctl.start_holding("a")
    seen = json.loads(watching.next())
    assert re.fullmatch(MOMENT, seen.pop("time"))
    assert seen == {
        **json.loads(lockctl("inspect", "a", "--json").stdout),
        "last_run": None,
    }  # many are not asked for it
    end(holder)
    seen = json.loads(watching.next())
    assert (seen["state"], seen["holders"], seen["waiters"]) == ("free", [], [])
    with (locks / "a").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert json.loads(watching.next())["state"] == "foreign"
        (locks / "a").unlink()
        vanished = json.loads(watching.next())
    assert (vanished["name"], vanished["state"], vanished["holders"]) == ("a", "free", [])
    assert watching.stop() == (0, "", "")


def test_a_renewal_or_a_waiter_is_no_change(lockctl, piped, redis_server):
    place = {"LOCKCTL_BACKEND": f"{redis_server.url}/0?prefix=w{os.urandom(6).hex()}:"}
    watching = piped("--json", env=place)
    lockctl.start_holding("a", "--ttl", "1s", env=place)
    first = json.loads(watching.next())
    waiting = lockctl.start("run", "-l", "a", "-w", "forever", "--", "true", env=place)

    def seen():
        (lock,) = json.loads(lockctl("list", "--json", env=place).stdout)
        return lock

    eventually(lambda: seen()["waiters"])
    left = [seen()["holders"][0]["expires_in"]]

    def renewed():
        left.append(seen()["holders"][0]["expires_in"])
        return left[-1] > min(left)  # it went down, and up again

    eventually(renewed)
    assert watching.stop() == (0, "", "")
    assert first["holders"][0]["owner"]
    assert waiting.poll() is None


def test_a_reader_that_goes_away_ends_it_though_nothing_changes(lockctl, piped):
    lockctl("run", "-l", "a", "--", "true")
    watching = piped("--all", "-o", "name")
    assert watching.next() == "a"
    watching.process.stdout.close()
    assert watching.process.wait(timeout=LIMIT) == 0
    assert watching.process.stderr.read() == ""


def test_a_reader_that_does_not_read_does_not_keep_it_from_ending(locks, piped):
    for number in range(2000):
        (locks / f"lock-{number:04}").touch()
    watching = piped("--all", "--json")
    eventually(lambda: select.select([watching.process.stdout], [], [], 0)[0])
    watching.process.terminate()
    assert watching.process.wait(timeout=LIMIT) == 0


def test_a_full_disk_is_no_quiet_end(lockctl):
    lockctl("run", "-l", "a", "--", "true")
    with Path("/dev/full").open("w") as full:
        done = lockctl("watch", "-a", "--json", stdout=full)
    assert (done.returncode, done.stderr) == (69, "lockctl: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize("interval", ["0", "10ms", "banana", "-1"])
def test_an_interval_that_is_none_is_refused(lockctl, interval):
    done = lockctl("watch", f"--interval={interval}")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("lockctl: --interval: ")
    assert done.stderr.count("\n") == 1


def test_a_wrong_configuration_ends_it_at_the_start(lockctl, screen):
    place = "-b", "file:///dev/null/locks"
    done = lockctl("watch", *place)
    assert (done.returncode, done.stdout) == (78, "")
    on_terminal = screen(*place)
    assert on_terminal.wait() == 78
    assert "lockctl: file: cannot use" in on_terminal.sent.partition(LEAVE)[2]


def test_a_pipe_hears_of_an_outage_once_and_of_its_end(lockctl, piped, start_server):
    server = start_server(Redis)
    place = {"LOCKCTL_BACKEND": server.url}
    server.kill()
    watching = piped(env=place)  # it also begins in an outage
    assert watching.process.stderr.readline() == f"lockctl: watching * in {server.url}\n"
    assert re.fullmatch(
        r"lockctl: redis at .*: cannot connect: .*; still watching\n", watching.process.stderr.readline()
    )
    time.sleep(0.5)  # several looks, which are not told of
    server.start()
    assert re.match("lockctl: the backend answers again, after ", watching.process.stderr.readline())
    lockctl.start_holding("a", env=place)
    assert "\theld\t" in watching.next()
    assert watching.stop() == (0, "", "")


def test_on_a_terminal_it_shows_holders_first_and_restores_the_screen(lockctl, locks, screen):
    lockctl("run", "-l", "a", "--", "true")
    holder = lockctl.start_holding("b", env={"LOGNAME": "ada"})
    lockctl.start("run", "-l", "b", "-w", "forever", "--", "true")
    with (locks / "c").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = screen("--all", "--interval", "200ms")
        lines = shown.until(rf"pid {holder.pid} .* 1 +\S")
        assert shown.sent.startswith(ENTER)
        title = f"{lockctl.url}  1 held, 1 free, 1 foreign, by state; every 200ms, seen "
        assert lines[0].startswith(title)
        assert lines[1].split() == ["NAME", "STATE", "HOLDER", "TOKEN", "AGE", "EXPIRES", "WAITERS", "COMMAND"]
        assert [line.split()[:2] for line in lines[2:5]] == [["b", "held"], ["c", "foreign"], ["a", "free"]]
        assert f"pid {holder.pid} (ada)" in lines[2]
        assert f"pid {os.getpid()}" in lines[3]
        assert lines[5:-1] == [""] * 18
        assert lines[-1].startswith("q quit  ? help  enter details  ")
        assert re.search("\x1b\\[1;33mforeign", shown.sent)
        shown.type(INTERRUPT)
        assert shown.wait() == 0
    assert (shown.sent.count(ENTER), shown.sent.count(LEAVE)) == (1, 1)
    assert SHOW_CURSOR in shown.sent[-40:]
    assert LEAVE in shown.sent[-40:]
    assert "Traceback" not in shown.sent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_restores_the_screen_too(screen, number):
    shown = screen()
    shown.until("no locks")
    eventually(shown.raw)
    shown.process.send_signal(number)
    assert shown.wait() == 0
    assert LEAVE in shown.sent[-40:]
    assert not shown.raw()


def test_a_window_that_is_closed_ends_it(screen):
    shown = screen()
    shown.until("no locks")
    shown.hang_up()
    assert shown.process.wait(timeout=LIMIT) == 0


def test_what_expires_is_counted_down_between_two_looks(lockctl, screen, redis_server):
    place = {"LOCKCTL_BACKEND": f"{redis_server.url}/0?prefix=w{os.urandom(6).hex()}:"}
    lockctl.start_holding("a", "--ttl", "5m", env=place)
    shown = screen("--interval", "1h", env=place)

    def expires():
        return next((found[1] for line in shown.picture() if (found := re.search(r"^a .* (\S+) +0 +\S", line))), "")

    first = eventually(expires)
    assert re.fullmatch(r"4m5\ds", first)
    eventually(lambda: expires() not in {first, ""})
    assert re.fullmatch(r"4m5\ds", expires())
    assert expires() < first


def test_ten_times_more_locks_than_lines(locks, screen):
    for number in range(200):
        (locks / f"lock-{number:03}").touch()
    shown = screen("--all", lines=20)
    lines = shown.until("and 184 more")
    assert lines[2].startswith("lock-000 ")
    assert lines[17].startswith("lock-015 ")
    assert lines[18] == "... and 184 more"
    shown.type("\x1b[F")
    assert shown.until("^lock-199")[2].startswith("lock-184 ")
    shown.resize(210, 100)
    assert shown.until("^lock-000")[-9:-1] == ["lock-199  free       -    -        -  0", *[""] * 7]


@pytest.mark.parametrize(("lines", "columns"), [(1, 1), (1, 80), (2, 10), (3, 3), (4, 500), (50, 7)])
def test_a_tiny_window_is_no_reason_to_fail(lockctl, screen, lines, columns):
    lockctl("run", "-l", "a", "--", "true")
    lockctl("run", "-l", "b", "--", "true")
    shown = screen("--all")
    shown.until("^b ")
    shown.resize(lines, columns)
    picture = eventually(shown.picture)
    assert all(len(line) <= columns for line in picture)
    shown.resize(24, 80)
    shown.until("^b ")
    shown.type(INTERRUPT)
    assert shown.wait() == 0


def test_an_outage_is_shown_with_the_last_locks_until_it_is_over(lockctl, screen, start_server):
    server = start_server(Redis)
    place = {"LOCKCTL_BACKEND": server.url}
    lockctl.start_holding("a", "--ttl", "1m", env=place)
    shown = screen("--interval", "200ms", env=place)
    shown.until("^a +held")
    server.kill()
    lines = shown.until(rf"no answer since {MOMENT} \(\d+s\): redis at .*: ")
    assert any(re.match("a +held", line) for line in lines)
    before, _, after = shown.sent.partition("no answer")
    assert "\x1b[7;32mheld" in before
    assert "\x1b[2;7mheld" in after
    assert not re.search(r"\x1b\[[0-9;]*32m", after)
    server.start()  # without its memory
    eventually(lambda: (now := shown.picture()) and "no locks" in now[0] and "no answer" not in "".join(now))
    shown.type(INTERRUPT)
    assert shown.wait() == 0


def test_a_server_that_hangs_is_told_of_and_does_not_delay_the_end(lockctl, screen, start_server):
    server = start_server(Redis)
    place = {"LOCKCTL_BACKEND": server.url}
    lockctl.start_holding("a", "--ttl", "1m", env=place)
    shown = screen("--interval", "200ms", env=place)
    shown.until("^a +held")
    server.pause()
    try:
        lines = shown.until(r"^no answer for [3-9]s$")
        assert any(re.match("a +held", line) for line in lines)
        before = time.monotonic()
        shown.type(INTERRUPT)
        assert shown.wait() == 0
        assert time.monotonic() - before < 8
    finally:
        server.resume()


def test_ctrl_z_gives_the_screen_back_and_fg_takes_it_again(lockctl, locks):
    env = lockctl.environment({"PS1": PROMPT, "TERM": "xterm", "HOME": str(locks), "HISTFILE": ""})
    env["PATH"] = f"{Path(lockctl.command).parent}:{os.environ['PATH']}"
    shell = shutil.which("bash")
    assert shell, "bash is an essential package of Debian"
    terminal = Terminal(shell, "--norc", "--noprofile", "-i", env=env)
    try:
        terminal.expect(PROMPT)
        terminal.line("lockctl watch")
        for _ in range(2):
            terminal.expect("no locks")
            terminal.type(SUSPEND)
            assert SHOW_CURSOR in terminal.expect(re.escape(LEAVE)) + terminal.expect("Stopped")
            terminal.expect(PROMPT)
            terminal.line("fg")
            terminal.expect(re.escape(ENTER))
        terminal.expect("no locks")
        terminal.type(INTERRUPT)
        terminal.expect(PROMPT)
        terminal.line("echo status-$?")
        terminal.expect("status-0")
    finally:
        terminal.end()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(lockctl, screen):
    lockctl("run", "-l", "a", "--", "true")
    shown = screen("--all", env={"TERM": "dumb"})
    eventually(lambda: shown.receive(0.02) or shown.sent.count("\n") == 2)
    said = re.escape(f"lockctl: watching * in {lockctl.url}")
    assert re.fullmatch(rf"{said}\r\n{MOMENT}\ta\tfree\t-\t-\r\n", shown.sent)


def test_no_color_leaves_the_table_and_takes_the_colours(lockctl, screen):
    lockctl.start_holding("a")
    shown = screen(env={"NO_COLOR": "1"})
    shown.until("^a +held")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown.sent)


def test_what_a_stranger_wrote_is_neither_markup_nor_control(screen, redis_server):
    prefix, owner = f"w{os.urandom(6).hex()}:", "0" * 32
    document = {"owner": owner, "host": EVIL, "user": "y" * 1000, "pid": 1, "mode": "exclusive", "ttl": 5.0}
    redis_server.ask("SET", f"{prefix}a", f"{owner}|7|{json.dumps(document)}", "PX", 60000)
    shown = screen(env={"LOCKCTL_BACKEND": f"{redis_server.url}/0?prefix={prefix}"}, columns=1000)
    (line,) = [line for line in shown.until("^a ") if line.startswith("a ")]
    assert "[bold red]x[/] \ufffd[2J\ufffd\ufffd[/nothing] pid 1 (yyy" in line
    assert len(line) < 900
    assert not {"\x07", "\u202e"} & set(shown.sent)
    assert "\x1b[2J" not in shown.sent


MANY = 4000  # locks: all must be there within the ten seconds of one question, also on a busy machine
MOST_MEMORY = 70 * 1024  # kilobytes
# its peak in kilobytes on stderr; beneath a small process, because a fork counts with the size of what forked
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.timeout(300)
def test_thousands_of_locks_in_bounded_time_and_memory(lockctl, start_server, piped):
    server = start_server(Redis)
    place = {"LOCKCTL_BACKEND": server.url}
    lockctl.start_holding("n", env=place)
    server.ask("EVAL", FILL, 1, "lockctl:n", MANY, timeout=20)
    for words in (["list"], ["list", "--json"]):
        done = subprocess.run(
            [sys.executable, "-I", "-c", MEASURED, lockctl.command, *words],
            env=lockctl.environment(place),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert sum(f"n{MANY:05}" in line or "n00001" in line for line in done.stdout.splitlines()) >= 2
        assert int(done.stderr.split()[-1]) < MOST_MEMORY

    watching = piped(env=place)
    assert len([watching.next(limit=60) for _ in range(MANY + 1)]) == MANY + 1

    def scans():
        return int(str(server.ask("INFO", "commandstats")).partition("cmdstat_scan:calls=")[2].partition(",")[0])

    def looked(times):
        """The most kilobytes of memory until so many more looks were made: in the middle of one it is more."""
        enough = scans() + times * (2 * MANY // 1000 + 1)  # two keys of each, 1000 for each step
        eventually(lambda: scans() > enough, limit=60.0, pause=0.1)
        status = Path(f"/proc/{watching.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    first = looked(2)
    assert looked(2) < first + 8192  # two looks that were kept would be more than that
    assert first < MOST_MEMORY
    assert watching.stop()[0] == 0


def test_keys_select_show_filter_and_release_a_lock_and_the_terminal_is_as_it_was(lockctl, screen):
    others = [lockctl.start_holding(name) for name in ("a", "b")]
    holder = lockctl.start_holding("nightly")
    shown = screen("--interval", "200ms")
    eventually(shown.raw)
    shown.until("^nightly +held")
    shown.type("/NIGHT\r")
    eventually(lambda: not any(line.startswith("a ") for line in shown.until("^nightly +held")))
    shown.type("\r")
    lines = shown.until(r"^holder: +\S+ pid " + str(holder.pid))
    assert f"backend:    {lockctl.url}" in lines
    shown.type("fn")
    shown.until("^escape back")
    shown.type("fy")
    shown.until("^nightly: the holder was asked to stop$")
    assert holder.wait(timeout=LIMIT) == 76
    assert [other.poll() for other in others] == [None, None]
    shown.type("\x1b")
    shown.until("^nothing to show; 3 not shown")
    shown.type("a")
    shown.until("^nightly +free")
    shown.type("q")
    assert shown.wait() == 0
    assert not shown.raw()
    assert SHOW_CURSOR in shown.sent[-40:]


def test_without_a_keyboard_the_table_is_there_all_the_same(lockctl):
    lockctl.start_holding("a")
    shown = Screen("sh", "-c", 'exec "$0" watch </dev/null', lockctl.command, env=lockctl.environment())
    try:
        lines = shown.until("^a +held")
        assert lines[-1] == ""
        shown.process.terminate()
        assert shown.wait() == 0
    finally:
        shown.end()
