"""lockctl and the lock client of AWS exclude each other. The client is in Java: what it asks of DynamoDB is asked here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.dynamodb.cell import DynamoDbCells
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.jobs import eventually
from tests.servers import dynamodb

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from tests.servers.dynamodb import DynamoDb

NAMES = {"#pk": "key", "#rvn": "recordVersionNumber"}
LEASE = 2000  # milliseconds
WHOLE = DynamoDbCells.clock_error + 1.0  # seconds after the end of a lease at which it has surely ended


class LockClient:
    """What AmazonDynamoDBLockClient asks for, without a sort key."""

    def __init__(self, server: DynamoDb, key: str) -> None:
        self.client = server.client("dynamodb")
        self.where = {"TableName": dynamodb.TABLE}
        self.key = {"key": {"S": key}}
        self.version = ""

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get_item(**self.where, Key=self.key, ConsistentRead=True).get("Item", {})
        return found

    def acquire(self, *, stale: str | None = None, update: bool = False) -> bool:
        """Take what is absent, released, or has still the version *stale* when its lease is over."""
        seen = self.look()
        condition, values = "attribute_not_exists(#pk)", dict[str, Any]()
        if "isReleased" in seen:
            condition, values = "attribute_exists(#pk) AND #ir = :ir", {":ir": {"S": "1"}}
        elif stale is not None:
            condition, values = "attribute_exists(#pk) AND #rvn = :rvn", {":rvn": {"S": stale}}
        elif seen:
            return False
        names = {each: {**NAMES, "#ir": "isReleased"}[each] for each in ("#pk", "#ir", "#rvn") if each in condition}
        self.version = os.urandom(16).hex()
        fields = {"ownerName": {"S": "java"}, "leaseDuration": {"S": str(LEASE)}}
        fields["recordVersionNumber"] = {"S": self.version}
        words: dict[str, Any] = {"ConditionExpression": condition, "ExpressionAttributeNames": names}
        try:
            if update:
                change = "SET " + ", ".join(f"{name} = :{name}" for name in fields) + " REMOVE isReleased"
                values |= {f":{name}": content for name, content in fields.items()}
                words |= {"UpdateExpression": change, "ExpressionAttributeValues": values}
                self.client.update_item(**self.where, Key=self.key, **words)
            else:
                words |= {"ExpressionAttributeValues": values} if values else {}
                self.client.put_item(**self.where, Item={**self.key, **fields, "data": {"B": b"mine"}}, **words)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def change(self, change: str, **values: str) -> bool:
        try:
            self.client.update_item(
                **self.where,
                Key=self.key,
                UpdateExpression=change,
                ConditionExpression="attribute_exists(#pk) AND #rvn = :rvn AND ownerName = :owner",
                ExpressionAttributeNames=NAMES,
                ExpressionAttributeValues={
                    ":rvn": {"S": self.version},
                    ":owner": {"S": "java"},
                    **{f":{name}": {"S": content} for name, content in values.items()},
                },
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def heartbeat(self) -> bool:
        new = os.urandom(16).hex()
        done = self.change("SET leaseDuration = :lease, #rvn = :new", lease=str(LEASE), new=new)
        self.version = new if done else self.version
        return done

    def release(self) -> bool:
        return self.change("SET isReleased = :one", one="1")


@pytest.fixture
def prefix() -> str:
    return f"client-{os.urandom(6).hex()}/"


@pytest.fixture
def backend(dynamodb_server: DynamoDb, prefix: str, opened: Callable[[str], Any]) -> Backend:
    made: Backend = opened(dynamodb.place(dynamodb_server.address, prefix))
    return made


@pytest.fixture
def java(dynamodb_server: DynamoDb, prefix: str) -> LockClient:
    return LockClient(dynamodb_server, f"{prefix}nightly")


def test_a_lock_of_ours_keeps_the_client_out_until_it_is_released(backend: Backend, java: LockClient) -> None:
    grant = take(backend, claim())
    seen = java.look()
    assert int(seen["leaseDuration"]["S"]) >= grant.ttl * 1000
    assert seen["ownerName"]["S"] == grant.claim.host
    assert not java.acquire()
    backend.renew(grant, timeout=LIMIT)
    assert not java.acquire(stale=seen["recordVersionNumber"]["S"]), "each renewal gives the record a new version"
    backend.release(grant, timeout=LIMIT)
    assert java.acquire()


def test_a_lock_of_the_client_keeps_us_out_until_it_is_released(backend: Backend, java: LockClient) -> None:
    assert java.acquire()
    for _ in range(3):
        assert refused(backend, claim())
        assert java.heartbeat(), "what is noted in the item does not disturb the client"
    assert backend.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert java.release()
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    take(backend, claim())
    assert not java.acquire()
    assert java.look()["data"]["B"] == b"mine", "what it keeps in the item stays there"


def test_the_lock_of_a_client_that_is_gone_ends_when_its_record_stood_still_for_its_lease(
    backend: Backend, java: LockClient, dynamodb_server: DynamoDb, prefix: str, opened: Callable[[str], Any]
) -> None:
    assert java.acquire()
    began = dynamodb_server.now()
    assert refused(backend, claim())
    assert java.heartbeat()
    # each one who looks is another run: what was seen is remembered in the item
    while refused(opened(dynamodb.place(dynamodb_server.address, prefix)), claim()):
        assert dynamodb_server.now() - began < LEASE / 1000 + 2 * WHOLE + LIMIT
    assert dynamodb_server.now() - began >= LEASE / 1000
    assert not java.heartbeat(), "it learns that it has lost its lock"


@pytest.mark.parametrize("update", [False, True], ids=["replaced", "updated"])
def test_a_lock_that_the_client_took_from_us_is_lost_and_tokens_rise(
    backend: Backend, java: LockClient, *, update: bool
) -> None:
    before = take(backend, claim())
    assert java.acquire(stale=java.look()["recordVersionNumber"]["S"], update=update)
    with pytest.raises(Exception, match="another program has written"):
        backend.renew(before, timeout=LIMIT)
    backend.release(before, timeout=LIMIT)
    assert java.heartbeat()
    assert java.release()
    backend.withdraw(before.claim, timeout=LIMIT)
    later = take(backend, claim())
    assert later.token > before.token
    backend.release(later, timeout=LIMIT)


def test_a_waiter_gets_the_lock_when_the_client_releases_it(backend: Backend, java: LockClient) -> None:
    assert java.acquire()
    mine = claim()
    assert backend.try_acquire(mine, timeout=LIMIT) is None
    assert java.release()

    def served() -> bool:
        backend.wait(mine, timeout=1.0, interrupt=None)
        return backend.try_acquire(mine, timeout=LIMIT) is not None

    eventually(served)


def test_what_the_client_holds_can_be_taken_away_by_force_while_it_renews(backend: Backend, java: LockClient) -> None:
    assert java.acquire()
    holder = holder_of(backend)
    assert java.heartbeat()
    least = revoke(backend, holder, now=True)
    assert least is not None
    assert not java.heartbeat()
    assert take(backend, claim()).token >= least
