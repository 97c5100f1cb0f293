"""A DynamoDB server: moto's, with one table. It compares and writes in one step, because it gets one request at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.servers.moto import Moto

if TYPE_CHECKING:
    from typing_extensions import Self

    from tests.servers.dynalite import Dynalite

TABLE = "locks"
LOGIN = "test:test@"  # everybody may do all


class DynamoDb(Moto):
    """DynamoDB for tests."""

    def _initialise(self) -> None:
        make_table(self)

    def start(self) -> Self:
        """It keeps tables in memory only: after a restart there is an empty one."""
        self._initialised = False
        return super().start()

    def now(self) -> float:
        """Its clock, which is that of this machine."""
        return time.time()

    @property
    def place(self) -> str:
        """The URL of the table."""
        return place(self.address)


def place(address: str, prefix: str = "") -> str:
    """The URL of the table behind an address."""
    return f"dynamodb://{LOGIN}{TABLE}/{prefix}?endpoint=http://{address}"


def make_table(server: Moto | Dynalite, name: str = TABLE, key: str = "key", **more: object) -> None:
    """A table as lockctl wants it, unless there is one."""
    client = server.client("dynamodb")
    if name not in client.list_tables()["TableNames"]:
        client.create_table(
            TableName=name,
            **{"BillingMode": "PAY_PER_REQUEST", **more},
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
