"""An HTTP proxy before a server that looks at each request: what real proxies lose, and what happens in between."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    Answer = tuple[int, list[tuple[str, str]], bytes]  # status, header fields, body
    # what it may do with a request: change the header fields, take its time, or answer itself
    Look = Callable[["Request"], "Answer | None"]

HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}
LIMIT = 10.0  # seconds for one request to the server


class Request:
    """One request on its way."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        """The names of *headers* are in lower case."""
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body


class HttpProxy:
    """Listens on a free port of 127.0.0.1 between ``with`` and its end."""

    def __init__(self, target: str, look: Look = lambda _: None) -> None:
        """*target* is ``HOST:PORT``; *look* is called with each request, and may be changed at any time."""
        self.look = look
        self.look_back: Callable[[Request, Answer], Answer] = lambda _, answer: answer  # the same with each answer
        self.lose_answer = False  # the server does what is asked, and nobody hears of it
        self.seen: list[tuple[str, str]] = []  # method and path
        self.ahead = 0.0  # seconds by which the clock is that answers tell
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body would else wait for 40 ms

            def log_message(self, *_: object) -> None:
                pass

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): content for name, content in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                proxy.seen.append((request.method, request.path))
                answer = proxy.look(request) or self.ask(request)
                status, fields, content = proxy.look_back(request, answer)
                if proxy.lose_answer:
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, text in fields:
                    if name.lower() == "date" and proxy.ahead:
                        self.send_header(name, self.date_time_string(time.time() + proxy.ahead))
                    elif name.lower() not in HOP:
                        self.send_header(name, text)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if request.method != "HEAD":
                    with contextlib.suppress(ConnectionError):  # who asked has given up
                        self.wfile.write(content)

            def ask(self, request: Request) -> Answer:
                connection = http.client.HTTPConnection(target, timeout=LIMIT)
                try:
                    connection.request(request.method, request.path, body=request.body, headers=request.headers)
                    got = connection.getresponse()
                    return got.status, got.getheaders(), got.read()
                finally:
                    connection.close()

            def __getattr__(self, name: str) -> Callable[[], None]:
                """Any method, also one of WebDAV: http.server looks for it under ``do_`` and its name."""
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self.pass_on

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """``http://`` and the address."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def without_conditions(request: Request) -> None:
    """What some proxies and servers do with conditions: drop them silently."""
    request.headers.pop("if-match", None)
    without_conditions_for_new_ones(request)
    request.path = re.sub("&?ifGenerationMatch=[0-9]+", "", request.path)


def without_conditions_for_new_ones(request: Request) -> None:
    """The same with those alone that say that nothing may be there."""
    request.headers.pop("if-none-match", None)
    request.path = re.sub("&?ifGenerationMatch=0(?![0-9])", "", request.path)
