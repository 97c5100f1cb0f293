"""Requests for the objects of one bucket, each with one deadline, and what a refusal means."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.objects import between
from lockctl.names import printable
from lockctl.stores.s3 import address as addresses
from lockctl.wire.aws import Chain, signed, usable_region
from lockctl.wire.http import Clients, quoted, server_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline

NO_KEY = "NoSuchKey"
NOT_MET = ("PreconditionFailed", "ConditionalRequestConflict", "OperationAborted")
LATER = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded")
EXPIRED = ("ExpiredToken", "RequestExpired", "TokenRefreshRequired")
CREDENTIALS = ("InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "SignatureDoesNotMatch", *EXPIRED)
SKEWED = "RequestTimeTooSkewed"


class Bucket:
    """One bucket. Connects when it is first asked; safe for several threads."""

    def __init__(self, address: addresses.Address, needed: str) -> None:
        """*needed*: the permissions without which nothing works, for who lacks them."""
        self.where = str(address)
        self._address = address
        self._needed = needed
        self._chain = Chain(address.profile or None, address.keys, "s3")
        self._clients: Clients | None = None
        self._start = ""  # of every path
        self._region = ""

    def load(self) -> None:
        """Load what takes long, before the time of a lease is counted. Raises ``ConfigError``."""
        self._chain.load()

    def ask(
        self,
        method: str,
        key: str,
        deadline: Deadline,
        *,
        query: str = "",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Response | None:
        """The answer to a request for an object, or with an empty key for the bucket; with 404 there is no such object.

        ``None``: a condition is not met. Raises ``BackendUnavailable``, ``ConfigError``, ``RequestInterrupted``.
        """
        clients = self._clients or self._connect()
        target = f"{self._start}/{quoted(key, '/')}" + (f"?{query}" if query else "")
        for attempt in (1, 2):
            keys = self._chain.keys(deadline, self.where)
            fields = {"host": clients.host, **(headers or {})}
            words = signed((method, target, body), fields, keys, (self._region, "s3"), clients.now())
            answer = clients.request(method, target, deadline, body=body, headers=words)
            if answer.status < 300:
                return answer
            code = code_of(answer)
            if attempt == 1 and (code == SKEWED or code in CREDENTIALS):
                self._chain.forget()
                continue
            break
        if answer.status == 412 or code in NOT_MET:
            return None
        if answer.status == 404 and method == "HEAD":
            return self.ask("GET", key, deadline)  # whose answer has a code, which tells it from a proxy's
        if answer.status == 404 and code == NO_KEY:
            return answer
        raise self._refused(answer, code)

    def close(self) -> None:
        """Close the connections; the next request opens one."""
        if self._clients is not None:
            self._clients.close()

    def _connect(self) -> Clients:
        wanted = self._address
        self._region = wanted.region or self._found_region()
        server = wanted.server or (None if wanted.keys else self._chain.endpoint("s3"))
        if server:
            self._start = f"/{wanted.bucket}"
        elif not self._region:
            raise ConfigError(f"{self.where}: in which region? Say region=, or `aws configure`")
        else:
            server, self._start = addresses.amazon(self._region, wanted.bucket)
        self._region = self._region or addresses.USUAL_REGION
        self._clients = Clients(server_of("s3", server, wanted.ca, self.where))
        return self._clients

    def _found_region(self) -> str:
        found = "" if self._address.keys else self._chain.setting("region") or ""
        return usable_region(found, f"{self.where}: the region of variables and files")

    def _refused(self, answer: Response, code: str) -> BackendUnavailable | ConfigError:
        status = answer.status
        said = f"{self.where}: {code or 'no reason given'} ({status})"
        if status == 404 and not code:
            return BackendUnavailable(f"{said}: that is not S3's answer")
        if code in LATER or status == 429 or (status >= 500 and status != 501):
            return BackendUnavailable(f"{said}: it is busy or out of order" if status in (429, 503) else said)
        if code in CREDENTIALS:
            return ConfigError(f"{said}: the credentials are not, or no longer, valid")
        if code == SKEWED:
            return ConfigError(f"{said}: the clock of this host is wrong")
        if code == "NoSuchBucket":
            return ConfigError(f"{said}: there is no {self.where}")
        if status == 403:
            return ConfigError(
                f"{said}: needed are {self._needed} (without s3:ListBucket, S3 refuses what is not there)"
            )
        if status == 501:
            return ConfigError(f"{said}: the server does not know conditional writes")
        if 300 <= status < 400 or code == "AuthorizationHeaderMalformed":
            there = printable(answer.headers.get("x-amz-bucket-region", ""))[:40]
            return ConfigError(f"{said}: the bucket is elsewhere: set region={there or ' or endpoint='}")
        if status == 400:
            return ConfigError(f"{said}: are region= and endpoint= right?")
        return ConfigError(said)


def code_of(answer: Response) -> str:
    """The code of a refusal, whatever the server wrote there; empty where there is none."""
    return printable(between(answer.body.decode("utf-8", "replace"), "Code")[:80])
