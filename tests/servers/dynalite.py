"""A DynamoDB server of another make than moto's: dynalite, which `make tools` gets with npm; one table, in memory.

It checks no credentials and no rights, and knows no transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers import programs, web
from tests.servers.dynamodb import make_table, place
from tests.servers.moto import client_of
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

PROGRAM = programs.UNPACKED.parent / "dynalite/node_modules/dynalite/cli.js"


class Dynalite(Server):
    """DynamoDB for tests."""

    programs = ("node",)

    def __init__(self, directory: Path) -> None:
        """Nothing is started yet."""
        if not PROGRAM.exists():
            raise programs.ProgramMissing("dynalite is not here: `make tools` gets it")
        super().__init__(directory)

    @property
    def place(self) -> str:
        """The URL of the table."""
        return place(self.address)

    def client(self, service: str) -> Any:
        """A client of botocore for it."""
        return client_of(f"http://{self.address}", service, "test", "test", None)

    def _configure(self) -> None:
        """It reads no files."""

    def _initialise(self) -> None:
        make_table(self)

    def _words(self) -> Sequence[str]:
        return [
            programs.find("node"),
            str(PROGRAM),
            "--host",
            self.host,
            "--port",
            str(self.port),
            "--createTableMs",
            "0",
        ]

    def _answers(self) -> bool:
        return web.request(self.address, "GET", "/", timeout=20.0)[0] == 200
