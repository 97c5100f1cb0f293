"""The policy in lockctl-backends(7) is enough for all that locks do, and each part of it is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import ConfigError
from lockctl.wire.http import quoted
from tests.contract.harness import LIMIT
from tests.promises.rights import use_objects
from tests.servers.moto import Moto

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend

BUCKET = "my-bucket"  # as in the manual
OTHER = ["s3:GetBucketLocation"]  # a statement must allow something


def policy_of_the_manual() -> dict[str, Any]:
    """What the manual says."""
    page = Path(__file__).resolve().parents[3] / "man/text/lockctl-backends.7.txt"
    text = page.read_text(encoding="utf-8")
    _, mark, rest = text.partition('    {"Version"')
    found: dict[str, Any] = json.loads((mark + rest).partition("\n\n")[0])
    return found


def test_the_policy_of_the_manual_is_enough_and_all_of_it_is_needed(
    start_server: Callable[..., Any],
) -> None:
    # create the bucket, and of a user for each policy the user, the policy and the key
    policies = [policy_of_the_manual()]
    for number, statement in enumerate(policies[0]["Statement"]):
        for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
            if action in statement["Action"]:
                fewer = json.loads(json.dumps(policies[0]))
                fewer["Statement"][number]["Action"] = [each for each in statement["Action"] if each != action] or OTHER
                policies.append(fewer)
    assert len(policies) == 4
    server = start_server(Moto, verified_after=1 + 3 * len(policies))
    server.client().create_bucket(Bucket=BUCKET)
    iam, urls = server.client("iam"), []
    for number, policy in enumerate(policies):
        iam.create_user(UserName=f"u{number}")
        iam.put_user_policy(UserName=f"u{number}", PolicyName="locks", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=f"u{number}")["AccessKey"]
        login = f"{key['AccessKeyId']}:{quoted(key['SecretAccessKey'])}@"
        urls.append(f"s3://{login}{BUCKET}/locks?endpoint={server.url}")
    use_objects(urls[0])
    for url in urls[1:]:
        with pytest.raises(
            ConfigError, match=r"needed are s3:GetObject, s3:PutObject and s3:DeleteObject for locks/\*"
        ):
            use_objects(url)
    with pytest.raises(ConfigError, match="needed are"):
        use_objects(urls[0].replace("/locks", "/elsewhere"))


def test_a_secret_key_in_a_file_is_read_again_once_it_was_refused(
    start_server: Callable[..., Any], opened: Callable[[str], Backend], tmp_path: Path
) -> None:
    server: Moto = start_server(Moto, verified_after=4)
    server.client().create_bucket(Bucket=BUCKET)
    iam = server.client("iam")
    iam.create_user(UserName="ops")
    iam.put_user_policy(UserName="ops", PolicyName="locks", PolicyDocument=json.dumps(policy_of_the_manual()))
    key, file = iam.create_access_key(UserName="ops")["AccessKey"], tmp_path / "secret"
    file.write_text("another")
    client = opened(f"s3://{key['AccessKeyId']}@{BUCKET}/locks?endpoint={server.url}&password_file={file}")
    with pytest.raises(ConfigError, match="not, or no longer, valid"):
        client.inspect("nightly", timeout=LIMIT)
    file.write_text(key["SecretAccessKey"])
    assert client.inspect("nightly", timeout=LIMIT).state == "free"
