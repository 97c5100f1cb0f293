"""Tokens from Consul's Raft log rise strictly, whatever happens to holders, keys and servers."""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import TYPE_CHECKING

from tests.jobs import LIMIT, eventually
from tests.servers.consul import Consul

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl


def url_of(server: Consul) -> str:
    return f"consul://{server.address}/?prefix=lockctl/{os.urandom(4).hex()}/"


def rise(tokens: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_fifty_runs_one_after_the_other_have_rising_tokens(lockctl: Lockctl, consul_server: Consul) -> None:
    run = f'"{lockctl.command}" run -b "{url_of(consul_server)}" -l nightly -- sh -c \'echo $LOCKCTL_TOKEN\''
    script = f"for _ in $(seq 50); do {run} || exit 1; done"
    done = subprocess.run(
        ["sh", "-c", script], env=lockctl.environment(), capture_output=True, text=True, timeout=60, check=True
    )
    tokens = [int(line) for line in done.stdout.split()]
    assert len(tokens) == 50
    assert rise(tokens)


def test_fifty_runs_that_contend_have_rising_tokens_in_the_order_in_which_they_held(
    lockctl: Lockctl, consul_server: Consul, tmp_path: Path
) -> None:
    log, run = tmp_path / "log", f'"{lockctl.command}" run -b "{url_of(consul_server)}" -l nightly -w 100s'
    script = f"for _ in $(seq 10); do {run} -- sh -c 'echo $LOCKCTL_TOKEN >> {log}' || exit 1; done"
    crowd = [subprocess.Popen(["sh", "-c", script], env=lockctl.environment()) for _ in range(5)]
    assert [each.wait(100) for each in crowd] == [0] * 5
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert rise(tokens)


def test_tokens_rise_over_killed_holders_deleted_keys_destroyed_sessions_and_restarted_servers(
    lockctl: Lockctl, start_server: Callable[..., Consul], tmp_path: Path
) -> None:
    server = start_server(Consul)
    url = url_of(server)
    tokens: list[int] = []
    prefix = url.partition("prefix=")[2]

    def hold() -> subprocess.Popen[str]:
        mark = tmp_path / str(len(tokens))
        line = f"echo $LOCKCTL_TOKEN > {mark}.new; mv {mark}.new {mark}; exec sleep 60"
        holder = lockctl.start("run", "-b", url, "-t", "1s", "-w", "20s", "-l", "nightly", "--", "sh", "-c", line)
        eventually(mark.exists, limit=LIMIT)
        tokens.append(int(mark.read_text()))
        return holder

    for harm in ("kill", "delete", "delete all", "restart", "kill server", "release"):
        holder = hold()
        if harm == "kill":
            holder.kill()
        elif harm == "delete":
            server.command("kv", "delete", f"{prefix}nightly/.lock")
        elif harm == "delete all":
            server.command("kv", "delete", "-recurse", prefix)
        elif harm == "restart":
            server.restart()
        elif harm == "kill server":
            server.kill()
            server.start()
        if harm in ("release", "restart", "kill server"):
            holder.terminate()
        holder.wait(LIMIT)
    hold()
    assert len(tokens) == 7
    assert rise(tokens)
