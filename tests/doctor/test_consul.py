"""What `lockctl doctor` finds in a Consul that is not as it should be."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from lockctl.stores.consul.doctor import NAME
from tests.jobs import eventually
from tests.servers.consul import Consul, ConsulCluster, ConsulRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.certificates import Certificates

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]


def test_a_single_open_server_and_a_lease_out_of_its_bounds_are_found(
    diagnose: Diagnose, consul_server: Consul, start_server: Start
) -> None:
    strict = start_server(Consul, session_ttl_min="10s")
    found = diagnose(f"consul://{strict.address}/?lock_delay=0", "--ttl", "4s")
    assert found.troubles("consul.") == {
        "consul.servers": "warn",
        "consul.autopilot": "warn",
        "consul.ttl": "fail",
        "consul.lock_delay": "warn",
        "consul.open": "warn",
    }
    long = diagnose(f"consul://{consul_server.address}/", "--ttl", "1h")
    assert long.troubles("consul.ttl", "backend.") == {"consul.ttl": "warn"}
    assert "session_ttl_min is 1s" in long["consul.ttl"]["seen"]
    left = [session["Name"] for session in json.loads(consul_server.request("GET", "/v1/session/list"))]
    assert NAME not in left


def test_a_token_with_few_rights_and_one_with_enough_are_told_apart(
    diagnose: Diagnose, start_server: Start, certificates: Certificates
) -> None:
    server = start_server(Consul, acl=True, tls=certificates)
    right = diagnose(f"consuls://:{server.token}@{server.address}/?ca={certificates.ca}")
    assert right.troubles("consul.", "backend.") == {"consul.servers": "warn", "consul.visible": "warn"}
    wrong = diagnose(f"consuls://{server.address}/?ca={certificates.ca}&prefix=other/")
    assert wrong.levels("consul.")["consul.acl"] == "fail"
    assert 'key_prefix "other/"' in wrong["consul.acl"]["remedy"]
    for said in (right, wrong):
        assert server.token not in json.dumps(said)
    stranger = diagnose(f"consuls://localhost:{server.port}/?ca={certificates.other_ca}")
    assert stranger.troubles("backend.", "consul.") == {"backend.reachable": "fail"}


def test_a_cluster_without_a_leader_is_found(diagnose: Diagnose, start_server: Start) -> None:
    cluster = start_server(ConsulCluster)
    first, *others = cluster.members
    assert diagnose(f"consul://{first.address}/").levels()["consul.leader"] == "ok"
    for member in others:
        member.kill()
    without = eventually(
        lambda: (found := diagnose(f"consul://{first.address}/")).levels().get("consul.leader") != "ok" and found
    )
    assert without.troubles("consul.", "backend.reachable") == {"consul.leader": "fail"}


def test_requests_that_come_too_fast_are_no_matter_of_rights(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Consul, extra={"limits": {"rpc_rate": 0.01, "rpc_max_burst": 100}})

    def is_at_its_limit() -> bool:
        with contextlib.suppress(ConsulRefused):
            server.request("GET", "/v1/session/list")
            return False
        return True

    eventually(is_at_its_limit)
    found = diagnose(f"consul://{server.address}/")
    assert found.troubles("consul.", "backend.") == {"backend.reachable": "fail"}
    assert found["backend.reachable"]["seen"].endswith("(HTTP status 429)")
