"""Marks in a DynamoDB table: one item for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.dynamodb.cell import DynamoDbCells, prefix
from lockctl.stores.dynamodb.protocol import PARAMETERS, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url


class DynamoDbStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> DynamoDbStore:
        """``dynamodb://TABLE/PREFIX?region=REGION``; raises ``ConfigError``."""
        table = Table(url)
        table.load()
        return cls(DynamoDbCells(table), prefix(url.path) or PREFIX)
