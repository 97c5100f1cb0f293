"""Servers that tests start do not outlive them, ports are not shared, and what is missing is said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.postgres import Postgres
from tests.servers.process import free_port, wait_until
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 10.0  # seconds


def is_there(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


PYTEST_THAT_DIES = """
import pathlib, sys
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.process import descendants

servers = [kind(pathlib.Path(sys.argv[1]) / kind.__name__).start() for kind in (Redis, Postgres)]
pids = [pid for server in servers for pid in (server.pid, *descendants(server.pid))]
servers[1].pause()
print(*pids, flush=True)
sys.stdin.read()
"""


def test_servers_die_with_whoever_started_them_even_when_they_are_paused(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PYTEST_THAT_DIES, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        pids = [pid for pid in pids if is_there(pid)]  # PostgreSQL has children for a moment, too
        assert len(pids) > 5
        starter.kill()
    wait_until(lambda: not any(map(is_there, pids)), "no server is left", LIMIT)
    Postgres(tmp_path / "Postgres").discard()  # nobody but the kernel was there to end it: it left shared memory


def run_pytest(directory: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What pytest says about one file of tests that uses the fixtures."""
    file = directory / "test_it.py"
    file.write_text(text)
    ours = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_XDIST")}
    words = "-m pytest -p tests.servers.fixtures -p no:randomly -p no:cacheprovider --override-ini=addopts= -rsE"
    places = [f"--rootdir={directory}", f"--basetemp={directory / 'base'}", str(file)]
    return subprocess.run(
        [sys.executable, *words.split(), "--strict-markers", *places],
        cwd=ROOT,
        env=ours | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


WITHOUT_REDIS = """
from tests.servers import programs

def find(name):
    raise programs.ProgramMissing(f"{name} is not here")

programs.find = find

def test_redis(redis_server):
    pass

def test_private(start_server):
    from tests.servers.redis import Redis
    start_server(Redis)
"""


def test_a_missing_program_skips_tests_and_fails_them_in_ci(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, WITHOUT_REDIS)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert "redis-server is not here" in done.stdout
    done = run_pytest(tmp_path, WITHOUT_REDIS, CI="true")
    assert done.returncode == 1
    assert "skipped" not in done.stdout
    assert "redis-server is not here" in done.stdout


def test_a_server_that_finds_its_port_taken_is_started_again_when_the_port_is_free(
    start_server: Callable[..., Any],
) -> None:
    server = start_server(Redis)
    server.kill()
    passing = socket.create_server((server.host, server.port))
    Timer(1.0, passing.close).start()
    server.start()
    assert server.command("PING") == "PONG"


def test_no_port_is_given_to_two_test_processes() -> None:
    # each keeps its ports until it is told to end: those of one that has ended may be given again
    ask = "from tests.servers.process import free_port; print(*(free_port() for _ in range(250)), flush=True); input()"
    words = [sys.executable, "-c", ask]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen(words, cwd=ROOT, **pipes) for _ in range(2)]
    given = [set(other.stdout.readline().split()) for other in others if other.stdout is not None]
    before = len(os.listdir("/proc/self/fd"))
    own = {str(free_port()) for _ in range(250)}
    descriptors = len(os.listdir("/proc/self/fd"))
    for other in others:
        other.communicate("\n", timeout=60)
    assert descriptors <= before + 2
    assert [len(each) for each in (own, *given)] == [250] * 3
    assert own.isdisjoint(given[0] | given[1])
