"""What the middleware keeps of a request and an answer, called as a server calls it and without one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tempfile
from typing import TYPE_CHECKING, Any
from wsgiref.handlers import SimpleHandler
from wsgiref.validate import validator

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.fence import Location, Mark, Stale
from lockctl.fence import asgi as fence_asgi
from lockctl.fence import wsgi as fence_wsgi
from lockctl.fence.spool import PIECE
from tests.fence.webserver import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TOKEN = f"{DOMAIN};33"
LIMITS = {"memory": 1000, "body_limit": 300_000, "response_limit": 300_000}


class Book:
    """A store that is a list of what is done with its mark; the end of a hold can fail."""

    lockable = True

    def __init__(self, *, fails: bool = False) -> None:
        self.steps: list[str] = []
        self._fails = fails

    @contextlib.contextmanager
    def holding(self, _resource: str, _mark: Mark, *, timeout: float) -> Iterator[None]:
        assert timeout > 0
        self.steps.append("held")
        yield
        self.steps.append("free")
        if self._fails:
            raise BackendUnavailable("the connection is lost")

    def close(self) -> None:
        """Nothing is open."""

    def location(self, name: str) -> Location:
        return Location(self, f"/srv/{name}")  # type: ignore[arg-type]


class Answer:
    """What a client got."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


def wsgi(app: Any, book: Book, body: bytes = b"", **variables: str) -> Answer:
    """One PUT, with both sides checked for PEP 3333."""
    middleware = fence_wsgi.FenceMiddleware(validator(app), book.location, lambda _: "stock", **LIMITS)  # type: ignore[arg-type]
    environ = {"REQUEST_METHOD": "PUT", "SERVER_NAME": "shop", "SERVER_PORT": "80", "SCRIPT_NAME": "", "PATH_INFO": "/"}
    environ |= {"SERVER_PROTOCOL": "HTTP/1.0", "QUERY_STRING": "", "HTTP_X_FENCING_TOKEN": TOKEN}
    environ |= {"CONTENT_LENGTH": str(len(body))} | variables
    out, errors = io.BytesIO(), io.StringIO()

    class Out(io.BytesIO):
        def write(self, data: Any) -> int:
            if not out.tell():
                book.steps.append("sent")
            return out.write(data)

    SimpleHandler(io.BytesIO(body), Out(), errors, environ).run(validator(middleware))
    head, _, rest = out.getvalue().partition(b"\r\n\r\n")
    return Answer(int(head.split()[1]), rest)


def plain(book: Book) -> Callable[..., Iterable[bytes]]:
    """An application that says what it was given."""

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        book.steps.append("ran")
        stream = environ["wsgi.input"]
        line = stream.readline()
        return [line, stream.read(int(environ["CONTENT_LENGTH"]) - len(line))]

    return app


@pytest.mark.parametrize("size", [0, 10, 5000, 300_000])
def test_a_body_is_read_first_and_an_answer_is_sent_last(size: int) -> None:
    """Whether it is in memory or in a file."""
    book = Book()
    body = (b"first line\n" + os.urandom(size))[:size]
    answer = wsgi(plain(book), book, body)
    assert (answer.status, answer.body) == (200, body)
    assert book.steps == ["held", "ran", "free", "sent"]


@pytest.mark.parametrize(
    ("body", "stated", "status"),
    [(b"x" * 300_001, None, 413), (b"", "999999999999", 413), (b"half", "8", 400)],
)
def test_a_body_that_is_too_large_or_not_all_of_it_gets_nowhere_near_the_mark(
    body: bytes, stated: str | None, status: int
) -> None:
    book = Book()
    answer = wsgi(plain(book), book, body, **({} if stated is None else {"CONTENT_LENGTH": stated}))
    assert answer.status == status
    assert book.steps == ["sent"]


def test_a_length_that_is_no_number_or_has_thousands_of_digits_is_refused() -> None:
    book = Book()
    middleware = fence_wsgi.FenceMiddleware(plain(book), book.location, lambda _: "stock", **LIMITS)  # type: ignore[arg-type]
    told: list[str] = []

    def start_response(status: str, *_: object) -> Callable[[bytes], None]:
        told.append(status)
        return told.clear  # type: ignore[return-value]

    for stated in ("-1", "four", "\u0665", " 5", "9" * 5000):
        middleware({"REQUEST_METHOD": "PUT", "HTTP_X_FENCING_TOKEN": TOKEN, "CONTENT_LENGTH": stated}, start_response)
    assert told == [*["400 Bad Request"] * 4, "413 Content Too Large"]
    assert book.steps == []


def test_a_body_of_chunks_is_read_to_its_end_and_its_length_told() -> None:
    book = Book()
    middleware = fence_wsgi.FenceMiddleware(plain(book), book.location, lambda _: "stock", **LIMITS)  # type: ignore[arg-type]
    environ = {"REQUEST_METHOD": "PUT", "HTTP_X_FENCING_TOKEN": TOKEN, "HTTP_TRANSFER_ENCODING": "chunked"}
    body = b"line\n" + b"x" * 5000
    given = {**environ, "wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True}
    with contextlib.closing(middleware(given, lambda *_: lambda _: None)) as answer:  # type: ignore[type-var]
        assert b"".join(answer) == body
    assert given["CONTENT_LENGTH"] == str(len(body))
    assert "HTTP_TRANSFER_ENCODING" not in given


def test_what_is_written_comes_before_what_is_returned_and_close_before_the_mark_is_given_back() -> None:
    book = Book()

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            yield b"second, "
            book.steps.append("ran")
            yield b"third"

        def close(self) -> None:
            book.steps.append("closed")

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])(b"first, ")
        return Body()

    assert wsgi(app, book).body == b"first, second, third"
    assert book.steps == ["held", "ran", "closed", "free", "sent"]


def test_an_application_may_begin_its_answer_late_and_change_its_mind_before_it_has_said_anything() -> None:
    book = Book()

    def app(_environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            raise OSError("the disk is full")
        except OSError as failure:
            start_response("507 No", [("Content-Type", "text/plain")], (OSError, failure, failure.__traceback__))
        yield b"full"

    answer = wsgi(app, book)
    assert (answer.status, answer.body) == (507, b"full")


@pytest.mark.parametrize("way", ["raises", "stale", "late", "large", "no start", "starts twice", "close"])
def test_a_handler_that_fails_anywhere_gives_the_mark_back_and_answers_500(way: str) -> None:
    """Also when the error looks like one of ours."""
    book = Book()

    class Failing:
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"

        def close(self) -> None:
            raise OSError(way)

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        if way == "raises":
            raise OSError(way)
        if way == "stale":
            raise Stale("other", Mark("d", 1), Mark("d", 2))
        if way == "no start":
            return [b"x"]
        start_response("200 OK", [("Content-Type", "text/plain")])
        if way == "starts twice":
            start_response("200 OK", [("Content-Type", "text/plain")])
        if way == "close":
            return Failing()
        return late()

    def late() -> Iterator[bytes]:
        for _ in range(6):
            yield b"x" * PIECE
        raise OSError(way)

    middleware = fence_wsgi.FenceMiddleware(app, book.location, lambda _: "stock", **LIMITS)  # type: ignore[arg-type]
    with pytest.raises((OSError, Stale, RuntimeError)):
        middleware({"REQUEST_METHOD": "PUT", "HTTP_X_FENCING_TOKEN": TOKEN}, lambda *_: lambda _: None)
    assert book.steps == ["held", "free"]


def test_an_answer_under_a_mark_that_was_lost_is_no_success() -> None:
    book = Book(fails=True)
    answer = wsgi(plain(book), book)
    assert answer.status == 503
    assert b'"not_held"' in answer.body
    assert b"/srv" not in answer.body
    assert book.steps == ["held", "ran", "free", "sent"]


def asgi(app: Any, book: Book, messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """One PUT; what was sent, and the steps."""
    middleware = fence_asgi.FenceMiddleware(app, book.location, lambda _: "stock", **LIMITS)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        if not sent:
            book.steps.append("sent")
        sent.append(message)

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/",
        "headers": [(b"x-fencing-token", TOKEN.encode())],
        "extensions": {"http.response.pathsend": {}, "tls": {}},
    }
    asyncio.run(middleware(scope, receive, send))
    return sent, book.steps


def request(*pieces: bytes) -> list[dict[str, Any]]:
    """The messages of a body."""
    return [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]


def echo(book: Book) -> Any:
    """An application that says what it was given, and listens for the end of the client."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["extensions"] == {"tls": {}}
        book.steps.append("ran")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})
        assert (await receive())["type"] == "http.disconnect"

    return app


@pytest.mark.parametrize("pieces", [[b""], [b"abc"], [b"a" * 900, b"b" * 900, b""], [b"x" * 70_000] * 4])
def test_asgi_reads_first_and_answers_last(pieces: list[bytes]) -> None:
    book = Book()
    sent, steps = asgi(echo(book), book, request(*pieces))
    assert sent[0]["status"] == 200
    assert b"".join(message["body"] for message in sent[1:]) == b"".join(pieces)
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert steps == ["held", "ran", "free", "sent"]


def test_asgi_knows_the_same_ends() -> None:
    book = Book()
    gone, steps = asgi(echo(book), book, [*request(b"half", b"rest")[:1], {"type": "http.disconnect"}])
    assert (gone, steps) == ([], [])
    large, steps = asgi(echo(book), book, request(b"x" * 200_000, b"x" * 200_000))
    assert (large[0]["status"], steps) == (413, ["sent"])
    lost = Book(fails=True)
    sent, steps = asgi(echo(lost), lost, request(b"abc"))
    assert sent[0]["status"] == 503
    assert b'"not_held"' in sent[1]["body"]
    assert b"/srv" not in sent[1]["body"]
    assert steps == ["held", "ran", "free", "sent"]


@pytest.mark.parametrize("way", ["raises", "stale", "large", "trailers", "late"])
def test_an_asgi_handler_that_fails_gives_the_mark_back_and_has_not_answered(way: str) -> None:
    book = Book()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        if way == "raises":
            raise OSError(way)
        if way == "stale":
            raise Stale("other", Mark("d", 1), Mark("d", 2))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if way == "trailers":
            await send({"type": "http.response.trailers", "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (400_000 if way == "large" else 10)})
        raise OSError(way)

    with pytest.raises((OSError, Stale, RuntimeError)):
        asgi(app, book, request(b""))
    assert book.steps == ["held", "free"]


def test_nothing_is_left_in_the_directory_of_temporary_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    book = Book()
    seen: list[list[str]] = []

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        seen.append(os.listdir(tmp_path))
        return plain(book)(environ, start_response)

    assert wsgi(app, book, b"x" * 100_000).status == 200
    assert seen == [[]]  # it never had a name
    assert os.listdir(tmp_path) == []
