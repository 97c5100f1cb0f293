"""Marks in S3: the contract, and what only S3 can do to a mark."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import fence
from lockctl.errors import ConfigError
from lockctl.fence import Stale
from lockctl.fence.stores.objects import Overtaken
from tests.fence.contract import LIMIT, Client, mark
from tests.fence.objects import SIDE, ObjectContract, ObjectHarness, once, write, writes_data, writes_mark
from tests.servers.moto import Moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.certificates import Certificates
    from tests.servers.http_proxy import Answer, HttpProxy, Request

pytestmark = pytest.mark.slow

SECRET = "wJalrXUtnFEMI0K7MDENG0bPxRfiCYEXAMPLEKEY"


class S3Harness(ObjectHarness):
    """A bucket of its own."""

    def __init__(self, server: Moto) -> None:
        super().__init__(server)
        self.bucket = f"t{os.urandom(6).hex()}"
        self.peer = server.client()
        self.peer.create_bucket(Bucket=self.bucket)

    def at(self, address: str, resource: str) -> str:
        return f"s3://{self.bucket}/{resource}?endpoint=http://{address}&region=us-east-1"

    def stored(self, name: str) -> bytes | None:
        try:
            data = self.peer.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        except self.peer.exceptions.NoSuchKey:
            return None
        assert isinstance(data, bytes)
        return data

    def place(self, name: str, data: bytes) -> None:
        self.peer.put_object(Bucket=self.bucket, Key=name, Body=data)

    def names(self) -> set[str]:
        return {each["Key"] for each in self.peer.list_objects_v2(Bucket=self.bucket).get("Contents", ())}

    def close(self) -> None:
        super().close()
        self.peer.close()


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    server = Moto(tmp_path_factory.mktemp("moto")).start()
    yield server
    server.discard()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def harness(moto: Moto) -> Iterator[S3Harness]:
    made = S3Harness(moto)
    yield made
    made.close()


class TestS3(ObjectContract):
    """Every promise."""

    def test_what_belongs_to_an_object_stays_and_says_which_token_wrote_it(
        self, harness: S3Harness, client: Client
    ) -> None:
        what = {
            "ContentType": "application/json",
            "CacheControl": "no-cache",
            "ContentLanguage": "de",
            "StorageClass": "STANDARD_IA",
            "WebsiteRedirectLocation": "/elsewhere",
            "ExpiresString": "Wed, 21 Oct 2026 07:28:00 GMT",
        }
        sent = {name.removesuffix("String"): text for name, text in what.items()}
        harness.peer.put_object(Bucket=harness.bucket, Key="stock", Body=b"{}", Metadata={"owner": "me"}, **sent)
        for token in (33, 34):
            write(client, token, b"[]")
        found = harness.peer.head_object(Bucket=harness.bucket, Key="stock")
        assert {name: found[name] for name in what} == what
        assert found["Metadata"] == {"owner": "me", "lockctl-fence": str(mark(34))}

    def test_a_token_in_the_content_keeps_out_who_saw_the_same_data_before(
        self, harness: S3Harness, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        """The manual says so, because S3 cannot tell equal contents apart."""
        harness.place("stock", b"5 pieces")
        between.look = once(writes_data, lambda: write(other, 34, b"5 pieces"))
        with pytest.raises(Overtaken):
            write(watched, 33, b"4 pieces")
        assert harness.stored("stock") == b"4 pieces"
        between.look = once(writes_data, lambda: write(other, 36, b"4 pieces, says 36"))
        with pytest.raises(Stale) as refused:
            write(watched, 35, b"3 pieces, says 35")
        assert not isinstance(refused.value, Overtaken)
        assert harness.stored("stock") == b"4 pieces, says 36"

    def test_a_conflict_of_two_requests_is_tried_again(self, watched: Client, between: HttpProxy) -> None:
        conflicts = [1, 1]

        def conflict(request: Request) -> Answer | None:
            if (writes_mark(request) or writes_data(request)) and conflicts:
                conflicts.pop()
                return 409, [], b"<Error><Code>ConditionalRequestConflict</Code></Error>"
            return None

        between.look = conflict
        write(watched, 33, b"data")
        assert conflicts == []
        assert watched.current() == mark(33)

    def test_a_server_that_does_not_know_conditions_says_so(self, watched: Client, between: HttpProxy) -> None:
        def unknown(request: Request) -> Answer | None:
            conditional = {"if-match", "if-none-match"} & set(request.headers)
            return (501, [], b"<Error><Code>NotImplemented</Code></Error>") if conditional else None

        between.look = unknown
        with pytest.raises(ConfigError, match="does not know conditional writes"):
            watched.advance(mark(33))

    def test_a_missing_bucket_is_no_missing_mark(self, moto: Moto) -> None:
        url = f"s3://no-such-bucket/stock?endpoint={moto.url}"
        for step in (fence.current, lambda url: fence.advance(url, mark(33))):
            with pytest.raises(ConfigError, match="there is no s3://no-such-bucket"):
                step(url)

    @pytest.mark.parametrize("key", ["a/b c+d%25e/\N{SNOWMAN}", "/double", "x" * 200])
    def test_keys_are_what_they_are(self, harness: S3Harness, key: str) -> None:
        fence.advance(harness.at(harness.proxy.address, key), mark(33))
        assert harness.names() == {key.replace("%25", "%") + SIDE}

    def test_metadata_that_are_not_ascii_stay(self, harness: S3Harness, watched: Client, between: HttpProxy) -> None:
        """Some programs send them as UTF-8."""
        harness.place("stock", b"{}")
        sent: list[str] = []

        def look(request: Request) -> None:
            if writes_data(request):
                sent.append(request.headers["x-amz-meta-owner"].encode("latin-1").decode())

        def add(request: Request, answer: Answer) -> Answer:
            if request.method == "HEAD" and request.path.endswith("/stock"):
                answer[1].append(
                    ("x-amz-meta-owner", "Bj\N{LATIN SMALL LETTER O WITH DIAERESIS}rn".encode().decode("latin-1"))
                )
            return answer

        between.look, between.look_back = look, add
        write(watched, 33, b"[]")
        assert sent == ["Bj\N{LATIN SMALL LETTER O WITH DIAERESIS}rn"]


class TestAccess:
    """Who we are, what we may, and whom we trust."""

    def test_a_server_is_verified(self, start_server: Callable[..., Any], certificates: Certificates) -> None:
        server = start_server(Moto, tls=certificates)
        assert isinstance(server, Moto)
        everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::stocks/*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [everybody]})
        server.client().create_bucket(Bucket="stocks")
        server.client().put_bucket_policy(Bucket="stocks", Policy=policy)
        url = f"s3://stocks/stock?endpoint={server.url}"
        with pytest.raises(ConfigError, match="certificate is not accepted"):
            fence.advance(url, mark(33))
        with pytest.raises(ConfigError, match=r"ca /nonexistent\.pem: No such file"):
            fence.advance(f"{url}&ca=/nonexistent.pem", mark(33))
        assert fence.advance(f"{url}&ca={certificates.ca}", mark(33)) == mark(33)
        # the same object by plain requests, as everybody
        plain = f"{server.url}/stocks/stock?ca={certificates.ca}"
        assert fence.current(plain) == mark(33)
        assert fence.advance(plain, mark(34)) == mark(34)
        with pytest.raises(ConfigError, match="certificate is not accepted"):
            fence.advance(f"{server.url}/stocks/stock", mark(35))
        assert fence.current(f"{url}&ca={certificates.ca}") == mark(34)

    @pytest.fixture
    def strict(self, start_server: Callable[..., Any]) -> Moto:
        """A server that looks at permissions, and has a user who may only read the bucket."""
        # create the bucket, the user, the policy, the key, and one object
        server = start_server(Moto, verified_after=5)
        assert isinstance(server, Moto)
        return server

    def test_permission_to_read_is_not_enough(self, strict: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
        iam = strict.client("iam")
        iam.create_user(UserName="reader")
        statement = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        s3 = strict.client()
        s3.create_bucket(Bucket="stocks")
        s3.put_object(Bucket="stocks", Key="stock" + SIDE, Body=str(mark(33)).encode())
        url = f"s3://stocks/stock?endpoint={strict.url}"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        assert fence.current(url) == mark(33)
        with pytest.raises(ConfigError, match="needed are s3:GetObject, s3:PutObject") as told:
            fence.advance(url, mark(34))
        assert key["SecretAccessKey"] not in str(told.value)
        assert fence.current(url) == mark(33)
        # from the URL, and a key that nobody knows
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        login = f"{key['AccessKeyId']}:{key['SecretAccessKey'].replace('/', '%2F')}"
        assert fence.current(url.replace("s3://", f"s3://{login}@")) == mark(33)
        with pytest.raises(ConfigError, match="credentials are not") as told:
            fence.current(url.replace("s3://", f"s3://AKIANOBODY:{SECRET}@"))
        assert SECRET not in str(told.value)

    def test_no_credentials_are_a_matter_for_a_person(self, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(ConfigError, match="no credentials"):
            fence.advance(f"s3://stocks/stock?endpoint={moto.url}", mark(33))

    @pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
    def test_a_key_that_is_no_text_is_a_matter_for_a_person(
        self, moto: Moto, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, os.fsdecode(b"mine\xff"))
        with pytest.raises(ConfigError, match="a key has characters that none has") as told:
            fence.advance(f"s3://stocks/stock?endpoint={moto.url}", mark(33))
        assert "mine" not in str(told.value)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("s3://stocks/stock?profile=nobody", "nobody"),
            ("s3://stocks/stock?endpoint=http://:0:0/", "endpoint|Endpoint|URL"),
        ],
    )
    def test_a_url_that_cannot_mean_an_object_says_why(self, url: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=reason) as told:
            fence.advance(url, mark(33), timeout=LIMIT)
        assert "\n" not in str(told.value)
