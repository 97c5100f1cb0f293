"""Tokens rise strictly, whatever happens to holders, to what a store keeps, and to its servers.

That they rise over many tenures, among those who contend in one process, and after a holder that vanished, is in the
contract of a backend, for every driver.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import PLACES, SERVED, addresses_of, on_kinds
from tests.jobs import LIMIT, eventually
from tests.promises.harms import HARMS
from tests.promises.tokens import holding, rising, tenure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

CROWD = 4
TENURES = int(os.environ.get("CROWD_TENURES", "3"))  # of each
# a job that writes down its token and says when it is not alone
JOB = 'mkdir "$0.inside" || echo overlap >> "$0"; echo "$LOCKCTL_TOKEN" >> "$0"; rmdir "$0.inside"'


@pytest.mark.parametrize("backend_name", on_kinds(*SERVED))
def test_runs_that_contend_are_never_inside_together_and_their_tokens_rise(lockctl: Lockctl, tmp_path: Path) -> None:
    log = tmp_path / "tokens"
    words = shlex.join([lockctl.command, "run", "-l", "nightly", "--wait", "90s", "--", "sh", "-c", JOB, str(log)])
    script = f"for _ in $(seq {TENURES}); do {words} || exit 1; done"
    crowd = [subprocess.Popen(["sh", "-c", script], env=lockctl.environment()) for _ in range(CROWD)]
    assert [each.wait(timeout=100) for each in crowd] == [0] * CROWD
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == CROWD * TENURES
    assert rising(tokens)


@pytest.mark.parametrize("backend_name", on_kinds(*SERVED))
def test_tokens_rise_when_holders_are_killed(lockctl: Lockctl, place: Place, tmp_path: Path) -> None:
    log = tmp_path / "tokens"
    options = ("-l", "nightly", "-t", f"{place.ttl}s", "--kill-after", "0", "--wait", "60s")
    for count in range(1, 4):
        holder = lockctl.start("run", *options, "--", "sh", "-c", 'echo "$LOCKCTL_TOKEN" >> "$0"; sleep 60', str(log))
        eventually(lambda count=count: log.exists() and log.read_text().count("\n") == count, limit=20.0)  # type: ignore[misc]
        holder.kill()
        holder.wait(LIMIT)
    assert rising([int(line) for line in log.read_text().split()])


@pytest.mark.parametrize("backend_name", HARMS)
def test_tokens_rise_over_what_servers_and_operators_do(
    backend_name: str, start_server: Callable[..., Any], tmp_path: Path
) -> None:
    start, harms = HARMS[backend_name]
    server, word = start(start_server), f"t{os.urandom(6).hex()}"
    url = PLACES[backend_name].url(addresses_of(server), word, tmp_path)
    grants = [tenure(url)]
    for name, harm in harms.items():
        with holding(url) as grant:
            harm(server, word, grant.token)
        grants += [grant, tenure(url)]
        harm(server, word, grants[-1].token)
        grants.append(tenure(url))
        assert rising([each.token for each in grants]), name
        assert len({each.domain for each in grants}) == 1, name
