"""What `lockctl doctor` finds in a table of DynamoDB that is not as it should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.servers import dynamodb
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.dynamodb import DynamoDb
    from tests.servers.http_proxy import Answer, Request

    Diagnose = Callable[..., Diagnosis]


def test_a_table_as_it_should_be_is_ok(diagnose: Diagnose, dynamodb_server: DynamoDb) -> None:
    assert diagnose(dynamodb_server.place).troubles("dynamodb.", "backend.") == {}


def test_a_table_of_little_capacity_with_another_key_is_found(diagnose: Diagnose, dynamodb_server: DynamoDb) -> None:
    few = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    dynamodb.make_table(dynamodb_server, "few", "LockID", BillingMode="PROVISIONED", ProvisionedThroughput=few)
    found = diagnose(dynamodb_server.place.replace("locks", "few") + "&key=LockID")
    assert found.troubles("dynamodb.", "backend.") == {"dynamodb.capacity": "warn"}
    found = diagnose(dynamodb_server.place.replace("locks", "few"))
    assert found.levels()["dynamodb.table"] == "fail"
    found = diagnose(dynamodb_server.place.replace("locks", "nowhere"))
    assert found.levels()["dynamodb.table"] == "fail"
    assert "--table-name nowhere" in found["dynamodb.table"]["remedy"]


def test_rights_that_lack_and_copies_in_other_regions_are_found(diagnose: Diagnose, dynamodb_server: DynamoDb) -> None:
    """Neither is in moto: a proxy before it changes what it says."""

    def look(request: Request) -> Answer | None:
        denied = request.headers["x-amz-target"].endswith(("DeleteItem", *more))
        return (400, [], json.dumps({"__type": "x#AccessDeniedException"}).encode()) if denied else None

    def look_back(request: Request, answer: Answer) -> Answer:
        status, fields, body = answer
        if status == 200 and request.headers["x-amz-target"].endswith("DescribeTable"):
            content: dict[str, Any] = json.loads(body)
            content["Table"]["Replicas"] = [{"RegionName": "eu-west-1"}]
            body = json.dumps(content).encode()
        return status, fields, body

    more: list[str] = []
    with HttpProxy(dynamodb_server.address, look) as proxy:
        proxy.look_back = look_back
        found = diagnose(dynamodb.place(proxy.address))
        assert found.troubles("dynamodb.") == {"dynamodb.rights": "fail", "dynamodb.replicas": "warn"}
        assert found["dynamodb.rights"]["seen"] == "not allowed: DeleteItem"
        more.append("DescribeTable")
        assert diagnose(dynamodb.place(proxy.address)).levels()["dynamodb.table"] == "warn"
