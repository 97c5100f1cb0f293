"""Marks of objects in Google Cloud Storage: the contract, and what belongs to an object."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.fence.contract import LIMIT, Client, mark
from tests.fence.objects import ObjectHarness, VersionedContract, write, writes_mark
from tests.servers import web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, HttpProxy, Request

pytestmark = pytest.mark.slow


class GcsHarness(ObjectHarness):
    """A bucket of its own."""

    def __init__(self, server: Gcs) -> None:
        super().__init__(server)
        self.peer = server
        self.bucket = f"t{os.urandom(6).hex()}"
        server.make(self.bucket)

    def at(self, address: str, resource: str) -> str:
        return f"gcs://{self.bucket}/{resource}?anonymous=yes&endpoint=http://{address}"

    def stored(self, name: str) -> bytes | None:
        status, data = self.ask("GET", f"/storage/v1/b/{self.bucket}/o/{quote(name, safe='')}?alt=media")
        return None if status == 404 else data

    def place(self, name: str, data: bytes, **what: object) -> None:
        kind = str(what.get("contentType", "text/plain")).encode()
        parts = (b"application/json", json.dumps({"name": name, **what}).encode()), (kind, data)
        body = b"".join(b"--mark\r\nContent-Type: %s\r\n\r\n%s\r\n" % part for part in parts) + b"--mark--\r\n"
        target = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=multipart"
        fields = {"Content-Type": "multipart/related; boundary=mark"}
        assert web.request(self.peer.address, "POST", target, body=body, headers=fields, timeout=10.0)[0] == 200

    def known(self, name: str) -> dict[str, object]:
        """What belongs to an object."""
        found: dict[str, object] = json.loads(self.ask("GET", f"/storage/v1/b/{self.bucket}/o/{name}")[1])
        return found

    def names(self) -> set[str]:
        return set(self.peer.objects(self.bucket))

    def ask(self, method: str, target: str) -> tuple[int, bytes]:
        """A request as another program sends it."""
        return web.request(self.peer.address, method, target, timeout=10.0)


@pytest.fixture
def harness(gcs_server: Gcs) -> Iterator[GcsHarness]:
    made = GcsHarness(gcs_server)
    yield made
    made.close()


class TestGcs(VersionedContract):
    """Every promise."""

    def test_what_belongs_to_an_object_stays_and_says_which_token_wrote_it(
        self, harness: GcsHarness, client: Client
    ) -> None:
        what = {
            "contentType": "application/json",
            "cacheControl": "no-cache",
            "contentLanguage": "de",
            "customTime": "2026-10-21T07:28:00Z",
        }
        harness.place("stock", b"{}", metadata={"owner": "Bj\N{LATIN SMALL LETTER O WITH DIAERESIS}rn"}, **what)
        for token in (33, 34):
            write(client, token, b"[]")
        found = harness.known("stock")
        assert {name: found[name] for name in what} == what
        owner = {"owner": "Bj\N{LATIN SMALL LETTER O WITH DIAERESIS}rn"}
        assert found["metadata"] == {**owner, "lockctl-fence": str(mark(34))}

    def test_a_write_that_comes_too_soon_is_sent_again(self, watched: Client, between: HttpProxy) -> None:
        refused: list[Request] = []

        def refuse(request: Request) -> Answer | None:
            if not writes_mark(request) or refused:
                return None
            refused.append(request)
            return 429, [], b"{}"

        between.look = refuse
        assert watched.advance(mark(33)) == mark(33)
        assert refused
        between.look = lambda request: (429, [], b"{}") if writes_mark(request) else None
        with pytest.raises(BackendUnavailable, match=r"too many requests \(429\)"):
            watched.advance(mark(34), timeout=0.5)
        assert watched.current() == mark(33)

    def test_a_mark_whose_removal_comes_too_soon_is_not_said_to_be_gone(
        self, watched: Client, between: HttpProxy
    ) -> None:
        """Nor is it said that there was no answer, where the last try of several had none."""
        watched.advance(mark(33))
        asked: list[Request] = []
        over = threading.Event()

        def refuse(request: Request) -> Answer | None:
            if request.method != "DELETE":
                return None
            if asked:
                over.wait(LIMIT)
            asked.append(request)
            return 429, [], b"{}"

        between.look = refuse
        with pytest.raises(BackendUnavailable, match=r"too many requests \(429\)"):
            watched.store.reset(watched.resource, None, timeout=5.0)
        over.set()
        assert watched.current() == mark(33)

    def test_a_missing_bucket_is_no_missing_mark(self, watched: Client, between: HttpProxy) -> None:
        document = {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        between.look = lambda _: (404, [], json.dumps(document).encode())
        for step in (watched.current, lambda: watched.advance(mark(33))):
            with pytest.raises(ConfigError, match="there is no gcs://"):
                step()
