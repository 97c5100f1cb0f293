"""A real server with the middleware, in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockctl.fence import Mark, current
from lockctl.fence import http as fencing
from tests.servers.process import Server
from tests.servers.web import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 30.0  # seconds
DOMAIN = "etcd:14841639068965178418"


class WebServer(Server):
    """A server of the environment of these tests, with the application of ``shop``."""

    programs: ClassVar[tuple[str, ...]] = ("setpriv",)

    def __init__(self, directory: Path, words: Sequence[str], **variables: str) -> None:
        """*words*: the arguments of ``python -m``, in which ``{port}`` is replaced."""
        super().__init__(directory)
        self._arguments = words
        self._more = variables

    def _configure(self) -> None:
        """Nothing is in files."""

    def _words(self) -> list[str]:
        return [sys.executable, "-m", *(word.format(port=self.port) for word in self._arguments)]

    def _variables(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT), "SHOP": str(self.directory), **self._more}

    def _answers(self) -> bool:
        return request(self.address, "GET", "/free")[0] == 200

    def send(self, method: str, path: str, *tokens: str, timeout: float = LIMIT) -> Answer:
        """One request with these headers."""
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        try:
            connection.putrequest(method, path)
            for token in tokens:
                connection.putheader("X-Fencing-Token", token.encode("latin-1"))
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def put(self, token: int, path: str = "/stock/a", domain: str = DOMAIN, timeout: float = LIMIT) -> Answer:
        """A write under a token."""
        return self.send("PUT", path, fencing.format_header(Mark(domain, token)), timeout=timeout)

    def journal(self, name: str = "a") -> list[tuple[str, int, int]]:
        """What the handlers did: step, token and process."""
        path = self.directory / f"{name}.journal"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(step, int(token), int(pid)) for step, token, pid in lines]

    def mark(self, name: str = "a", store: str | None = None) -> Mark | None:
        """The mark of a resource."""
        return current(name, store=store or f"file://{self.directory}")

    def clear(self) -> None:
        """Forget all resources, and what was logged: for the next test."""
        for path in self.directory.iterdir():
            if path.name == "log":
                os.truncate(path, 0)
            elif path.is_file():
                path.unlink()

    def say(self, word: str) -> None:
        """Let the handlers that wait for it go on."""
        (self.directory / word).touch()


class Answer:
    """A response that was read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.fields = response.headers
        self.body = response.read()

    def problem(self) -> Any:
        """The document of a refusal."""
        assert self.fields["Content-Type"] == "application/problem+json"
        return json.loads(self.body)


def serving(directory: Path, *words: str) -> Iterator[Callable[..., WebServer]]:
    """What the fixture ``start`` of a server yields."""
    started: list[WebServer] = []

    def start(**variables: str) -> WebServer:
        server = WebServer(directory, words, **variables)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.discard()
