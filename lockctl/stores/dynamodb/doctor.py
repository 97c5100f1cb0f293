"""What would break locks in a DynamoDB table: its key, its state, its capacity, its copies, and our rights."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import WHOLE_SECONDS, Check, Examination
from lockctl.names import printable
from lockctl.stores.dynamodb.layout import OTHERS
from lockctl.stores.dynamodb.protocol import ACTIONS, DENIED, NO_TABLE, NOT_MET, Refused, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PATIENCE = 5.0  # seconds for one answer
FEW = 5  # units of capacity in a second: a few jobs that contend use that up

TABLE = Check(
    "dynamodb.table",
    "Each lock is one item, found by a partition key that is a string; a table with a sort key cannot have it.",
    "{creation}",
)
CAPACITY = Check(
    "dynamodb.capacity",
    "A renewal that is throttled has not been done: a job is stopped when its lease cannot be renewed in time.",
    "aws dynamodb update-table --table-name {table} --billing-mode PAY_PER_REQUEST",
)
REPLICAS = Check(
    "dynamodb.replicas",
    "Regions of a global table learn of a write later: two hosts in two regions can both get a lock.",
    "name one region for all hosts, with region= in the URL, or use a table of one region",
)
RIGHTS = Check(
    "dynamodb.rights",
    "Without these rights a lock cannot be acquired, listed or removed.",
    f"allow {ACTIONS} for the table in the IAM policy",
)
CHECKS = (TABLE, CAPACITY, REPLICAS, RIGHTS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the table of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    table = Table(url)
    found.where = table.where
    found.words.update(table=table.name, creation=table.creation())
    if found.lacks("botocore", "dynamodb", needed=True):
        return
    try:
        _look(table, found, deadline)
    except Refused as refused:
        if refused.code != NO_TABLE:
            raise
        found.judge(TABLE, "there is no such table", fails=True)
    finally:
        table.close()


def _look(table: Table, found: Examination, deadline: Deadline) -> None:
    key = {"Key": {table.key: {"S": f"{OTHERS}doctor"}}}

    def ask() -> float:
        return table.ask("GetItem", {**key, "ConsistentRead": True}, deadline.sooner(PATIENCE))[1]

    try:
        described = table.ask("DescribeTable", {}, deadline.sooner(PATIENCE))[0]["Table"]
    except Refused as refused:
        if refused.code not in DENIED:
            raise
        found.judge(TABLE, "dynamodb:DescribeTable, which locks do not need, is not allowed", warns=True)
    else:
        _judge_table(described, table, found)
    _judge_rights(table, key, found, deadline)
    found.measure(ask, WHOLE_SECONDS)


def _judge_table(described: dict[str, Any], table: Table, found: Examination) -> None:
    keys = {each["AttributeName"]: each["KeyType"] for each in described["KeySchema"]}
    kinds = {each["AttributeName"]: each["AttributeType"] for each in described["AttributeDefinitions"]}
    shown = ", ".join(f"{name} ({kind}, {kinds.get(name)})" for name, kind in keys.items())
    fits = keys == {table.key: "HASH"} and kinds.get(table.key) == "S"
    ready = described.get("TableStatus") in ("ACTIVE", "UPDATING")
    found.judge(TABLE, printable(f"{described.get('TableStatus')}, key: {shown}"), fails=not (fits and ready))
    capacity = described.get("ProvisionedThroughput") or {}
    least = min(int(capacity.get(name) or 0) for name in ("ReadCapacityUnits", "WriteCapacityUnits"))
    on_demand = (described.get("BillingModeSummary") or {}).get("BillingMode") == "PAY_PER_REQUEST" or least == 0
    found.judge(CAPACITY, "on demand" if on_demand else f"{least} units", warns=not on_demand and least <= FEW)
    replicas = [str(each.get("RegionName")) for each in described.get("Replicas") or ()]
    strong = described.get("MultiRegionConsistency") == "STRONG"
    seen = printable("also in " + ", ".join(replicas)) if replicas else "one region"
    found.judge(REPLICAS, seen, warns=bool(replicas) and not strong)


def _judge_rights(table: Table, key: dict[str, Any], found: Examination, deadline: Deadline) -> None:
    """Ask for each right by a request that changes nothing: its condition cannot be met."""
    never = {
        **key,
        "ConditionExpression": "attribute_exists(#key) AND attribute_not_exists(#key)",
        "ExpressionAttributeNames": {"#key": table.key},
    }
    lacking = []
    for operation, fields in (
        ("GetItem", key),
        ("UpdateItem", never),
        ("DeleteItem", never),
        ("Scan", {"Limit": 1}),
    ):
        try:
            table.ask(operation, fields, deadline.sooner(PATIENCE))
        except Refused as refused:
            if refused.code in DENIED:
                lacking.append(operation)
            elif refused.code != NOT_MET:
                raise ConfigError(str(refused)) from None
    found.judge(RIGHTS, f"not allowed: {', '.join(lacking)}" if lacking else "all", fails=bool(lacking))
