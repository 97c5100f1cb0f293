"""Requests for the blobs of one container, each with one deadline, and what a refusal means."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.stores.azblob.access import Access
from lockctl.stores.azblob.address import Address, server_of
from lockctl.wire.http import Clients, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Fields

NO_BLOB = "BlobNotFound"
NOT_MET = ("ConditionNotMet", "TargetConditionNotMet", "BlobAlreadyExists")
LEASED = ("LeaseIdMissing", "LeaseIdMismatchWithBlobOperation", "LeaseLost")
LATER = ("ServerBusy", "OperationTimedOut", "InternalError", "AccountBeingCreated", "ContainerBeingDeleted")
# a wrong clock is told by the same word as a wrong signature, a SAS token that has ended, and a token that has
CREDENTIALS = ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation")
DENIED = "AuthorizationFailure"  # also what an account says to who comes from the wrong network


class Container:
    """One container. Connects when it is first asked; safe for several threads."""

    def __init__(self, address: Address, needed: str) -> None:
        """*needed*: the rights without which nothing works, for who lacks them. Raises ``ConfigError``."""
        self.where = str(address)
        self._needed = needed
        self._access = Access(address)
        server, start = server_of(self._access.server, self.where, address.ca)
        self._start = f"{start}/{address.container}"
        self._clients = Clients(server)

    def load(self) -> None:
        """Load what takes long, before the time of a lease is counted. Raises ``ConfigError``."""
        self._access.load()

    def ask(
        self,
        method: str,
        name: str,
        deadline: Deadline,
        *,
        query: Fields = (),
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Response | None:
        """The answer to a request for a blob, or with an empty name for the container; with 404 there is no such blob.

        ``None``: a condition is not met. Raises ``BackendUnavailable``, ``ConfigError``, ``RequestInterrupted``.
        """
        path = f"{self._start}/{quoted(name, '/')}" if name else self._start
        for attempt in (1, 2):
            more, fields = self._access.signed(
                (method, path, query, len(body)), headers or {}, self._clients.now(), deadline
            )
            asked = "&".join([*(f"{key}={quoted(text)}" for key, text in query), *([more] if more else [])])
            target = f"{path}?{asked}" if asked else path
            answer = self._clients.request(method, target, deadline, body=body, headers=fields)
            if answer.status < 300:
                if "x-ms-request-id" not in answer.headers:  # something on the way may say 200, too
                    raise BackendUnavailable(f"{self.where}: that is not Azure's answer ({answer.status})")
                return answer
            code = code_of(answer)
            if attempt == 1 and (answer.status == 401 or code in (*CREDENTIALS, DENIED)):
                self._access.forget()
                continue
            break
        if code in NOT_MET or (answer.status == 412 and code not in LEASED):
            return None
        if answer.status == 404 and code == NO_BLOB:
            return answer
        raise self._refused(answer, code)

    def close(self) -> None:
        """Close the connections; the next request opens one."""
        self._clients.close()

    def _refused(self, answer: Response, code: str) -> BackendUnavailable | ConfigError:
        status = answer.status
        said = f"{self.where}: {code or 'no reason given'} ({status})"
        if status == 404 and not code:
            return BackendUnavailable(f"{said}: that is not Azure's answer")
        if code in LATER or status in (408, 429) or status >= 500:
            return BackendUnavailable(f"{said}: it is busy or out of order")
        if status == 401 or code in CREDENTIALS:
            return ConfigError(f"{said}: the credentials are not, or no longer, valid")
        if code in LEASED:
            return ConfigError(f"{said}: another program has a lease of Azure's on it: `az storage blob lease break`")
        if code == "KeyBasedAuthenticationNotPermitted":
            return ConfigError(f"{said}: the account accepts no keys: leave the key out, and log in")
        if status == 403:
            return ConfigError(f"{said}: needed are {self._needed}, and a network that the account lets in")
        if 300 <= status < 400:
            return ConfigError(f"{said}: the container is elsewhere: is endpoint= right?")
        if code == "ContainerNotFound":
            return ConfigError(f"{said}: there is no {self.where} in this account")
        return ConfigError(said)


def code_of(answer: Response) -> str:
    """The code of a refusal, whatever the server wrote there; empty where there is none."""
    return printable(answer.headers.get("x-ms-error-code", "")[:80])
