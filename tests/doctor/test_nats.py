"""What `lockctl doctor` finds in a bucket of NATS that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.servers.nats import AS_KV, Nats
from tests.stores.nats.test_lock import ADMIN, RIGHTS, subjects

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]


def test_a_bucket_in_memory_with_limits_is_found(diagnose: Diagnose, nats_server: Nats) -> None:
    assert diagnose(nats_server.url).troubles("nats.", "backend.") == {"nats.replicas": "warn"}
    wrong = {"name": "KV_short", "subjects": ["$KV.short.>"], "storage": "memory", "max_age": 10**12}
    nats_server.ask("STREAM.CREATE.KV_short", {**AS_KV, **wrong})
    found = diagnose(f"nats://{nats_server.address}/short").troubles("nats.", "backend.")
    assert found == {"nats.replicas": "warn", "nats.storage": "fail", "nats.limits": "fail"}
    found = diagnose(f"nats://{nats_server.address}/nowhere").troubles("nats.")
    assert found == {"nats.bucket": "fail"}


def test_a_user_who_may_not_write_is_found(diagnose: Diagnose, start_server: Callable[..., Any]) -> None:
    reader = RIGHTS.replace('"$KV.locks.>", "$JS', '"$JS', 1)
    users = f"{ADMIN}, {{ user: reader, password: pw, permissions: {{ {reader} }} }}"
    server = start_server(Nats, login="admin:s3cret-admin@", settings=f"authorization {{ users: [{users}] }}")
    found = diagnose(f"nats://reader:pw@{server.address}/locks")
    assert found.levels()["nats.rights"] == "fail"
    assert subjects(found["nats.rights"]["remedy"]) == subjects(RIGHTS)
