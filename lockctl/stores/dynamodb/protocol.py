"""Requests to DynamoDB, each under a deadline, and what its refusals mean."""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import Url, incomplete_login, take_params
from lockctl.value import replace
from lockctl.wire.aws import Chain, Keys, signed, usable_region
from lockctl.wire.http import Clients, server_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline

SERVICE, API = "dynamodb", "DynamoDB_20120810"
NOT_MET = "ConditionalCheckFailedException"
NO_TABLE = "ResourceNotFoundException"
THROTTLED = ("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "SlowDown")
LATER = ("TransactionConflictException", "InternalServerError", "ServiceUnavailable", "InternalFailure")
CREDENTIALS = (
    "ExpiredTokenException",
    "ExpiredToken",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
DENIED = ("AccessDeniedException", "AccessDenied")
USUAL_REGION = "us-east-1"  # of other servers, which have none
PARAMETERS = {"region": "", "profile": "", "endpoint": "", "ca": "", "key": "key"}
ACTIONS = "dynamodb:GetItem, dynamodb:UpdateItem, dynamodb:DeleteItem and dynamodb:Scan"


class Refused(ConfigError):
    """An answer that is no result. *code* is the server's word for it."""

    def __init__(self, message: str, code: str) -> None:
        """Keep the code."""
        super().__init__(message)
        self.code = code


class Table:
    """One table. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``; safe for several threads."""

    def __init__(self, url: Url) -> None:
        """The table that *url* names. Nothing is sent yet."""
        self._params = take_params(url, PARAMETERS)
        name = url.hosts[0] if len(url.hosts) == 1 else ""
        if not 3 <= len(name) <= 255 or not name.isascii() or not name.translate(_PLAIN).isalnum():
            raise ConfigError("dynamodb: a URL names a table: dynamodb://TABLE/PREFIX?region=REGION")
        if bool(url.user) != bool(url.password):
            raise incomplete_login(
                url, "the access key is the user and the secret key the password of the URL: both or none"
            )
        for text in (url.user or "", url.password or "", *self._params.values()):
            if not (text.isascii() and text.isprintable()):
                raise ConfigError("dynamodb: a key or a parameter has characters that none has")
        if self._params["profile"] and url.user:
            raise ConfigError("dynamodb: profile contradicts the access key in the URL")
        if not self._params["key"]:
            raise ConfigError("dynamodb: key is the name of the partition key of the table")
        usable_region(self._params["region"], "dynamodb: region")
        self.name, self.key = name, self._params["key"]
        self.where = f"dynamodb table {name}"
        if self._params["endpoint"]:
            server_of(SERVICE, self._params["endpoint"], self._params["ca"])
        self._keys = Keys(url.user, url.password) if url.user and url.password else None
        self._chain = Chain(self._params["profile"] or None, self._keys, SERVICE)
        self._clients: Clients | None = None
        self._region = ""

    def load(self) -> None:
        """Load what takes long, before the time of a lease is counted. Raises ``ConfigError``."""
        self._chain.load()

    def ask(self, operation: str, fields: dict[str, Any], deadline: Deadline) -> tuple[dict[str, Any], float]:
        """The answer to a request about this table, and the time in whole seconds at which the server gave it.

        A refusal raises ``Refused``, unless it is an outage. A request may be done twice.
        """
        body = json_text.render({"TableName": self.name, **fields}).encode()
        clients = self._clients or self._connect()
        for attempt in (1, 2):
            keys = self._chain.keys(deadline, self.where)
            named = {
                "host": clients.host,
                "content-type": "application/x-amz-json-1.0",
                "x-amz-target": f"{API}.{operation}",
            }
            words = signed(("POST", "/", body), named, keys, (self._region, SERVICE), clients.now())
            answer = clients.request("POST", "/", deadline, body=body, headers=words)
            content = self._content(answer)
            if answer.status == 200:
                break
            code = _code(content)
            if attempt == 2 or code not in CREDENTIALS:
                raise self._refusal(answer, content, code)
            self._chain.forget()  # others may be there by now, or the time was wrong
        if answer.date is None:
            raise BackendUnavailable(f"{self.where}: an answer without a date: is that DynamoDB?")
        return content, answer.date

    def close(self) -> None:
        """Close the connections; the next request opens one."""
        if self._clients is not None:
            self._clients.close()

    def _connect(self) -> Clients:
        region = self._params["region"] or self._found_region()
        server = self._params["endpoint"] or (None if self._keys else self._chain.endpoint(SERVICE))
        if not server:
            if not region:
                raise ConfigError(f"{self.where}: in which region? Say region=, or `aws configure`")
            server = f"https://{SERVICE}.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
        self._region = region or USUAL_REGION
        found = server_of(SERVICE, server, self._params["ca"])
        where = f"{self.where} at {printable(found.host)}:{found.port}"
        self._clients = Clients(replace(found, where=where))
        return self._clients

    def _found_region(self) -> str:
        found = "" if self._keys else self._chain.setting("region") or ""
        return usable_region(found, f"{self.where}: the region of variables and files")

    def _content(self, answer: Response) -> dict[str, Any]:
        try:
            content = json_text.parse(answer.body)
        except ValueError:
            # what stands before DynamoDB answers so, as the rest of AWS does
            code = answer.body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode("utf-8", "replace")
            content = {"__type": code} if code and answer.status >= 400 else None
        # its answers to reads of nothing, and to writes, are {} as those of anything else may be
        is_its = answer.status != 200 or answer.headers.get("content-type", "").startswith("application/x-amz-json")
        if not isinstance(content, dict) or not is_its:
            said = f"{self.where}: the answer ({answer.status}) is not that of DynamoDB: {answer.excerpt()}"
            raise BackendUnavailable(said)
        return content

    def _refusal(self, answer: Response, content: dict[str, Any], code: str) -> BackendUnavailable | ConfigError:
        reason = printable(str(content.get("message") or content.get("Message") or "")[:200])
        said = f"{self.where}: {code} ({answer.status})"
        if code in THROTTLED or answer.status == 429:
            return BackendUnavailable(f"{said}: the table is throttled: raise its capacity, or make it on-demand")
        if code in LATER or answer.status >= 500:
            return BackendUnavailable(said)
        if code in CREDENTIALS:
            return Refused(f"{said}: the credentials are not, or no longer, valid", code)
        if code == NO_TABLE:
            return Refused(f"{said}: there is no such table in {self._region}: {self.creation()}", code)
        if code in DENIED:
            return Refused(f"{said}: needed are {ACTIONS} for the table", code)
        if code == "ValidationException":
            return Refused(f"{said}: {reason} (key= names the partition key, {printable(self.key)} unless said)", code)
        return Refused(f"{said}: {reason}", code)

    def creation(self) -> str:
        """The command that makes the table."""
        return (
            f"aws dynamodb create-table --table-name {self.name} --billing-mode PAY_PER_REQUEST"
            f" --attribute-definitions AttributeName={printable(self.key)},AttributeType=S"
            f" --key-schema AttributeName={printable(self.key)},KeyType=HASH"
        )


_PLAIN = str.maketrans("-_.", "aaa")


def _code(content: dict[str, Any]) -> str:
    return printable(str(content.get("__type")).rpartition("#")[2])[:80]
