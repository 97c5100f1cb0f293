"""The connection to a Consul agent: requests under a deadline, and which answers mean something."""

from __future__ import annotations

from lockctl import clock, json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable, some_of
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.http import Client
from lockctl.wire.stream import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.consul.address import Settings
    from lockctl.wire.answer import Response

RENEW = "/v1/session/renew/"
INDEX = "x-consul-index"  # the header of every answer about keys: an answer without it is not Consul's
LONGEST_REASON = 300  # characters of why a transaction was refused
FULL = "more connections from this address than the agent's limits.http_max_conns_per_client (200 unless changed)"
TOO_FAST = "more requests than the agent or its servers take (limits.rpc_rate, limits.request_limits)"


class NoPath(BackendUnavailable):
    """The agent's servers have no way to the datacenter of the URL: it is cut off, or there is none of that name."""


class Forbidden(ConfigError):
    """The token does not allow it, or is not known."""


class Connection:
    """One connection. Methods raise ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""

    # what the token must allow, for messages
    rights = 'key_prefix "{prefix}" {{ policy = "write" }} and session_prefix "" {{ policy = "write" }}'

    def __init__(self, settings: Settings) -> None:
        """Nothing is sent yet."""
        self._settings = settings
        self.prefix = settings.prefix
        self.where = settings.endpoint.where
        self._token = settings.token
        self._client = Client(settings.endpoint, _headers(settings.token))
        self._last: Response | None = None

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        self._client.close()

    def now(self) -> float:
        """The agent's clock when it answered last, in whole seconds since the epoch; ours, if it does not say."""
        date = None if self._last is None else self._last.date
        return clock.wall() if date is None else date

    def ask(self, method: str, path: str, deadline: Deadline, query: str = "", *, body: bytes = b"") -> Response:
        """An answer that means something: 200, 404 (from Consul itself, where keys are asked for) or 409."""
        return self.ask_all(((method, path, query, body),), deadline)[0]

    def ask_all(
        self, requests: tuple[tuple[str, str, str, bytes], ...], deadline: Deadline, needed: int | None = None
    ) -> list[Response]:
        """Answers of which the first ones, as many as are *needed*, mean something."""
        asked = tuple((method, self._target(path, query), body) for method, path, query, body in requests)
        while True:
            try:
                answers = self._client.pipeline(asked, deadline)
            except Closed as failure:
                if self._last is not None:
                    raise
                raise Closed(f"{failure}: {FULL}, or a port for TLS (consuls://)") from None
            try:
                for (_, path, _, _), answer in zip(requests[:needed], answers[:needed], strict=True):
                    self._check(path, answer)
            except NoPath as failure:
                self._refuse_datacenter(deadline)
                raise failure from None
            except Forbidden:
                token = password_now(self._settings.token, deadline)
                if token == self._token:
                    raise
                self._token = token  # it was exchanged meanwhile
                self._client.headers = _headers(token)
            else:
                return answers

    def _target(self, path: str, query: str) -> str:
        whole = "&".join(part for part in (query, self._settings.query) if part)
        return f"{path}?{whole}" if whole else path

    def _check(self, path: str, answer: Response) -> None:
        """Raise for an answer that does not mean anything."""
        self._last = answer
        is_key = path.startswith("/v1/kv/")
        if answer.status == 200:
            if is_key and INDEX not in answer.headers:
                raise self.strange(answer)
        elif answer.status == 404:
            if INDEX not in answer.headers and not path.startswith(RENEW):
                raise self.strange(answer)
        elif answer.status == 403 or b"Permission denied" in answer.body:
            raise self.forbidden(answer)
        elif answer.status == 400 or b"Invalid Session TTL" in answer.body:
            raise self._mistaken(answer)
        elif b"No path to datacenter" in answer.body:
            raise NoPath(str(self.strange(answer)))
        elif answer.status != 409 or path != "/v1/txn":
            raise self.strange(answer)

    def _refuse_datacenter(self, deadline: Deadline) -> None:
        """Raise ``ConfigError`` if there is no datacenter of that name: one that is cut off is still known."""
        (answer,) = self._client.pipeline((("GET", "/v1/catalog/datacenters", b""),), deadline)
        try:
            known = json_text.parse(answer.body)
        except ValueError:
            return
        if answer.status == 200 and isinstance(known, list) and known and self._settings.datacenter not in known:
            names = some_of(map(str, known))
            raise ConfigError(f"{self.where}: no datacenter {printable(self._settings.datacenter)} there, but {names}")

    def an_object(self, answer: Response) -> dict[str, Any]:
        """The object of JSON that an answer must have."""
        content = json_text.an_object(answer.body)
        if content is None:
            raise self.strange(answer)
        return content

    def a_list(self, answer: Response) -> list[Any]:
        """The list of JSON that an answer must have."""
        try:
            content = json_text.parse(answer.body)
        except ValueError:
            content = None
        if not isinstance(content, list):
            raise self.strange(answer)
        return content

    def strange(self, answer: Response) -> BackendUnavailable:
        """The error for an answer that means nothing to us."""
        said = self._said(answer)
        if b"Missing node registration" in answer.body and self._settings.query:
            said += ": a session needs a node of its datacenter: ask an agent there instead of saying dc="
        if answer.status == 429:
            said += f": {FULL if b'concurrent connections' in answer.body else TOO_FAST}"
        doubt = "; is this address a Consul server's?" if answer.status == 404 else ""
        return BackendUnavailable(f"{self.where}: status {answer.status}: {said}{doubt}")

    def forbidden(self, answer: Response) -> Forbidden:
        """The error for an answer that says that we may not."""
        if b"ACL not found" in answer.body:
            return Forbidden(f"{self.where}: the token is not known there")
        needed = self.rights.format(prefix=self.prefix)
        if self._settings.token is None:
            return Forbidden(f"{self.where}: a token is needed (token_file=FILE) that has {needed}")
        return Forbidden(f"{self.where}: {self._said(answer)}: the token needs {needed}")

    def _mistaken(self, answer: Response) -> ConfigError:
        """The error for an answer that says that what we ask cannot be."""
        said = self._said(answer)
        if b"Invalid Session TTL" in answer.body:
            said = f"{_limits(said)}: change --ttl (or session_ttl_min in the servers' configuration)"
        elif b"HTTPS server" in answer.body:
            said = "it speaks TLS: use consuls://"
        return ConfigError(f"{self.where}: {said}")

    def _said(self, answer: Response) -> str:
        said = "; ".join(dict.fromkeys(refusals_in(answer).values()))[:LONGEST_REASON] or answer.excerpt()
        return said.replace(self._token, "***") if self._token else said


def _headers(token: str | None) -> tuple[tuple[str, str], ...]:
    return (("X-Consul-Token", token),) if token else ()


def refusals_in(answer: Response) -> dict[int, str]:
    """Why steps of a transaction were refused, by their numbers; empty for any other answer."""
    errors = (json_text.an_object(answer.body) or {}).get("Errors")
    refusals: dict[int, str] = {}
    for each in errors if isinstance(errors, list) else []:
        if isinstance(each, dict) and isinstance(number := each.get("OpIndex"), int):
            refusals[number] = printable(str(each.get("What"))[:LONGEST_REASON])
    return refusals


def _limits(said: str) -> str:
    """``must be between [10s=24h0m0s]`` in words."""
    shortest, _, longest = said.partition("[")[2].partition("]")[0].partition("=")
    return f"the ttl must be from {shortest} to {longest}" if longest else said
