"""`lockctl doctor` where a server wants TLS and a login: for each library that is told of them in a way of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.promises.secured import SECRET, SECURED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.certificates import Certificates


@pytest.mark.parametrize("backend", ["redis", "zookeeper"])  # test_consul.py has that of Consul
def test_a_secured_server_is_examined_and_a_strange_one_is_not_believed(
    backend: str, diagnose: Callable[..., Diagnosis], start_server: Callable[..., Any], certificates: Certificates
) -> None:
    server = SECURED[backend](start_server, certificates)
    found = diagnose(server.place(f"ca={certificates.ca}"), "--ttl", "4s")
    assert found.troubles("backend.") == {}
    assert len(found.levels(f"{backend}.")) > 3
    assert SECRET not in str(found)
    for wrong in (f"ca={certificates.other_ca}", f"ca={certificates.ca}&tls_name=elsewhere.example"):
        strange = diagnose(server.place(wrong), "--ttl", "4s")
        assert strange.troubles("backend.") == {"backend.reachable": "fail"}
