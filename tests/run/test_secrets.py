"""Credentials of a backend go to the backend and nowhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually
from tests.servers.redis import Redis

SECRET = "hunter2"
UNREACHABLE = "redis://:{}@127.0.0.1:1/0"


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCKCTL_BACKEND": UNREACHABLE.format(SECRET)},
        {"LOCKCTL_BACKEND": "redis://127.0.0.1:1", "LOCKCTL_PASSWORD": SECRET},
    ],
    ids=["in the URL", "in a variable of its own"],
)
@pytest.mark.parametrize("reachable", [True, False])
def test_the_command_gets_no_credential(lockctl, variables, reachable, locks):
    report = locks / ".report"
    url = ("-b", lockctl.url) if reachable else ()
    options = ("-v", "--log-format", "json", "--on-unavailable", "run", "--report", str(report))
    done = lockctl("run", *url, *options, "-l", "a", "--", "env", "-0", env=variables)
    assert done.returncode == 0, done.stderr
    names = {line.partition("=")[0] for line in done.stdout.split("\0")}
    assert "PATH" in names
    assert "LOCKCTL_PASSWORD" not in names
    assert SECRET not in done.stdout + done.stderr + report.read_text()


def test_a_store_without_passwords_is_used_although_another_has_one(lockctl):
    url = f"sqlite://{lockctl.directory}/locks.db"
    done = lockctl("run", "-b", url, "-l", "a", "--", "true", env={"LOCKCTL_PASSWORD": SECRET})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCKCTL_PASSWORD": SECRET},
        {"LOCKCTL_PASSWORD": SECRET, "LC_ALL": "C"},
        {"LOCKCTL_FENCE": f"redis://:{SECRET}@127.0.0.1:1"},
        {"LOCKCTL_BACKEND": UNREACHABLE.format(SECRET)},
    ],
    ids=["password", "C locale", "fence", "backend"],
)
def test_the_job_finds_no_credential_in_the_environment_of_its_ancestors(lockctl, variables):
    """Neither the keeper's nor the guard's, as the kernel shows them; and the keeper still has its own."""
    line = "import os; print(*[open(f'/proc/{pid}/environ').read() for pid in (os.getppid(), KEEPER)])"
    job = line.replace("KEEPER", "int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])")
    options = ("-b", lockctl.url) if "LOCKCTL_BACKEND" not in variables else ("--on-unavailable", "run")
    if "LOCKCTL_FENCE" in variables:
        variables = {**variables, "LOCKCTL_ON_UNAVAILABLE": "fail"}
        options = (*options, "--fence", str(lockctl.directory / ".stock"))
    done = lockctl("run", *options, "-l", "a", "--", sys.executable, "-c", job, env=variables)
    assert done.returncode == 0, done.stderr
    assert "PATH=" in done.stdout
    assert SECRET not in done.stdout


def test_the_daemon_of_acquire_shows_no_password(new_acquirer, start_server):
    server = start_server(Redis)
    server.command("ACL", "SETUSER", "any", "on", f">{SECRET}", "~*", "&*", "+@all")
    acquirer = new_acquirer(f"{server.url}/0")
    handle = acquirer.acquire("-b", f"redis://any:{SECRET}@127.0.0.1:{server.port}/0")
    keeper = json.loads(Path(handle).read_text())["pid"]
    for pid in (keeper, *tree.descendants(keeper)):
        for entry in ("cmdline", "environ"):
            assert SECRET.encode() not in Path(f"/proc/{pid}/{entry}").read_bytes()
    assert Path(f"/proc/{keeper}/cmdline").read_bytes().startswith(b"lockctl acquire deploy --for")
    assert acquirer("release", "--handle", handle).returncode == 0


@pytest.mark.parametrize("way", ["password_file=/dev/stdin", "password_file=/dev/fd/3"])
def test_the_daemon_of_acquire_has_a_password_from_a_descriptor_of_the_command(
    lockctl, new_acquirer, start_server, way
):
    server = start_server(Redis)
    server.command("ACL", "SETUSER", "any", "on", f">{SECRET}", "~*", "&*", "+@all")
    url = f"redis://any@127.0.0.1:{server.port}/0?{way}"
    env = lockctl.environment({**new_acquirer(url).env, "LOCKCTL_BACKEND": url})
    line = f'echo {SECRET} | "$0" acquire a --for 5s 3<&0'
    done = subprocess.run(
        ["sh", "-c", line, lockctl.command], env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"] == "a"


def test_a_standby_refuses_a_password_that_it_cannot_read_again(lockctl, start_server):
    server = start_server(Redis)
    server.command("ACL", "SETUSER", "any", "on", f">{SECRET}", "~*", "&*", "+@all")
    url = f"redis://any@127.0.0.1:{server.port}/0?password_file=/dev/stdin"
    line = f'echo {SECRET} | timeout 10 "$0" run -b "$1" -l a --restart -- echo ran'
    words = ["sh", "-c", line, lockctl.command, url]
    done = subprocess.run(words, env=lockctl.environment(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert "password_file /dev/stdin: a pipe" in done.stderr


@pytest.fixture
def hanging(locks):
    """A command for a URL, which never ends, and the file of its pid, which is there as soon as it runs."""
    line = f"echo $$ >{locks}/.written && mv {locks}/.written {locks}/.pid && exec sleep 60"
    return quote(line, safe=""), locks / ".pid"


def started(file):
    eventually(file.exists)
    return int(file.read_text())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "options",
    [
        ("-b", "redis://127.0.0.1:1/0?password_command={}", "-l", "a"),
        ("-b", "redis://127.0.0.1:1/0?password_command={}", "-l", "a", "-l", "b"),
        ("-l", "a", "--fence", "redis://127.0.0.1:1/0?password_command={}"),
    ],
    ids=["a lock", "several locks", "a mark"],
)
def test_a_signal_ends_a_run_whose_password_is_not_printed_yet(lockctl, hanging, options, signum):
    command, file = hanging
    run = lockctl.start("run", *(word.format(command) for word in options), "--", "true")
    pid = started(file)
    tree.send(run.pid, signal.SIGUSR1)  # ends no wait
    tree.send(run.pid, signum)
    assert run.wait(timeout=LIMIT) == 128 + signum
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0?password_file={}", "redis+sentinel://127.0.0.1:1/main?sentinel_password_file={}"]
)
def test_a_signal_ends_a_run_whose_password_nobody_writes_to_a_pipe(lockctl, locks, url):
    fifo = locks / ".fifo"
    os.mkfifo(fifo)
    run = lockctl.start("run", "-b", url.format(fifo), "-l", "a", "--", "true")
    eventually(lambda: str(fifo) in map(os.path.realpath, Path(f"/proc/{run.pid}/fd").iterdir()))
    tree.send(run.pid, signal.SIGTERM)
    assert run.wait(timeout=LIMIT) == 128 + signal.SIGTERM


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "-l", "a", "--", "true"),
        ("acquire", "a", "--for", "20s"),
        ("force-release", "a"),
        ("list",),
        ("doctor",),
    ],
    ids=lambda words: words[0],
)
def test_a_command_for_a_password_ends_with_lockctl(lockctl, hanging, locks, words, signum):
    command, file = hanging
    verb, *rest = words
    url = f"redis://127.0.0.1:1/0?password_command={command}"
    started_by = lockctl.start(verb, "-b", url, *rest, env={"XDG_RUNTIME_DIR": str(locks)})
    pid = started(file)
    tree.send(started_by.pid, signum)
    assert started_by.wait(timeout=LIMIT) != 0
    eventually(lambda: not alive(pid), limit=5.0)  # by itself, lockctl ends it after ten seconds


@pytest.mark.parametrize("place", ["/dev/stdin", "/dev/fd/3"])
@pytest.mark.parametrize("source", ["cat {} |", "<{}"])
def test_the_daemon_has_a_configuration_from_a_descriptor_of_the_command(acquirer, lockctl, place, source):
    file = lockctl.directory / ".config.toml"
    file.write_text('[defaults]\nttl = "20s"\n')
    before, after = (source.format(file), "") if source.endswith("|") else ("", source.format(file))
    line = f'{before} {{ "$0" acquire a --for 5s --config {place} 3<&0; }} {after}'
    done = subprocess.run(
        ["sh", "-c", line, lockctl.command],
        env=lockctl.environment(acquirer.env),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ttl"] == 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_keeper_makes_no_directory_in_the_runtime_directory_of_another_user(acquirer, lockctl, unshare):
    theirs = lockctl.directory / ".theirs"
    theirs.mkdir()
    os.chown(theirs, 1234, 1234)
    line = 'mount -t tmpfs none /run && exec "$@"'
    words = [*unshare("-m"), "sh", "-c", line, "-", lockctl.command, "acquire", "a", "--for", "1s"]
    env = lockctl.environment({**acquirer.env, "XDG_RUNTIME_DIR": str(theirs)})
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["socket"].startswith("/run/lockctl/")
    assert not list(theirs.iterdir())
