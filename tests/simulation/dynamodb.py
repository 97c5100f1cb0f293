"""DynamoDB as far as lockctl talks to it: items that are read, and updated or deleted on a condition.

Of its machines each tells its own time, in whole seconds. A read that does not ask for a consistent one may show what
was there before the last write.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from tests.simulation.http import HttpServer
from tests.simulation.objects import APART
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.streams import Link

    Item = dict[str, dict[str, str]]

JSON = "Content-Type: application/x-amz-json-1.0"
PAGE = 2  # items of an answer, of which 1 MB may be the most
BEHIND = 1.0  # seconds for which a read may not show a write


class DynamoServer(HttpServer):
    """One table, whose partition key is ``key``."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.items: dict[str, Item] = {}
        self._before: dict[str, tuple[Item | None, float]] = {}  # of an item: what was there, and until when

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy(self.items)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.items, self._before = memory or {}, {}

    def time(self) -> float:
        """See ``HttpServer``."""
        return self.clock.wall() - APART * Here.world.chance()

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        asked, operation = json.loads(body), self.field("x-amz-target").partition(".")[2]
        if operation == "Scan":
            return self.whole(200, json.dumps(self._page(asked.get("ExclusiveStartKey"))), JSON)
        key = asked["Key"]["key"]["S"]
        there = self.items.get(key)
        if operation == "GetItem":
            before, until = self._before.get(key, (None, -BEHIND))
            if not asked.get("ConsistentRead") and Here.world.now < until + BEHIND * Here.world.chance():
                there = before
            return self.whole(200, json.dumps({} if there is None else {"Item": there}), JSON)
        names = asked.get("ExpressionAttributeNames", {})
        values = asked.get("ExpressionAttributeValues", {})
        if not _is_met(asked.get("ConditionExpression", ""), there or {}, names, values):
            kind = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
            return self.whole(400, json.dumps({"__type": kind, "message": "The conditional request failed"}))
        if operation == "DeleteItem":
            self.put(key, None)
        else:
            self.put(key, _updated(there or {"key": {"S": key}}, asked["UpdateExpression"], values))
        return self.whole(200, "{}", JSON)

    def shown(self, method: str, target: str, body: str) -> str:
        """See ``HttpServer``."""
        asked, operation = json.loads(body), self.field("x-amz-target").partition(".")[2]
        values = asked.get("ExpressionAttributeValues", {})
        condition = asked.get("ConditionExpression", "")
        for name in [each for each in values if each in condition]:
            condition = condition.replace(name, str(*values[name].values()))
        key = asked.get("Key", {}).get("key", {}).get("S", "")
        return f"{operation} {key}, if {condition}" if condition else f"{operation} {key}"

    def _page(self, after: Item | None) -> dict[str, Any]:
        """Some items behind a key, and the last key if there are more."""
        keys = sorted(self.items)
        keys = keys if after is None else [each for each in keys if each > after["key"]["S"]]
        page = {"Items": [self.items[each] for each in keys[:PAGE]]}
        return page if len(keys) <= PAGE else {**page, "LastEvaluatedKey": {"key": {"S": keys[PAGE - 1]}}}

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        status, kind = Here.world.random.choice(((400, "ThrottlingException"), (500, "InternalServerError")))
        return self.whole(status, json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{kind}"}), JSON)

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self.whole(400, json.dumps({"__type": "com.amazon.coral.service#AccessDeniedException"}), JSON)

    def is_let_in(self, target: str) -> bool:
        """See ``HttpServer``."""
        return self.field("x-amz-security-token") == str(self.login)

    def expired(self) -> bytes:
        """See ``HttpServer``."""
        return self.whole(400, json.dumps({"__type": "com.amazon.coral.service#ExpiredTokenException"}), JSON)

    def put(self, key: str, item: Item | None) -> None:
        """Have an item, or none."""
        self._before[key] = self.items.pop(key, None), Here.world.now
        if item is not None:
            self.items[key] = item


def _is_met(condition: str, item: Item, names: dict[str, str], values: dict[str, Any]) -> bool:
    """Whether all parts of a condition are."""
    for part in filter(None, condition.split(" AND ")):
        function, _, name = part.removesuffix(")").partition("(")
        if function in ("attribute_exists", "attribute_not_exists"):
            met = (names.get(name, name) in item) == (function == "attribute_exists")
        else:
            name, _, value = part.partition(" = ")
            met = item.get(names.get(name, name)) == values[value]
        if not met:
            return False
    return True


def _updated(item: Item, change: str, values: dict[str, Any]) -> Item:
    """An item after ``SET name = :value, ... REMOVE name, ...``."""
    made = dict(item)
    sets, _, removes = change.removeprefix("SET ").partition(" REMOVE ")
    for each in sets.split(", "):
        name, _, value = each.partition(" = ")
        made[name] = values[value]
    for name in filter(None, removes.split(", ")):
        made.pop(name, None)
    return made
