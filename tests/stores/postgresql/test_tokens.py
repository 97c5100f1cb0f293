"""The token of PostgreSQL rises over a failover."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.jobs import LIMIT
from tests.promises.tokens import holding, rising, tenure
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl


def standby_of(primary: Postgres, standby: Postgres) -> None:
    """Make a server a copy that gets nothing any more, as one whose network is down."""
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


def test_tokens_rise_over_a_failover_to_a_standby_that_missed_the_last_ones(
    lockctl: Lockctl, start_server: Callable[..., Postgres]
) -> None:
    primary, standby = start_server(Postgres), start_server(Postgres)
    prefix = f"?prefix=tokens-{os.urandom(4).hex()}:"
    with holding(primary.url + prefix) as grant:
        standby_of(primary, standby)
    tokens = [grant.token, *(tenure(primary.url + prefix).token for _ in range(2))]
    primary.kill()
    both = primary.url.replace(primary.address, f"{primary.address},{standby.address}") + prefix
    refused = lockctl("run", "-b", both, "-l", "nightly", "--", "true")
    assert refused.returncode == 69, "a standby holds no locks"
    standby.command("select pg_promote()")
    tokens.append(tenure(both).token)
    assert rising(tokens)
