"""What `lockctl doctor` finds in a bucket of Google's that is not as it should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.servers.http_proxy import HttpProxy, without_conditions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, Request

    Diagnose = Callable[..., Diagnosis]


def told(status: int, document: object) -> Answer:
    """An answer of Google's."""
    return status, [], json.dumps(document).encode()


def refused(status: int, message: str) -> Answer:
    """A refusal of Google's."""
    return told(status, {"error": {"code": status, "message": message}})


def test_a_bucket_that_is_dear_is_found(diagnose: Diagnose, gcs_server: Gcs) -> None:
    """The emulator has no such settings."""
    setting: dict[str, object] = {}

    def look(request: Request) -> Answer | None:
        return told(200, setting) if request.path.startswith("/storage/v1/b/locks?") else None

    with HttpProxy(gcs_server.address, look) as between:
        url = f"gcs://locks/doctor?anonymous=yes&endpoint={between.url}"
        assert diagnose(url).troubles("gcs.", "backend.") == {}
        setting["versioning"] = {"enabled": True}
        assert diagnose(url).troubles("gcs.", "backend.") == {"gcs.versioning": "warn"}
        setting.update(versioning={"enabled": False}, softDeletePolicy={"retentionDurationSeconds": "604800"})
        found = diagnose(url)
        assert found.troubles("gcs.", "backend.") == {"gcs.versioning": "warn"}
        assert "604800 s" in found["gcs.versioning"]["seen"]


def test_a_server_that_ignores_conditions_and_rights_that_are_missing_are_found(
    diagnose: Diagnose, gcs_server: Gcs
) -> None:
    denied = refused(403, "robot does not have storage.objects.create access")
    with HttpProxy(gcs_server.address, without_conditions) as between:
        url = f"gcs://locks/doctor?anonymous=yes&endpoint={between.url}"
        assert diagnose(url).troubles("gcs.", "backend.") == {"gcs.conditions": "fail"}
        between.look = lambda request: denied if request.method == "POST" else None
        assert diagnose(url).troubles("gcs.", "backend.") == {"gcs.rights": "fail"}
        between.look = lambda _: denied
        assert diagnose(url).troubles("gcs.", "backend.") == {"gcs.rights": "fail"}
        between.look = lambda _: refused(404, "The specified bucket does not exist.")
        assert diagnose(url).troubles("gcs.", "backend.") == {"backend.reachable": "fail"}
