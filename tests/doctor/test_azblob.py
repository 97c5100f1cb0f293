"""What `lockctl doctor` finds in a container of Azure's that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import azurite
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.azurite import Azurite
    from tests.servers.http_proxy import Answer, Request

    Diagnose = Callable[..., Diagnosis]


def refused(status: int, code: str) -> Answer:
    """A refusal of Azure's."""
    return status, [("x-ms-error-code", code)], b""


@pytest.mark.parametrize(
    ("method", "field"),
    [("PUT", ("x-ms-version-id", "2026-01-01T00:00:00.0000000Z")), ("DELETE", ("x-ms-delete-type-permanent", "false"))],
    ids=["versioning", "soft delete"],
)
def test_a_container_that_is_dear_is_found(
    method: str, field: tuple[str, str], diagnose: Diagnose, azblob_server: Azurite
) -> None:
    """The emulator has neither of them; Azure tells of both in the answers to writes."""

    def look_back(request: Request, answer: Answer) -> Answer:
        status, fields, body = answer
        fields = [each for each in fields if each[0].lower() != field[0]]
        return status, [*fields, field] if request.method == method and status < 300 else fields, body

    with HttpProxy(azblob_server.address) as between:
        url = azurite.place(between.address, "doctor")
        assert diagnose(url).troubles("azblob.", "backend.") == {}
        between.look_back = look_back
        assert diagnose(url).troubles("azblob.", "backend.") == {"azblob.versioning": "warn"}


def test_a_server_that_ignores_conditions_and_rights_that_are_missing_are_found(
    diagnose: Diagnose, azblob_server: Azurite
) -> None:
    seen: dict[str, str] = {}

    def without_conditions(request: Request) -> Answer | None:
        """A signed request cannot be changed: what the server would do is said instead."""
        if request.method != "PUT":
            return None
        seen[request.path] = "written"
        return 201, [("etag", '"1"'), ("x-ms-request-id", "1")], b""

    denied = refused(403, "AuthorizationPermissionMismatch")
    with HttpProxy(azblob_server.address, without_conditions) as between:
        url = azurite.place(between.address, "doctor")
        assert diagnose(url).troubles("azblob.", "backend.") == {"azblob.conditions": "fail"}
        assert seen
        between.look = lambda request: denied if request.method == "PUT" else None
        assert diagnose(url).troubles("azblob.", "backend.") == {"azblob.rights": "fail"}
        between.look = lambda _: denied
        assert diagnose(url).troubles("azblob.", "backend.") == {"azblob.rights": "fail"}
        between.look = lambda _: refused(404, "ContainerNotFound")
        assert diagnose(url).troubles("azblob.", "backend.") == {"backend.reachable": "fail"}
