"""What a lock costs a cron job: not more time and memory than `consul lock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.bench import memory, timing
from tests.faults.backends import PLACES, addresses_of, announced
from tests.jobs import guard_of
from tests.servers import programs

if TYPE_CHECKING:
    from tests.jobs import Lockctl
    from tests.servers.consul import Consul


@pytest.fixture
def servers(backend_name: str, request: pytest.FixtureRequest) -> Any:
    """The server of this round."""
    return request.getfixturevalue(PLACES[backend_name].servers)


ROUNDS_OF = pytest.mark.parametrize(
    "backend_name", [pytest.param(name, marks=announced(name)) for name in ("redis", "etcd", "consul")]
)


def environment(lockctl: Lockctl, backend_name: str, servers: Any, consul: Consul) -> dict[str, str]:
    url = PLACES[backend_name].url(addresses_of(servers), "bench", lockctl.directory)
    variables = {"LOCKCTL_BACKEND": url, "CONSUL_HTTP_ADDR": consul.url}
    return timing.environment({**variables, "XDG_CONFIG_HOME": str(lockctl.directory / ".none")})


@ROUNDS_OF
def test_a_run_is_not_slower_than_consul_lock(
    backend_name: str, servers: Any, consul_server: Consul, lockctl: Lockctl
) -> None:
    env = environment(lockctl, backend_name, servers, consul_server)
    commands = {
        "consul": ((programs.find("consul"), "lock", f"bench-time-{backend_name}", "true"), 0),
        "lockctl": ((lockctl.command, "run", "-t", "30s", "--", "true"), 0),
    }
    ratios: list[float] = []
    while len(ratios) < 8 and (not ratios or min(ratios) > 1):
        took = timing.medians(commands, env, rounds=10)
        ratios.append(took["lockctl"] / took["consul"])
    assert min(ratios) <= 1, ratios


@ROUNDS_OF
def test_a_holder_takes_less_memory_than_consul_lock(
    backend_name: str, servers: Any, consul_server: Consul, lockctl: Lockctl
) -> None:
    env = environment(lockctl, backend_name, servers, consul_server)
    with memory.holding((programs.find("consul"), "lock", f"bench-memory-{backend_name}"), env) as peer:
        theirs = memory.pss(peer.pid)
    with memory.holding((lockctl.command, "run", "-t", "10s", "--"), env) as holder:
        memory.let_it_renew(2.5)
        ours = memory.pss(holder.pid) + memory.pss(guard_of(holder.pid))
    assert ours < theirs, (ours, theirs)
