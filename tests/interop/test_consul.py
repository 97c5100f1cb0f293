"""`consul lock`, its semaphores and the Python library for Consul keep lockctl out, and are kept out by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.registry import open_backend
from lockctl.stores.consul.layout import LOCK_FLAGS
from lockctl.url import parse_url
from tests.contract.harness import claim, refused, waiters
from tests.jobs import LIMIT, eventually
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.consul import Consul

    Start = Callable[..., subprocess.Popen[str]]

HELD = "75"  # what lockctl ends with when another holds the lock


class Place:
    """A prefix of its own in the shared server."""

    def __init__(self, server: Consul) -> None:
        self.server = server
        self.prefix = f"lockctl/{os.urandom(4).hex()}/"
        self.url = f"consul://{server.address}/?prefix={self.prefix}"
        self.client = open_backend(parse_url(self.url))
        self.run = ("run", "-b", self.url, "-t", "3s", "-l", "nightly")

    def entry(self) -> dict[str, Any] | None:
        """The key of the lock, if there is one."""
        keys = json.loads(self.server.request("GET", "/v1/kv/", recurse="true"))
        return next((each for each in keys if each["Key"] == f"{self.prefix}nightly/.lock"), None)

    def held(self) -> bool:
        """Whether a session has the key."""
        entry = self.entry()
        return entry is not None and "Session" in entry


@pytest.fixture
def place(consul_server: Consul) -> Iterator[Place]:
    made = Place(consul_server)
    consul_server.request("PUT", "/v1/kv/lockctl/.interop", b"")  # so that there is one key at least
    yield made
    made.client.close()


@pytest.fixture
def consul_lock(place: Place) -> Iterator[Start]:
    """Start `consul lock` on the same lock: words are its options, then the command."""
    started: list[subprocess.Popen[str]] = []
    variables = programs.environment(**place.server.variables())

    def start(*words: str, **options: Any) -> subprocess.Popen[str]:
        command = [programs.find("consul"), "lock", *words[:-1], f"{place.prefix}nightly", words[-1]]
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True, **options,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(LIMIT)


def marked(path: Path, then: str) -> str:
    """A line for a shell that makes a file, and goes on until another one is there."""
    return f"touch {path}; while [ ! -e {path}.end ]; do sleep 0.1; done; {then}"


@pytest.mark.parametrize("semaphore", [(), ("-n", "2")], ids=["lock", "semaphore"])
def test_lockctl_is_refused_while_consul_lock_holds_and_goes_on_when_it_ends(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path, semaphore: tuple[str, ...]
) -> None:
    holder = consul_lock(*semaphore, marked(tmp_path / "held", "true"))
    eventually((tmp_path / "held").exists)
    refusal = lockctl(*place.run, "--", "true")
    assert str(refusal.returncode) == HELD, refusal.stderr
    shown = place.client.inspect("nightly", timeout=LIMIT)
    assert (shown.state, shown.holders[0].host, shown.key) == ("foreign", "tests", f"{place.prefix}nightly")
    waiting = lockctl.start(*place.run, "-w", "20s", "--", "touch", str(tmp_path / "went-on"))
    eventually(lambda: waiters(place.client))
    assert not (tmp_path / "went-on").exists()
    (tmp_path / "held.end").touch()
    assert holder.wait(LIMIT) == 0
    assert waiting.wait(LIMIT) == 0
    assert (tmp_path / "went-on").exists()


@pytest.mark.parametrize("semaphore", [(), ("-n", "2")], ids=["lock", "semaphore"])
def test_consul_lock_is_refused_while_lockctl_holds_and_works_afterwards(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path, semaphore: tuple[str, ...]
) -> None:
    holder = lockctl.start(*place.run, "--", "sh", "-c", marked(tmp_path / "held", "true"))
    eventually((tmp_path / "held").exists)
    late = consul_lock(*semaphore, "-timeout=1s", f"touch {tmp_path}/overlap")
    waiting = None if semaphore else consul_lock(f"touch {tmp_path}/went-on")
    assert late.wait(LIMIT) != 0
    assert not (tmp_path / "went-on").exists()
    (tmp_path / "held.end").touch()
    assert holder.wait(LIMIT) == 0
    if waiting is not None:
        assert waiting.wait(LIMIT) == 0
        assert (tmp_path / "went-on").exists()
    assert consul_lock(*semaphore, "-timeout=5s", "true").wait(LIMIT) == 0
    assert consul_lock("-timeout=5s", "true").wait(LIMIT) == 0
    assert not (tmp_path / "overlap").exists()
    assert not refused(place.client, claim())


def test_lockctl_and_consul_lock_in_turn_never_overlap(
    lockctl: Lockctl, place: Place, consul_lock: Start, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job = f'echo "in $$" >> {log}; sleep 0.05; echo "out $$" >> {log}'
    runs: list[subprocess.Popen[str]] = []
    for _ in range(5):
        runs.append(lockctl.start(*place.run, "-w", "60s", "--", "sh", "-c", job))
        runs.append(consul_lock(job))
    assert [run.wait(60) for run in runs] == [0] * 10
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 20
    for (enter, first), (leave, second) in zip(lines[::2], lines[1::2], strict=True):
        assert (enter, leave, first) == ("in", "out", second)


def test_the_lock_of_a_killed_lockctl_becomes_free_for_consul_lock_after_its_lease(
    lockctl: Lockctl, place: Place, consul_lock: Start
) -> None:
    holder = lockctl.start("run", "-b", place.url, "-t", "1s", "-l", "nightly", "--", "sleep", "60")
    eventually(place.held)
    holder.kill()
    holder.wait(LIMIT)
    began = time.monotonic()
    assert consul_lock("-timeout=20s", "true").wait(LIMIT) == 0
    assert 0.5 < time.monotonic() - began < 8


def test_a_job_ends_when_an_operator_deletes_the_key_with_the_consul_command(lockctl: Lockctl, place: Place) -> None:
    holder = lockctl.start(*place.run, "--", "sleep", "60")
    eventually(place.held)
    began = time.monotonic()
    place.server.command("kv", "delete", f"{place.prefix}nightly/.lock")
    assert holder.wait(LIMIT) == 76
    assert time.monotonic() - began < 6


def test_consul_lock_notices_that_its_lock_was_taken_away_by_force(
    lockctl: Lockctl, place: Place, consul_lock: Start
) -> None:
    holder = consul_lock("exec sleep 60")
    eventually(place.held)
    asked = lockctl("force-release", "-b", place.url, "nightly", "--yes")
    assert "cannot be told" in asked.stderr
    assert place.held()
    done = lockctl("force-release", "-b", place.url, "nightly", "--now", "--yes")
    assert done.returncode == 0, done.stderr
    holder.wait(LIMIT)  # long before its sleep ends


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_python_library_for_consul_sees_the_lock_and_excludes_and_is_excluded(
    lockctl: Lockctl, place: Place, tmp_path: Path
) -> None:
    import consul  # not for the other tests of this file: it is slow to load

    witness = consul.Consul(host=place.server.host, port=place.server.port)
    session = witness.session.create(ttl=10, lock_delay=0, checks=[])
    key = f"{place.prefix}nightly/.lock"
    holder = lockctl.start(*place.run, "--", "sh", "-c", marked(tmp_path / "held", "true"))
    eventually((tmp_path / "held").exists)
    _, seen = witness.kv.get(key)
    assert seen["Flags"] == LOCK_FLAGS
    assert json.loads(seen["Value"])["session"] == seen["Session"]
    assert witness.session.info(seen["Session"])[1]["Name"] == f"lockctl: {place.prefix}nightly"
    assert not witness.kv.put(key, b"", acquire=session, flags=LOCK_FLAGS)
    (tmp_path / "held.end").touch()
    assert holder.wait(LIMIT) == 0
    assert witness.kv.get(key)[1] is None
    assert witness.kv.put(key, b"", acquire=session, flags=LOCK_FLAGS)
    assert refused(place.client, claim())
    assert witness.kv.put(key, b"", release=session, flags=LOCK_FLAGS)
    assert not refused(place.client, claim())
    witness.session.destroy(session)
    witness.http.session.close()
