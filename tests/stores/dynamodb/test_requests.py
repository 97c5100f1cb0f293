"""What DynamoDB refuses, and what that means for a job: credentials, rights, capacity, clocks, tables."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT, assert_in_doubt, claim, take
from tests.jobs import eventually
from tests.promises.rights import check_everything
from tests.servers import dynamodb
from tests.servers.dynamodb import DynamoDb
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl
    from tests.servers.http_proxy import Answer, Request

    Open = Callable[[str], Any]

ROOT = Path(__file__).resolve().parents[3]
SECRET = "s3cret/horse"


def refusal(code: str, message: str = "", status: int = 400, date: float | None = None) -> Answer:
    """An answer of DynamoDB."""
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}).encode()
    told = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(date))
    return status, [("Content-Type", "application/x-amz-json-1.0"), ("Date", told)], body


@pytest.fixture
def between(dynamodb_server: DynamoDb) -> Iterator[HttpProxy]:
    with HttpProxy(dynamodb_server.address) as proxy:
        yield proxy


def place(proxy: HttpProxy) -> str:
    return dynamodb.place(proxy.address, f"requests-{os.urandom(6).hex()}")


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("ProvisionedThroughputExceededException", 400, "throttled"),
        ("ThrottlingException", 400, "throttled"),
        ("RequestLimitExceeded", 400, "throttled"),
        ("TooManyRequests", 429, "throttled"),
        ("InternalServerError", 500, "InternalServerError"),
    ],
)
def test_what_may_pass_by_itself_is_an_outage(
    between: HttpProxy, opened: Open, code: str, status: int, said: str
) -> None:
    backend = opened(place(between))
    grant = take(backend, claim())
    between.look = lambda _: refusal(code, status=status)
    before = len(between.seen)
    for step in (
        lambda: backend.renew(grant, timeout=LIMIT),
        lambda: backend.try_acquire(claim(), timeout=LIMIT),
        lambda: backend.inspect("nightly", timeout=LIMIT),
    ):
        with pytest.raises(BackendUnavailable, match=said):
            step()
    assert len(between.seen) - before == 3, "nobody repeats a request by itself"
    between.look = lambda _: None
    assert backend.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("ExpiredTokenException", "no longer, valid"),
        ("UnrecognizedClientException", "no longer, valid"),
        ("AccessDeniedException", "dynamodb:UpdateItem"),
        ("ResourceNotFoundException", "aws dynamodb create-table --table-name locks"),
    ],
)
def test_what_a_person_must_change_says_so_and_a_job_lives_on(
    between: HttpProxy, opened: Open, code: str, said: str
) -> None:
    backend = opened(place(between))
    grant = take(backend, claim())
    between.look = lambda _: refusal(code, "the message")
    with pytest.raises(ConfigError, match=said) as told:
        backend.try_acquire(claim(), timeout=LIMIT)
    assert "\n" not in str(told.value)
    with pytest.raises(BackendUnavailable, match=said):
        backend.renew(grant, timeout=LIMIT)
    between.look = lambda _: None
    assert backend.renew(grant, timeout=LIMIT).token == grant.token


def test_credentials_that_expire_while_a_job_runs_are_read_again(
    lockctl: Lockctl, between: HttpProxy, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with them is exchanged, as by a daemon for that."""
    file = tmp_path / "credentials"

    def write(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    def look(request: Request) -> Answer | None:
        expired = expiring and "Credential=OLDKEY/" in request.headers["authorization"]
        return refusal("ExpiredTokenException") if expired else None

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


@pytest.mark.parametrize("hours", [-9, 9])
def test_a_wrong_clock_of_a_host_changes_neither_signatures_nor_leases(
    between: HttpProxy, opened: Open, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    wall = clock.wall

    def look(request: Request) -> Answer | None:
        """As Amazon's servers do: moto does not look at the time of a signature."""
        at = time.mktime(time.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")) - time.timezone
        late = abs(at - wall()) > 300
        return refusal("InvalidSignatureException", "Signature expired: 1 is now earlier than 2") if late else None

    between.look = look
    url = place(between)
    grant = take(opened(url), claim(ttl=30.0))
    monkeypatch.setattr(clock, "wall", lambda: wall() + hours * 3600)
    other = opened(url)
    assert other.try_acquire(claim(), timeout=LIMIT) is None
    assert abs(other.inspect("nightly", timeout=LIMIT).holders[0].acquired_at - grant.at) < 0.001
    later = take(other, claim("another"))
    assert abs(later.at - wall()) < 5
    assert 0 < later.token - grant.token < 60_000_000


def test_an_answer_that_is_not_dynamodbs_is_an_outage(between: HttpProxy, opened: Open) -> None:
    backend = opened(place(between))
    for answer in ((200, [], b"<html>"), (200, [], b"{}"), (302, [("Location", "http://elsewhere/")], b"[]")):
        between.look = lambda _, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(BackendUnavailable, match=r"not that of DynamoDB|without a date"):
            backend.try_acquire(claim(), timeout=LIMIT)


@pytest.mark.parametrize(
    "body", [b'{"message": "not found"}', b'{"status": "ok", "Items": [1]}', b'{"Item": {"a": {"S": "1"}}, "Items": 1}']
)
def test_what_stands_before_dynamodb_says_nothing_about_a_lock(between: HttpProxy, opened: Open, body: bytes) -> None:
    backend = opened(place(between))
    grant = take(backend, claim())
    between.look = lambda _: (200, refusal("")[1], body)
    assert_in_doubt(backend, grant, "not that of DynamoDB")
    between.look = lambda _: None
    assert backend.renew(grant, timeout=LIMIT).token == grant.token


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


def test_the_policy_of_the_manual_is_enough(lockctl: Lockctl, start_server: Callable[..., Any], opened: Open) -> None:
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
