"""What DynamoDB refuses, and what that means for a job: credentials, rights, tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT, claim, take
from tests.jobs import eventually
from tests.promises.rights import check_everything
from tests.servers import dynamodb
from tests.servers.dynamodb import DynamoDb
from tests.stores.test_refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.http_proxy import Answer, HttpProxy, Request

    Open = Callable[[str], Any]

ROOT = Path(__file__).resolve().parents[3]
SECRET = "s3cret/horse"


@pytest.fixture
def store() -> str:
    return "dynamodb"


def place(proxy: HttpProxy) -> str:
    return dynamodb.place(proxy.address, f"requests-{os.urandom(6).hex()}")


def test_credentials_that_expire_while_a_job_runs_are_read_again(
    lockctl: Lockctl, between: HttpProxy, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with them is exchanged, as by a daemon for that."""
    file = tmp_path / "credentials"

    def write(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    def look(request: Request) -> Answer | None:
        expired = expiring and "Credential=OLDKEY/" in request.headers["authorization"]
        return refusal("dynamodb", 400, "ExpiredTokenException")(request) if expired else None

    write("OLDKEY")
    expiring: list[bool] = []
    between.look = look
    lockctl.url = place(between).replace(dynamodb.LOGIN, "")
    own = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    own |= {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_CONFIG_FILE": "/nonexistent"}
    monkeypatch.setattr(os, "environ", own)
    holder = lockctl.start_holding("nightly", "-t", "6s", "--kill-after", "0")
    expiring.append(True)
    refused = len(between.seen)
    eventually(lambda: len(between.seen) > refused + 2)
    write("NEWKEY")
    renewed = len(between.seen)
    eventually(lambda: len(between.seen) > renewed + 6, limit=20.0)
    assert holder.poll() is None, "the job went on"
    lockctl.end_all()


def test_an_answer_that_is_not_dynamodbs_is_an_outage(between: HttpProxy, opened: Open) -> None:
    backend = opened(place(between))
    for answer in ((200, [], b"<html>"), (200, [], b"{}"), (302, [("Location", "http://elsewhere/")], b"[]")):
        between.look = lambda _, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(BackendUnavailable, match=r"not that of DynamoDB|without a date"):
            backend.try_acquire(claim(), timeout=LIMIT)


def test_a_table_with_another_key_is_named(dynamodb_server: DynamoDb, opened: Open) -> None:
    dynamodb.make_table(dynamodb_server, "terraform", "LockID")
    url = dynamodb.place(dynamodb_server.address).replace("locks", "terraform")
    with pytest.raises(ConfigError, match="key= names the partition key"):
        opened(url).try_acquire(claim(), timeout=LIMIT)
    grant = take(opened(f"{url}&key=LockID"), claim())
    for look in (
        lambda: opened(url).list("*", timeout=LIMIT),
        lambda: opened(url).unused("*", older_than=0.0, timeout=LIMIT),
    ):
        with pytest.raises(ConfigError, match="key= names the partition key"):
            list(look())
    assert opened(f"{url}&key=LockID").inspect("nightly", timeout=LIMIT).holders[0].token == grant.token


def test_no_credentials_and_no_region_are_a_matter_for_a_person(lockctl: Lockctl, dynamodb_server: DynamoDb) -> None:
    nothing = {
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    url = f"dynamodb://locks/x?endpoint=http://{dynamodb_server.address}"
    for place, said in ((url, "no credentials"), ("dynamodb://a:b@locks/x", "in which region")):
        done = lockctl("run", "-b", place, "-l", "nightly", "--", "true", env=nothing)
        assert (done.returncode, done.stderr.count("\n")) == (78, 1)
        assert said in done.stderr


def test_the_policy_of_the_manual_is_enough(
    lockctl: Lockctl, start_server: Callable[..., Any], opened: Open, tmp_path: Any
) -> None:
    text = (ROOT / "man/text/lockctl-backends.7.txt").read_text().partition("# DYNAMODB")[2]
    policy = text.partition("    {")[2].partition("}]}")[0]
    written = json.loads("{" + policy + "}]}")
    assert written["Statement"][0].pop("Resource").endswith("table/locks")
    written["Statement"][0]["Resource"] = "*"  # moto looks at the actions alone
    # make the table, a user with two keys and two policies
    server = start_server(DynamoDb, verified_after=8)
    iam = server.client("iam")

    def user(name: str, document: dict[str, Any]) -> str:
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="locks", PolicyDocument=json.dumps(document))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        login = f"{key['AccessKeyId']}:{key['SecretAccessKey'].replace('/', '%2F')}@"
        return str(server.place).replace(dynamodb.LOGIN, login)

    reading = {**written, "Statement": [{**written["Statement"][0], "Action": ["dynamodb:GetItem"]}]}
    enough, too_little = user("locks", written), user("reader", reading)
    assert opened(too_little).inspect("nightly", timeout=LIMIT).state == "free"
    with pytest.raises(ConfigError, match="needed are dynamodb:GetItem, dynamodb:UpdateItem"):
        opened(too_little).try_acquire(claim(), timeout=LIMIT)
    check_everything(lockctl, enough)
    wrong = enough.replace("@", "x@")
    with pytest.raises(ConfigError, match="credentials are not"):
        opened(wrong).inspect("nightly", timeout=LIMIT)
    login, _, place = enough.partition("@")
    access, _, secret = login.rpartition(":")
    file = tmp_path / "secret"
    file.write_text("another")
    client = opened(f"{access}@{place}&password_file={file}")
    with pytest.raises(ConfigError, match="credentials are not"):
        client.inspect("nightly", timeout=LIMIT)
    file.write_text(secret.replace("%2F", "/"))
    assert client.inspect("nightly", timeout=LIMIT).state == "free", "the file is read again"
