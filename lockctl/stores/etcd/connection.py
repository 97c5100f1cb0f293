"""Connections to the members of an etcd cluster, the login there, and what their answers mean."""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.http import Client
from lockctl.wire.stream import Closed, Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.answer import Response
    from lockctl.wire.lines import Lines

    Requests = tuple[tuple[str, dict[str, Any]], ...]  # paths, and what is said there
    Posts = tuple[tuple[str, str, bytes], ...]  # the same as HTTP has it

# a member that is cut off from the others says so at once, instead of holding the request
HEADERS = (("Grpc-Metadata-Hasleader", "true"),)
SILENT = "it does not even answer who is connected: stopped, overloaded, or at its limit of open files (ulimit -n)"
NO_PATH = "404 page not found"  # in the words of etcd
# gRPC's codes, which the gateway repeats
INVALID_ARGUMENT, PERMISSION_DENIED, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED = 3, 7, 11, 12, 16


class LeaseGone(Exception):
    """The lease does not exist (any more)."""


class LeaseExists(Exception):
    """A lease with this id exists already."""


class Denied(ConfigError):
    """No member will ever answer otherwise: it is of no use to ask the next one."""


class _StaleToken(Exception):
    """The token of our login has run out, or the login is missing."""


class Connections:
    """Those of one client. Any thread may send a request beside others: each has a connection of its own."""

    def __init__(self, user: str | None, password: str | None) -> None:
        """Nothing is opened before it is needed."""
        self._user = user
        self._password = password
        self._token = ""  # of our login
        self._idle: list[tuple[Endpoint, Client]] = []
        self._begun: tuple[Requests, Posts, Endpoint, Client] | None = None
        self._answered = False  # whether any member ever did
        self._closed = False

    def begin(self, member: Endpoint, requests: Requests, deadline: Deadline) -> None:
        """Send these if a connection is open, for a call of :meth:`answers` with them, alone or first of several.

        What fails here is found out, and done, there.
        """
        self._drop_begun()
        client, posts = self._client(member), _posts(requests)
        try:
            client.begin(posts, deadline, headers=self._login())
        except BaseException as failure:
            client.close()
            if not isinstance(failure, BackendUnavailable):
                raise
        self._begun = requests, posts, member, client

    def answers(self, member: Endpoint, requests: Requests, deadline: Deadline) -> list[dict[str, Any] | Exception]:
        """What a member answers, or the error that the answer means."""
        begun, client = self._begun, None
        if begun is not None and begun[0][0] is requests[0] and begun[2] is member:
            self._begun, client = None, begun[3]
            posts = begun[1] + _posts(requests[len(begun[1]) :])
        else:
            posts = _posts(requests)
        for attempt in (1, 2):
            if self._user is not None and not self._token:
                self._log_in(member, deadline)
            responses = self._send(member, client or self._client(member), posts, deadline)
            answers, client = [self._answer(member, response) for response in responses], None
            stale = next((each for each in answers if isinstance(each, _StaleToken)), None)
            if stale is None:
                return answers
            if self._user is None:
                raise Denied(f"{member.where}: {stale}: the URL needs a user and its password")
            if attempt == 2:
                raise BackendUnavailable(f"{member.where}: {stale}, although we have just logged in")
            self._token = ""
        raise AssertionError("unreachable")

    def watch(self, member: Endpoint, body: bytes, deadline: Deadline) -> Lines:
        """What a member tells of a watch, as lines of JSON, on a connection of its own; the caller closes it."""
        lines = Client(member, HEADERS).stream("POST", "/v3/watch", deadline, body=body, headers=self._login())
        if lines.status != 200:
            lines.close()
            self._token = ""  # if it was that, then the next request brings a new one
            raise BackendUnavailable(f"{member.where}: no watch there: HTTP status {lines.status}")
        return lines

    def close(self) -> None:
        """Close what is open; a connection that a thread is still at, it closes itself."""
        self._closed = True
        self._drop_begun()
        while self._idle:
            self._idle.pop()[1].close()

    def _drop_begun(self) -> None:
        if self._begun is not None:
            self._begun[3].close()
            self._begun = None

    def _answer(self, member: Endpoint, response: Response) -> dict[str, Any] | Exception:
        try:
            return self._content(member, response)
        except (LeaseGone, LeaseExists, _StaleToken, BackendUnavailable, ConfigError) as error:
            return error

    def _send(self, member: Endpoint, client: Client, posts: Posts, deadline: Deadline) -> list[Response]:
        try:
            responses = client.pipeline(posts, deadline, headers=self._login())
        except BaseException as failure:
            client.close()
            if isinstance(failure, Closed) and member.tls is None and not self._answered:
                raise BackendUnavailable(f"{failure}: if it wants TLS, use etcds://") from None
            if type(failure) is BackendUnavailable and client.connected and not self._answered:
                raise BackendUnavailable(f"{failure}: {SILENT}") from None
            raise
        self._answered = True
        self._idle.append((member, client))
        if self._closed:
            self.close()
        return responses

    def _client(self, member: Endpoint) -> Client:
        for kept in reversed(self._idle):
            if kept[0] is member:
                try:
                    self._idle.remove(kept)
                except ValueError:
                    continue  # another thread has taken it
                return kept[1]
        return Client(member, HEADERS)

    def _login(self) -> tuple[tuple[str, str], ...]:
        return (("Authorization", self._token),) if self._token else ()

    def _log_in(self, member: Endpoint, deadline: Deadline) -> None:
        body = json_text.render({"name": self._user, "password": password_now(self._password, deadline)}).encode()
        (response,) = self._send(member, self._client(member), (("POST", "/v3/auth/authenticate", body),), deadline)
        if b"authentication is not enabled" in response.body:
            return  # as etcd's own client: whoever may do everything needs no login
        try:
            token = self._content(member, response).get("token")
        except _StaleToken as refused:
            raise Denied(f"{member.where}: {refused}") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise BackendUnavailable(f"{member.where}: a login was answered without a token")
        self._token = token

    def _content(self, member: Endpoint, response: Response) -> dict[str, Any]:
        """The answer in a response, or its error."""
        content = json_text.an_object(response.body)
        if content is None:
            raise _not_a_gateway(member.where, response)
        if response.status != 200 or "error" in content:
            raise _problem(member.where, content, self._user)
        inner = content.get("result", content)  # of a stream of answers, which here has one
        if not isinstance(inner, dict) or not isinstance(inner.get("header"), dict):
            raise BackendUnavailable(f"{member.where}: an answer that is not etcd's: {response.excerpt()}")
        inner["date"] = response.date
        return inner


def _posts(requests: Requests) -> Posts:
    return tuple([("POST", path, json_text.render(request).encode()) for path, request in requests])


def _not_a_gateway(where: str, response: Response) -> BackendUnavailable | ConfigError:
    """The error for an answer that is none of etcd's gateway, which names the cause, as far as it can be told."""
    if response.status == 404 and response.excerpt() == NO_PATH:  # anything on the way may say 404, in other words
        return ConfigError(
            f"{where}: no JSON gateway at /v3: etcd must be 3.4 or later, and when it is started with"
            " --config-file, that file needs enable-grpc-gateway: true"
        )
    if b"CommonName" in response.body:
        return ConfigError(
            f"{where}: etcd's gateway does not take a client certificate with a name (CN) while authentication"
            " is on: use a certificate without CN, and a user and its password"
        )
    return BackendUnavailable(f"{where}: not etcd's answer: HTTP status {response.status}: {response.excerpt()}")


def _problem(where: str, content: dict[str, Any], user: str | None) -> Exception:
    """The exception for an error of etcd, whose form depends on the version and on the kind of request."""
    inner = content.get("error")
    fields = inner if isinstance(inner, dict) else content
    message = fields.get("message") or fields.get("error")
    code = fields.get("code") or fields.get("grpc_code")
    text = printable(message[:300]).replace("etcdserver: ", "") if isinstance(message, str) else "an unknown error"
    if "lease not found" in text:
        return LeaseGone(text)
    if "lease already exists" in text:
        return LeaseExists(text)
    if code == UNAUTHENTICATED or "user name is empty" in text or "auth store is old" in text:
        return _StaleToken(text)
    if code == PERMISSION_DENIED:
        return Denied(f"{where}: {text}: user {printable(user or '?')} needs to read and write below the prefix")
    if code in (INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED):
        return Denied(f"{where}: {text}")
    if "database space exceeded" in text:
        text += ": compact and defragment it, then disarm its alarm (etcdctl)"
    return BackendUnavailable(f"{where}: {text}")
