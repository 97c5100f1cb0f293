"""Cells in items of a DynamoDB table: conditional updates, and reads that see every write before them.

The clock is that of the servers, from the ``Date`` of their answers: in whole seconds, and of one of many machines.
"""

from __future__ import annotations

import os

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen
from lockctl.model import Capabilities, Cost
from lockctl.names import printable
from lockctl.stores.dynamodb import layout
from lockctl.stores.dynamodb.layout import RELEASED, SEEN, SEEN_AT, VERSION, Version
from lockctl.stores.dynamodb.protocol import NOT_MET, PARAMETERS, Refused, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

LONGEST_PREFIX = 300  # bytes
# what an answer may have: another has nothing of it, and would be that of an item that is not there
ANSWER = frozenset(("Item", "Attributes", "ConsumedCapacity", "ItemCollectionMetrics"))


class DynamoDbCells(Cells):
    """The items of one table."""

    longest_look = 1.0
    clock_error = 2.0  # whole seconds, and what the clocks of its machines may differ

    def __init__(self, table: Table) -> None:
        """Connects when it is first used."""
        self._table = table
        self.where = table.where

    def read(self, key: str, deadline: Deadline) -> Seen:
        content, at = self._asked("GetItem", {**self._key(key), "ConsistentRead": True}, deadline)
        item = content.get("Item")
        if item is None:
            return Seen(None, None, at)
        if not isinstance(item, dict) or layout.text(item, self._table.key) != layout.item_key(key):
            raise self._strange()
        return layout.read(item, at, self.clock_error)

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """See ``Cells``. What other programs keep in the item stays there."""
        if data is None:
            if seen.version is None:
                return self.read(key, deadline).version is None
            return self._done("DeleteItem", key, seen.version, {}, "", deadline)
        attributes, is_held = layout.written(data, os.urandom(16).hex(), seen.at, self.clock_error)
        removed = [SEEN, SEEN_AT]
        if is_held:
            removed.append(RELEASED)
        else:
            attributes[RELEASED] = {"S": "1"}
        change = "SET " + ", ".join(f"{name} = :{name}" for name in attributes) + " REMOVE " + ", ".join(removed)
        return self._done("UpdateItem", key, seen.version, attributes, change, deadline)

    def observe(self, key: str, seen: Seen, deadline: Deadline) -> None:
        """See ``Cells``: the version of the record, and since when it is there, beside it."""
        version = seen.version
        if isinstance(version, Version) and version.number is not None and not version.noted:
            attributes = {SEEN: {"S": version.number}, SEEN_AT: {"N": str(int(seen.at))}}
            change = f"SET {SEEN} = :{SEEN}, {SEEN_AT} = :{SEEN_AT}"
            self._done("UpdateItem", key, version, attributes, change, deadline)

    def known_by(self, seen: Seen) -> object:
        """See ``Cells``: who it is, of which :func:`layout.read` makes the data."""
        return seen.data

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``. All of the table is read, whatever the prefix."""
        fields: dict[str, Any] = {"ConsistentRead": True}
        while True:
            content, at = self._table.ask("Scan", fields, deadline)
            items = content.get("Items")
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise self._strange()
            for item in items:
                name = layout.text(item, self._table.key)
                if name is None:
                    missing = f"its items have no text {printable(self._table.key)}"
                    raise ConfigError(f"{self.where}: {missing}: key= names the partition key, a text, of the table")
                key = layout.cell_key(name)
                if key.startswith(prefix):
                    yield key, layout.read(item, at, self.clock_error)
            if not content.get("LastEvaluatedKey"):
                return
            fields["ExclusiveStartKey"] = content["LastEvaluatedKey"]

    def close(self) -> None:
        self._table.close()

    def shown(self, key: str) -> str:
        return layout.item_key(key)

    def _key(self, key: str) -> dict[str, Any]:
        return {"Key": {self._table.key: {"S": layout.item_key(key)}}}

    def _done(
        self, operation: str, key: str, version: object, attributes: layout.Item, change: str, deadline: Deadline
    ) -> bool:
        """Whether an item was changed, which it was if it still had this *version*."""
        fields: dict[str, Any] = {**self._key(key), "ExpressionAttributeNames": {"#key": self._table.key}}
        values = {f":{name}": content for name, content in attributes.items()}
        condition = "attribute_not_exists(#key)"
        if isinstance(version, Version):
            condition = f"attribute_exists(#key) AND attribute_{'' if version.released else 'not_'}exists({RELEASED})"
            if version.number is None:
                condition += f" AND attribute_not_exists({VERSION})"
            else:
                condition += f" AND {VERSION} = :seen"
                values[":seen"] = {"S": version.number}
        if change:
            fields["UpdateExpression"] = change
        if values:
            fields["ExpressionAttributeValues"] = values
        try:
            self._asked(operation, {**fields, "ConditionExpression": condition}, deadline)
        except Refused as refused:
            if refused.code == NOT_MET:
                return False
            raise
        return True

    def _asked(self, operation: str, fields: dict[str, Any], deadline: Deadline) -> tuple[dict[str, Any], float]:
        content, at = self._table.ask(operation, fields, deadline)
        if not ANSWER.issuperset(content):
            raise self._strange()
        return content, at

    def _strange(self) -> BackendUnavailable:
        return BackendUnavailable(f"{self.where}: the answer is not that of DynamoDB")


class DynamoDbBackend(CellBackend):
    """Locks in one table."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="dynamodb",
        rate_error=0.01,
        heartbeat=5.0,
        freed_when="its lease has run out, and two to three seconds more, by the clocks of the servers",
        token_from="a counter in the item of the lock, never below the servers' clock in microseconds; breaks if a"  # noqa: S106
        " table is put back to an earlier state, or its items are removed while that clock goes back",
        survives="all failures that DynamoDB survives in one region; global tables do not keep locks between regions",
        clocks="the servers' clocks agree within a second: their Date ends the leases; those of hosts do not matter",
        period_clock="the servers'",
        holder_cost=Cost(1440, 0.0005),
        waiter_cost=Cost(5500, 0.0009),
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        return url.user is not None

    @classmethod
    def from_url(cls, url: Url) -> DynamoDbBackend:
        """``dynamodb://TABLE/PREFIX?region=REGION``; raises ``ConfigError``."""
        table = Table(url)
        table.load()
        return cls(DynamoDbCells(table), prefix(url.path))


def prefix(path: str) -> str:
    """What keys begin with for the path of a URL; raises ``ConfigError``."""
    found = path.removeprefix("/")
    if found.startswith(layout.OTHERS) or len(found.encode()) > LONGEST_PREFIX:
        raise ConfigError(f"dynamodb: a prefix has at most {LONGEST_PREFIX} bytes, and does not begin with #")
    return found if not found or found.endswith("/") else found + "/"
