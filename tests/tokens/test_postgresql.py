"""Tokens from a row of PostgreSQL rise strictly, whatever happens to holders, the table and the server."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT, eventually
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl


def url_of(server: Postgres) -> str:
    return f"{server.url}?prefix=tokens-{os.urandom(4).hex()}:"


def rise(tokens: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


@pytest.mark.parametrize("crowd", [1, 5])
def test_fifty_runs_have_rising_tokens_in_the_order_in_which_they_held(
    lockctl: Lockctl, postgres_server: Postgres, tmp_path: Path, crowd: int
) -> None:
    log, run = tmp_path / "log", f'"{lockctl.command}" run -b "{url_of(postgres_server)}" -l nightly -w 100s'
    script = f"for _ in $(seq {50 // crowd}); do {run} -- sh -c 'echo $LOCKCTL_TOKEN >> {log}' || exit 1; done"
    runs = [subprocess.Popen(["sh", "-c", script], env=lockctl.environment()) for _ in range(crowd)]
    assert [each.wait(100) for each in runs] == [0] * crowd
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert rise(tokens)


class Holding:
    """Runs that are harmed while they hold the lock, and their tokens."""

    def __init__(self, lockctl: Lockctl, directory: Path) -> None:
        self.lockctl = lockctl
        self.tokens: list[int] = []
        self._directory = directory

    def start(self, url: str) -> subprocess.Popen[str]:
        mark = self._directory / str(len(self.tokens))
        line = f"echo $LOCKCTL_TOKEN > {mark}.new; mv {mark}.new {mark}; exec sleep 60"
        words = ("run", "-b", url, "-t", "2s", "-w", "20s", "-l", "nightly", "--", "sh", "-c", line)
        holder = self.lockctl.start(*words)
        eventually(mark.exists, limit=LIMIT)
        self.tokens.append(int(mark.read_text()))
        return holder


def test_tokens_rise_over_killed_holders_lost_records_and_restarted_servers(
    lockctl: Lockctl, start_server: Callable[..., Postgres], tmp_path: Path
) -> None:
    server = start_server(Postgres)
    url, holding = url_of(server), Holding(lockctl, tmp_path)
    everything_off = ("alter system set synchronous_commit = off", "select pg_reload_conf()")
    harms: list[tuple[Callable[[subprocess.Popen[str]], object], ...]] = [
        (subprocess.Popen.kill,),
        (lambda _: server.command("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"),),
        (lambda _: server.command("delete from lockctl_fence"), subprocess.Popen.kill),
        (lambda _: server.command("drop table lockctl_fence"), subprocess.Popen.kill),
        (lambda _: server.restart(),),
        (lambda _: server.kill(), lambda _: server.start()),
        (lambda _: [server.command(each) for each in everything_off], lambda _: server.restart()),
        (lambda _: server.kill(), lambda _: server.start()),
    ]
    for harm in harms:
        holder = holding.start(url)
        for step in harm:
            step(holder)
        holder.wait(LIMIT)
    holding.start(url)
    assert len(holding.tokens) == len(harms) + 1
    assert rise(holding.tokens)


def test_tokens_rise_over_a_failover_to_a_standby_that_missed_the_last_ones(
    lockctl: Lockctl, start_server: Callable[..., Postgres], tmp_path: Path
) -> None:
    primary = start_server(Postgres)
    holding = Holding(lockctl, tmp_path)
    prefix = f"?prefix=tokens-{os.urandom(4).hex()}:"
    holder = holding.start(primary.url + prefix)
    # the copy is a standby that gets nothing any more, as one whose network is down
    standby = start_server(Postgres)
    data = standby.directory / "data"
    primary.stop()
    standby.stop()
    shutil.rmtree(data)
    subprocess.run(["cp", "-a", str(primary.directory / "data"), str(data)], check=True, timeout=LIMIT)
    primary.start()
    with (data / "postgresql.conf").open("a") as settings:
        settings.write(f"port = {standby.port}\nunix_socket_directories = '{standby.socket_directory}'\n")
    (data / "standby.signal").touch()
    standby.start()
    holder.wait(LIMIT)
    for _ in range(2):
        holder = holding.start(primary.url + prefix)
        holder.kill()
        holder.wait(LIMIT)
    primary.kill()
    both = primary.url.replace(primary.address, f"{primary.address},{standby.address}") + prefix
    refused = lockctl("run", "-b", both, "-l", "nightly", "--", "true")
    assert refused.returncode in {69, 78}, "a standby holds no locks"
    standby.command("select pg_promote()")
    holding.start(both)
    assert len(holding.tokens) == 4
    assert rise(holding.tokens)
