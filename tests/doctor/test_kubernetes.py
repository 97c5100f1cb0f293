"""What `lockctl doctor` finds in a namespace of Kubernetes that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.servers.kubernetes import NAMESPACE, Kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]


def test_a_namespace_where_we_may_do_all_is_ok(diagnose: Diagnose, kubernetes_server: Kubernetes) -> None:
    assert diagnose(kubernetes_server.place).troubles("kubernetes.", "backend.") == {}


def test_rights_that_lack_are_named(diagnose: Diagnose, start_server: Callable[..., Any]) -> None:
    server = start_server(Kubernetes, tokens={"t": "reader"}, verbs={"reader": ["get", "list"]})
    config = server.config("reader.json", {"token": "t"})
    found = diagnose(f"kubernetes://{NAMESPACE}/?kubeconfig={config}")
    assert found.troubles("kubernetes.") == {"kubernetes.rights": "fail"}
    assert found["kubernetes.rights"]["seen"] == "not allowed: watch, create, update, delete"
