"""The contract, held by the kubernetes backend on a model of an API server, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.kubernetes.cell import KubernetesBackend, KubernetesCells
from lockctl.stores.kubernetes.protocol import Leases
from lockctl.url import parse_url
from tests.contract.cells import ServedHarness
from tests.contract.suite import BackendContract
from tests.servers.kubernetes import write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lockctl.model import Grant
    from tests.servers.kubernetes import Kubernetes

WHOLE = KubernetesCells.clock_error + 1.0  # seconds after the end of a lease at which it has surely ended


class KubernetesHarness(ServedHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = KubernetesBackend.capabilities
    clock_error = KubernetesCells.clock_error
    freed_after = 1.1 + WHOLE
    hold_slack = 0.3 + WHOLE

    def __init__(self, server: Kubernetes) -> None:
        super().__init__(server, KubernetesCells(Leases(parse_url(server.place))))

    def place(self, address: str, prefix: str) -> str:
        return str(self.server.behind(address, prefix))

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + WHOLE)


@pytest.fixture
def harness(kubernetes_server: Kubernetes) -> Iterator[KubernetesHarness]:
    made = KubernetesHarness(kubernetes_server)
    yield made
    made.close()


class TestKubernetes(BackendContract):
    """Every promise, and what only this backend has."""


@pytest.mark.parametrize(("file", "said"), [("/nowhere", "No such file"), ("/dev/null", "is not a kubeconfig")])
def test_a_kubeconfig_that_cannot_be_read_is_named(file: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_backend(parse_url(f"kubernetes://locks?kubeconfig={file}")).inspect("nightly", timeout=1.0)


@pytest.mark.parametrize("name", [".x", "x" * 64, "\u00e4..b", "a\0b"])
def test_a_name_to_verify_that_no_host_has_is_named(name: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    write_config(config, {"server": "https://127.0.0.1:1", "tls-server-name": name}, {"token": "x"})
    with pytest.raises(ConfigError, match="tls-server-name in the kubeconfig must be the name of a host"):
        open_backend(parse_url(f"kubernetes://locks?kubeconfig={config}")).inspect("nightly", timeout=1.0)


def test_a_kubeconfig_verifies_the_server_or_does_not(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    write_config(config, {**cluster, "certificate-authority": "/etc/ca.pem"}, {"token": "x"})
    with pytest.raises(ConfigError, match="insecure-skip-tls-verify contradicts the authority"):
        open_backend(parse_url(f"kubernetes://locks?kubeconfig={config}")).inspect("nightly", timeout=1.0)
