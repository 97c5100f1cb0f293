"""Marks of objects in S3, and in what speaks its protocol with conditional writes. Needs botocore, a part of boto3."""

from __future__ import annotations

from urllib.parse import quote

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.stores.objects import SUFFIX, Head, ObjectStore, Seen
from lockctl.names import printable
from lockctl.url import take_params
from lockctl.wire.deadline import bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, TypeVar

    from lockctl.fence.mark import Mark
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

METADATA = "lockctl-fence"  # x-amz-meta-lockctl-fence: under which token the data was written, for who reads it
ATTEMPT_LIMIT = 20  # seconds after which a request that nobody waits for any more gives up its connection
LONGEST_ETAG = 1024  # characters
LARGEST_ERROR = 1 << 16  # bytes of an answer that is not an object
KEPT = (  # what belongs to an object beside its content, as GET and PUT call it
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Metadata",
    "StorageClass",
)
NO_KEY = ("NoSuchKey",)
NOT_THERE = ("NoSuchKey", "NotFound", "404")  # an answer to HEAD has no body that could say more
NOT_MET = ("PreconditionFailed", "412", "ConditionalRequestConflict", "OperationAborted", *NO_KEY)
LATER = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests")
CREDENTIALS = (
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
)

_models: list[Any] = []  # botocore's description of S3, once it was read: that takes longer than a request


class S3Store(ObjectStore):
    """``s3://BUCKET/KEY?endpoint=URL&region=REGION``. Credentials are found as the AWS command line finds them.

    Or they stand in the URL: ``s3://ACCESSKEY@BUCKET/KEY?password_file=FILE``.
    """

    parameters: ClassVar[dict[str, str]] = {"endpoint": "", "region": "", "profile": "", "ca": ""}

    @classmethod
    def from_url(cls, url: Url) -> S3Store:
        """The store that *url* means. Raises ``ConfigError``."""
        return cls(_Bucket(url, cls.parameters))


class _Bucket:
    """One bucket as a space of objects. Each call runs in a thread: botocore knows no deadline for a whole request."""

    sizes = 1  # ETags are made of the content

    def __init__(self, url: Url, parameters: dict[str, str]) -> None:
        self._params = take_params(url, parameters)
        if len(url.hosts) != 1 or not url.hosts[0].replace("-", "a").replace(".", "a").isalnum():
            raise ConfigError("s3: a URL is s3://BUCKET/KEY")
        if bool(url.user) != bool(url.password):
            raise ConfigError("s3: the access key is the user and the secret key the password of the URL: both or none")
        if self._params["profile"] and url.user:
            raise ConfigError("s3: profile contradicts the access key in the URL")
        if self._params["endpoint"] and not self._params["endpoint"].startswith(("http://", "https://")):
            raise ConfigError("s3: endpoint is the URL of a server: http://... or https://...")
        self.root = url.path
        self._bucket = url.hosts[0]
        self._login = (url.user, url.password)
        self._client: Any = None

    def shown(self, key: str) -> str:
        """See ``Space``."""
        return f"s3://{printable(self._bucket + key)}"

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        """See ``Space``."""

        def get(client: Any) -> Seen | None:
            answer = client.get_object(Bucket=self._bucket, Key=key[1:])
            try:
                return Seen(bytes(answer["Body"].read(limit)), self._etag(answer, key))
            finally:
                answer["Body"].close()

        return self._ask(get, key, deadline, None, NO_KEY)

    def head(self, key: str, deadline: Deadline) -> Head | None:
        """See ``Space``."""

        def head(client: Any) -> Head | None:
            answer = client.head_object(Bucket=self._bucket, Key=key[1:])
            return Head(self._etag(answer, key), {name: answer[name] for name in KEPT if answer.get(name)})

        return self._ask(head, key, deadline, None, NOT_THERE)

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        """See ``Space``."""
        words: dict[str, Any] = dict(like.kept) if like else {}
        words |= {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        if mark is not None:
            # metadata is ASCII, a domain need not be
            words["Metadata"] = {**words.get("Metadata", {}), METADATA: quote(str(mark), safe=" !#$&'()*+,/:;=?@[]")}

        def put(client: Any) -> bool:
            client.put_object(Bucket=self._bucket, Key=key[1:], Body=data, **words)
            return True

        return self._ask(put, key, deadline, False, NOT_MET)

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        """See ``Space``: without the comparison, which too few servers know."""

        def delete(client: Any) -> bool:
            client.delete_object(Bucket=self._bucket, Key=key[1:])
            return True

        return self._ask(delete, key, deadline, True, NO_KEY)

    def close(self) -> None:
        """See ``Space``."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _etag(self, answer: Any, key: str) -> str:
        etag = answer.get("ETag")
        if (
            not isinstance(etag, str)
            or not etag.isascii()
            or not etag.isprintable()
            or not 0 < len(etag) < LONGEST_ETAG
        ):
            raise ConfigError(f"{self.shown(key)}: the server gives no ETag: it cannot keep a mark")
        return etag

    def _ask(
        self, call: Callable[[Any], T], key: str, deadline: Deadline, otherwise: T, expected: tuple[str, ...]
    ) -> T:
        """The result of a request; *otherwise* if it was refused with one of the *expected* codes."""
        where = self.shown(key)
        deadline.check(where)
        try:
            from botocore.exceptions import BotoCoreError, ClientError
            from botocore.parsers import ResponseParserError
        except ImportError:
            from lockctl.extras import missing

            raise missing("an object of S3", "s3") from None

        def ask() -> T:
            if self._client is None:
                self._client = self._connect()
            return call(self._client)

        try:
            return bounded(ask, deadline, where)
        except ClientError as refusal:
            status, code = _status(refusal.response)
            if code in expected:
                return otherwise
            raise _refused(where, status, code, f"s3://{self._bucket}") from None
        except ResponseParserError:
            raise BackendUnavailable(f"{where}: the answer is not that of S3") from None
        except BotoCoreError as failure:
            raise _failed(where, failure) from None
        except (OSError, ValueError) as failure:
            # a file that is not there, an endpoint that is no URL: botocore says what, and has no secret here
            raise ConfigError(f"{where}: {printable(str(failure)[:200])}") from None

    def _connect(self) -> Any:
        import botocore.session
        from botocore.config import Config

        session = botocore.session.Session(profile=self._params["profile"] or None)
        if _models:
            session.register_component("data_loader", _models[0])
        else:
            _models.append(session.get_component("data_loader"))
        if self._params["ca"]:
            with open(self._params["ca"], "rb"):  # botocore would say that the server cannot be reached
                pass
        endpoint = self._params["endpoint"] or None
        region = self._params["region"] or session.get_config_variable("region")
        config = Config(
            connect_timeout=ATTEMPT_LIMIT,
            read_timeout=ATTEMPT_LIMIT,
            retries={"total_max_attempts": 1},  # what to do next is decided here, with the mark read again
            request_checksum_calculation="when_required",  # other servers than Amazon's do not know the newer ones
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if endpoint else None,
        )
        user, password = self._login
        client = session.create_client(
            "s3",
            region_name=region or ("us-east-1" if endpoint else None),
            endpoint_url=endpoint,
            verify=self._params["ca"] or None,
            aws_access_key_id=user,
            aws_secret_access_key=password,
            config=config,
        )
        client.meta.events.register("before-send.s3", _Bounded(client))
        # after a redirect botocore asks for the region of the bucket, and after a redirect of that again, without end
        client.meta.events.register("before-call.s3.HeadBucket", _ask_once)
        return client


class _Bounded:
    """Sends the requests of a client. All but the content of an object is cut, which botocore would read to its end."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, request: Any, **_: Any) -> Any:
        is_content = request.stream_output
        request.stream_output = True  # nothing is read here
        answer = self._client._endpoint.http_session.send(request)  # noqa: SLF001 - there is no other way to it
        if not is_content or answer.status_code >= 300:
            from botocore.exceptions import HTTPClientError

            try:
                answer._content = answer.raw.read(LARGEST_ERROR)  # noqa: SLF001 - what `content` gives
            except Exception as failure:  # noqa: BLE001 - urllib3 has many
                raise HTTPClientError(error=failure) from None
            answer.raw.close()  # of no more use unless it was read to its end
        return answer


def _ask_once(context: dict[str, Any], **_: Any) -> None:
    context.setdefault("s3_redirect", {})["redirected"] = True


def _status(response: Any) -> tuple[int, str]:
    """Status and code of a refusal, whatever the server wrote there."""
    error, meta = response.get("Error"), response.get("ResponseMetadata")
    code = error.get("Code") if isinstance(error, dict) else None
    status = meta.get("HTTPStatusCode") if isinstance(meta, dict) else None
    return status if isinstance(status, int) else 0, printable(str(code or "no reason given"))[:80]


def _refused(where: str, status: int, code: str, bucket: str) -> BackendUnavailable | ConfigError:
    said = f"{where}: {code} ({status})"
    if code in LATER or status == 429 or (status >= 500 and status != 501):
        return BackendUnavailable(said)
    if code in CREDENTIALS:
        return ConfigError(f"{said}: the credentials are not, or no longer, valid")
    if code == "RequestTimeTooSkewed":
        return ConfigError(f"{said}: the clock of this host is wrong")
    if code == "NoSuchBucket":
        return ConfigError(f"{said}: there is no {bucket}")
    if status == 403:
        return ConfigError(
            f"{said}: needed are s3:GetObject, s3:PutObject and s3:DeleteObject for the key and KEY{SUFFIX}*, and"
            " s3:ListBucket (without it S3 says 403 for what is not there)"
        )
    if status == 501:
        return ConfigError(f"{said}: the server does not know conditional writes: it cannot keep a mark")
    if 300 <= status < 400:
        return ConfigError(f"{said}: the bucket is elsewhere, and redirects are not followed: set region= or endpoint=")
    if status == 400:
        return ConfigError(f"{said}: are region= and endpoint= right?")
    return ConfigError(said)


def _failed(where: str, failure: Exception) -> BackendUnavailable | ConfigError:
    """What botocore itself could not do. Its texts about credentials are not repeated."""
    from botocore import exceptions as told

    kind = type(failure).__name__
    if isinstance(failure, told.SSLError):
        return ConfigError(f"{where}: the server's certificate is not accepted, or there is no TLS (ca= names a file)")
    if isinstance(failure, (told.HTTPClientError, told.ConnectionError, told.IncompleteReadError)):
        return BackendUnavailable(f"{where}: no usable answer ({kind})")
    if isinstance(failure, (told.NoCredentialsError, told.PartialCredentialsError)) or "oken" in kind:
        return ConfigError(f"{where}: no credentials ({kind}): `aws configure`, AWS_ACCESS_KEY_ID, or in the URL")
    if "redential" in kind:
        return ConfigError(f"{where}: the credentials cannot be had ({kind})")
    return ConfigError(f"{where}: {kind}: {printable(' '.join(str(failure).split())[:200])}")
