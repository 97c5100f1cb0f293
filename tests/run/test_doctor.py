"""What `lockctl doctor` finds on a host that is not as it should be: system calls, /proc, limits, mounts, installation."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import kernel
from lockctl.doctor import host
from lockctl.finding import Examination
from tests.fleet.hosts import with_wrong_clock
from tests.jobs import LIMIT, Lockctl
from tests.run.mounts import FULL_DISK, OVERLAY, READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.servers.redis import Redis

REFUSE = Path(__file__).with_name("refused_calls.py")
# mounts are made with all rights, then given up: what is hidden stays so
HIDING = 'mount -t proc -o hidepid=2,gid=65534 proc /proc; setpriv --bounding-set -all "$@"'


def troubles(done: subprocess.CompletedProcess[str], prefix: str) -> dict[str, str]:
    """Id -> level of what is not ok."""
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == any(finding["level"] == "fail" for finding in findings), done.stderr
    return {
        each["id"].removeprefix(prefix): each["level"]
        for each in findings
        if each["level"] != "ok" and each["id"].startswith(prefix)
    }


@pytest.fixture
def doctor(lockctl: Lockctl) -> Callable[..., dict[str, str]]:
    """Runs `lockctl doctor` behind other words; what is not ok of the host."""

    def run(*before: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
        done = subprocess.run(
            [*before, lockctl.command, "doctor", "--json"],
            env=lockctl.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return troubles(done, "host.")

    return run


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("timerfd_create", "clock"),
        ("timerfd_settime", "clock"),
        (f"prctl={kernel.PR_SET_PDEATHSIG}", "death_signal"),
        (f"prctl={kernel.PR_SET_CHILD_SUBREAPER}", "subreaper"),
        ("pidfd_open", "pidfd"),
    ],
)
def test_a_system_call_that_is_not_allowed_is_found(doctor: Callable[..., Any], call: str, found: str) -> None:
    failing = doctor(sys.executable, str(REFUSE), call, str(errno.EPERM))
    assert [name for name, level in failing.items() if level == "fail"] == [found]


def test_a_proc_that_is_covered_and_a_container_are_found(
    doctor: Callable[..., Any], unshare: Callable[[str], list[str]]
) -> None:
    covered = doctor(*unshare("-m"), "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh")
    assert covered["proc"] == "fail"
    assert doctor(*unshare("-p"))["proc"] == "fail"
    assert {"container": "warn", "hidepid": "warn"}.items() <= doctor(
        *unshare("-mpf"), "sh", "-c", HIDING, "sh"
    ).items()


def test_a_slow_installation_and_few_descriptors_are_found(doctor: Callable[..., Any], tmp_path: Path) -> None:
    shim = tmp_path / "lockctl"
    shim.write_text('#!/usr/bin/env bash\nexec pyenv exec lockctl "$@"\n')
    shim.chmod(0o755)
    in_cron = shutil.which("lockctl", path="/usr/bin:/bin") is not None
    variables = {"PYTHONPYCACHEPREFIX": str(tmp_path / "none"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = doctor("prlimit", "--nofile=100", env=variables)
    assert {"descriptors": "warn", "bytecode": "warn", "shim": "warn"}.items() <= found.items()
    assert ("command" in found) != in_cron


def test_the_program_to_call_is_the_one_that_was_started(lockctl: Lockctl, tmp_path: Path) -> None:
    """`pip install --user` has the interpreter of the system, and its programs elsewhere."""
    for folder, text in (
        ("shims", '#!/bin/sh\nexec pyenv exec lockctl "$@"\n'),
        ("bin", Path(lockctl.command).read_text()),
    ):
        program = tmp_path / folder / "lockctl"
        program.parent.mkdir()
        program.write_text(text)
        program.chmod(0o755)
    done = subprocess.run(
        [program, "doctor", "--json", "-b", lockctl.url],
        env=lockctl.environment({"PATH": f"{tmp_path}/shims:/usr/bin:/bin"}),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    (shim,) = [each for each in json.loads(done.stdout)["findings"] if each["id"] == "host.shim"]
    assert shim["remedy"].startswith(f"call {program}, ")


def test_a_user_without_room_for_processes_is_told() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:  # whom no limit binds
                os.setuid(65534)
            resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
            found = Examination("host", 0.0)
            host.check_limits(found)
            levels = {finding.id: finding.level for finding in found.findings}
            os.write(writing, json.dumps(levels).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading) as file:
        assert json.loads(file.read())["host.processes"] == "fail"


def test_a_clock_that_is_not_the_servers_is_found(lockctl: Lockctl, redis_server: Redis) -> None:
    elsewhere = with_wrong_clock(lockctl.directory, 9.0)
    done = lockctl("doctor", "-b", redis_server.url, "--json", env=elsewhere)
    assert troubles(done, "backend.")["clock"] == "warn"


@pytest.mark.parametrize(
    ("setup", "found"),
    [
        (OVERLAY, {"filesystem": "fail"}),
        (READ_ONLY, {"filesystem": "warn", "directory": "fail", "space": "fail"}),
        (FULL_DISK, {"filesystem": "warn", "space": "warn"}),
    ],
    ids=["overlay", "read-only", "full"],
)
def test_a_file_system_that_does_not_suit_locks_is_found(
    mounted: Callable[..., subprocess.CompletedProcess[str]], setup: str, found: dict[str, str]
) -> None:
    assert troubles(mounted(setup, "doctor", "--json"), "file.") == found


def test_the_text_says_what_was_seen_why_it_matters_and_what_mends_it(lockctl: Lockctl) -> None:
    lockctl.directory.chmod(0o777)
    done = lockctl("doctor")
    assert done.returncode == 1
    assert f"host {os.uname().nodename}" in done.stdout
    lines = done.stdout.partition("  fail  file.directory")[2].splitlines()
    assert [line.split()[0] for line in lines if line.lstrip().startswith(("why:", "mend:"))][:2] == ["why:", "mend:"]
    assert done.stderr.strip().endswith("1 fail")


@pytest.mark.parametrize(
    ("options", "env", "status", "why"),
    [
        (("--ttl", "0"), {}, 64, "at least 1s (ttl: --ttl; kill-after: built-in)"),
        ((), {"LOCKCTL_TTL": "0.2"}, 78, "at least 1s (ttl: $LOCKCTL_TTL; kill-after: built-in)"),
        (("--ttl", "9s"), {"LOCKCTL_KILL_AFTER": "9s"}, 64, "(ttl: --ttl; kill-after: $LOCKCTL_KILL_AFTER)"),
    ],
)
def test_a_lease_that_no_run_could_have_is_refused_as_by_run(
    lockctl: Lockctl, options: tuple[str, ...], env: dict[str, str], status: int, why: str
) -> None:
    done = lockctl("doctor", *options, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.rstrip().endswith(why)
    assert lockctl("run", "-l", "a", *options, "--", "true", env=env).stderr.rstrip().endswith(why)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h:99999", "port"),
        ("file:///tmp/x?foo=bar", "foo"),
        ("etcd://h:2379/?ttl=5", "ttl"),
        ("s3://?region=x", "BUCKET"),
        ("sqlite:///srv/locks.db?tabel=x", "tabel"),
    ],
)
def test_a_url_that_is_wrong_is_no_finding(lockctl: Lockctl, url: str, why: str) -> None:
    done = lockctl("doctor", "-b", url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert why in done.stderr
    assert lockctl("run", "-l", "a", "-b", url, "--", "true").stderr.replace(" a:", "", 1) == done.stderr
