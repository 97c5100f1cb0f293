"""The role in lockctl-backends(7) is enough for all that locks do, and each part of it is needed.

The emulator asks for no rights: a proxy refuses what needs one, as Google's documentation says, that is not given.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from tests.promises.rights import use_objects
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, Request

OBJECTS = "storage.objects."


def rights_of_the_manual() -> set[str]:
    """What the manual says."""
    page = Path(__file__).resolve().parents[3] / "man/text/lockctl-backends.7.txt"
    (found,) = re.findall(r"--permissions=(\S+)", page.read_text(encoding="utf-8"))
    return set(found.split(","))


def needed(request: Request) -> set[str]:
    """What Google wants for a request (IAM permissions for JSON methods)."""
    if request.method == "POST":
        return {OBJECTS + "create"} | (set() if "ifGenerationMatch=0&" in request.path else {OBJECTS + "delete"})
    if request.method == "GET":
        return {OBJECTS + ("list" if "/o?" in request.path else "get")}
    assert request.method == "DELETE"
    return {OBJECTS + "delete"}


def use(server: Gcs, given: set[str]) -> None:
    """Everything that writes, lists and deletes, with these rights."""

    def look(request: Request) -> Answer | None:
        missing = needed(request) - given
        document = {"error": {"code": 403, "message": f"robot does not have {missing}"}}
        return (403, [], json.dumps(document).encode()) if missing else None

    with HttpProxy(server.address, look) as between:
        url = f"gcs://locks/rights-{os.urandom(6).hex()}?anonymous=yes&endpoint={between.url}"
        use_objects(url)


def test_the_role_of_the_manual_is_enough_and_all_of_it_is_needed(gcs_server: Gcs) -> None:
    rights = rights_of_the_manual()
    assert len(rights) == 4
    use(gcs_server, rights)
    for each in rights:
        with pytest.raises(ConfigError, match=r"needed are storage\.objects\.get, \.create, \.delete and \.list"):
            use(gcs_server, rights - {each})
