"""Requests to an etcd cluster: to whichever member answers, in the name of the user that the URL has."""

from __future__ import annotations

import _thread
import os

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.wire.deadline import READABLE, password_now
from lockctl.wire.http import Client
from lockctl.wire.stream import Closed, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines
    from lockctl.wire.stream import Endpoint

    T = TypeVar("T")
    Requests = tuple[tuple[str, dict[str, Any]], ...]  # paths, and what is said there

# a member that is cut off from the others says so at once, instead of holding the request
HEADERS = (("Grpc-Metadata-Hasleader", "true"),)
SILENT = "it does not even answer who is connected: stopped, overloaded, or at its limit of open files (ulimit -n)"
LONGEST_TRY = 2.0  # seconds for a member while there are others: more than an election takes
TURNS = 3  # of one request that may be made several times at once: a late answer costs a third of its time
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


class Cluster:
    """The members of one cluster. Any thread may send a request beside others: each has a connection of its own."""

    def __init__(self, members: tuple[Endpoint, ...], user: str | None = None, password: str | None = None) -> None:
        """Nothing is opened before it is needed."""
        self._members = members
        self._user = user
        self._password = password
        self._token = ""  # of our login
        self._idle: list[tuple[Endpoint, Client]] = []
        self._answered = False  # whether any member ever did
        self._closed = False
        self.turn = 0  # number of the member that is asked first: the one that answered last

    @property
    def where(self) -> str:
        """The member that is asked first, for messages."""
        return self._members[self.turn].where

    def call(self, path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """The answer of the first member that has one; the request must stand being done twice.

        Beside etcd's own fields it has a ``date``: when that member answered by its clock, ``None`` if it did not say.
        Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``, ``LeaseGone``, ``LeaseExists``.
        """
        return self.call_in_turn(((path, request),), deadline)[0]

    def call_in_turn(self, requests: Requests, deadline: Deadline) -> list[dict[str, Any]]:
        """As :meth:`call`, of several requests in one round trip, in this order. Raises the first error.

        Those after it are done all the same.
        """
        return self._of_any(lambda member, share: _all_right(self._answers(member, requests, share)), deadline)

    def call_first(self, requests: Requests, deadline: Deadline) -> list[dict[str, Any] | Exception]:
        """As :meth:`call_in_turn`, but only the first matters: an error of another one takes the place of its answer.

        So do ``LeaseGone`` and ``LeaseExists`` of any.
        """

        def attempt(member: Endpoint, share: Deadline) -> list[dict[str, Any] | Exception]:
            answers = self._answers(member, requests, share)
            if isinstance(answers[0], (BackendUnavailable, ConfigError)):
                raise answers[0]
            return answers

        return self._of_any(attempt, deadline)

    def call_beside(self, requests: Requests, deadline: Deadline) -> list[dict[str, Any]]:
        """The answers of the first member that has them, in one round trip; it does the requests in this order.

        While a member is late the next one is asked, too, or the only one on another connection: for requests that may
        be carried out twice at the same time. Raises as :meth:`call` does.
        """
        return self._of_first(lambda member: _all_right(self._answers(member, requests, deadline)), deadline)

    def watch(self, watches: tuple[dict[str, Any], ...], start: int, deadline: Deadline) -> Lines:
        """What happens in some ranges of keys from revision *start* on, as lines of JSON; the caller closes it."""
        each = [{**one, "start_revision": str(start)} for one in watches]
        body = "".join([json_text.render({"create_request": one}) for one in each]).encode()

        def attempt(member: Endpoint, share: Deadline) -> Lines:
            lines = Client(member, HEADERS).stream("POST", "/v3/watch", share, body=body, headers=self._login())
            if lines.status != 200:
                lines.close()
                self._token = ""  # if it was that, then the next request brings a new one
                raise BackendUnavailable(f"{member.where}: no watch there: HTTP status {lines.status}")
            return lines

        return self._of_any(attempt, deadline)

    def close(self) -> None:
        """Close what is open; a connection that a thread is still at, it closes itself."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()

    def _of_any(self, attempt: Callable[[Endpoint, Deadline], T], deadline: Deadline) -> T:
        problems: list[BackendUnavailable | ConfigError] = []
        count, first = len(self._members), self.turn
        for step in range(count):
            if problems and deadline.left() <= 0:
                break
            turn = (first + step) % count
            last = step == count - 1
            share = deadline if last else deadline.sooner(min(deadline.left() / 2, LONGEST_TRY))
            try:
                answer = attempt(self._members[turn], share)
            except Denied:
                raise
            except (BackendUnavailable, ConfigError) as problem:
                problems.append(problem)
                continue
            self.turn = turn
            return answer
        self.turn = (first + 1) % count
        raise _all_failed(problems)

    def _of_first(self, attempt: Callable[[Endpoint], T], deadline: Deadline) -> T:
        count, first, step = len(self._members), self.turn, deadline.left() / TURNS
        outcomes: list[tuple[int, T | None, Exception | None]] = []
        mutex, over = _thread.allocate_lock(), False
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as failure:
            raise BackendUnavailable(f"etcd: no pipe: {failure.strerror}") from None

        def serve(turn: int) -> None:
            answer = error = None
            try:
                answer = attempt(self._members[turn])
            except Exception as failure:  # noqa: BLE001 - it is raised again where somebody waits for it
                error = failure
            with mutex:
                if not over:
                    outcomes.append((turn, answer, error))
                    os.write(writing, b".")

        most = max(count, 2)
        started = 0
        problems: list[BackendUnavailable | ConfigError] = []
        try:
            while True:
                if started < most:
                    try:
                        _thread.start_new_thread(serve, ((first + started) % count,))
                    except RuntimeError:
                        raise BackendUnavailable(
                            "etcd: no thread to ask it in: too many processes (ulimit -u)"
                        ) from None
                    started += 1
                wait = deadline.sooner(step) if started < most else deadline
                try:
                    wait.wait(reading, READABLE, self.where)
                    os.read(reading, most)
                except BackendUnavailable:
                    if deadline.left() <= 0:
                        problems.append(deadline.passed(self.where))
                        break
                    continue
                while outcomes:
                    turn, answer, error = outcomes.pop(0)
                    if error is None:
                        self.turn = turn
                        return answer  # type: ignore[return-value]
                    if isinstance(error, Denied) or not isinstance(error, (BackendUnavailable, ConfigError)):
                        raise error
                    problems.append(error)
                if len(problems) == started >= count:
                    break
        finally:
            with mutex:
                over = True
                os.close(reading)
                os.close(writing)
        self.turn = (first + 1) % count
        raise _all_failed(problems)

    def _answers(self, member: Endpoint, requests: Requests, deadline: Deadline) -> list[dict[str, Any] | Exception]:
        """What a member answers, or the error that the answer means."""
        bodies = tuple((path, json_text.render(request).encode()) for path, request in requests)
        for attempt in (1, 2):
            if self._user is not None and not self._token:
                self._log_in(member, deadline)
            answers = [self._answer(member, response) for response in self._send(member, bodies, deadline)]
            stale = next((each for each in answers if isinstance(each, _StaleToken)), None)
            if stale is None:
                return answers
            if self._user is None:
                raise Denied(f"{member.where}: {stale}: the URL needs a user and its password")
            if attempt == 2:
                raise BackendUnavailable(f"{member.where}: {stale}, although we have just logged in")
            self._token = ""
        raise AssertionError("unreachable")

    def _answer(self, member: Endpoint, response: Response) -> dict[str, Any] | Exception:
        try:
            return self._content(member, response)
        except (LeaseGone, LeaseExists, _StaleToken, BackendUnavailable, ConfigError) as error:
            return error

    def _send(self, member: Endpoint, requests: tuple[tuple[str, bytes], ...], deadline: Deadline) -> list[Response]:
        client = self._client(member)
        posts = tuple(("POST", path, body) for path, body in requests)
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
        (response,) = self._send(member, (("/v3/auth/authenticate", body),), deadline)
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
        try:
            content = response.json()
        except BackendUnavailable:
            content = None
        if not isinstance(content, dict):
            from lockctl.stores.etcd.errors import not_a_gateway

            raise not_a_gateway(member.where, response)
        if response.status != 200 or "error" in content:
            raise _problem(member.where, content, self._user)
        inner = content.get("result", content)  # of a stream of answers, which here has one
        if not isinstance(inner, dict) or not isinstance(inner.get("header"), dict):
            raise BackendUnavailable(f"{member.where}: an answer that is not etcd's: {response.excerpt()}")
        inner["date"] = response.date
        return inner


def _all_right(answers: list[dict[str, Any] | Exception]) -> list[dict[str, Any]]:
    """These answers, if none of them is an error; raises the first one that is."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers  # type: ignore[return-value] # there is no error among them


def _all_failed(problems: list[BackendUnavailable | ConfigError]) -> BackendUnavailable | ConfigError:
    text = "; ".join(dict.fromkeys(str(problem) for problem in problems))
    if all(isinstance(problem, ConfigError) for problem in problems):
        return ConfigError(text)
    if isinstance(problems[-1], TooLarge):
        return problems[-1]  # whoever asked can ask for less
    return BackendUnavailable(text)


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
