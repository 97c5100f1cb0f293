"""Marks of documents on a web server: the contract, and what only web servers can do to a mark."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from lockctl import fence
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import locate
from lockctl.fence.http import parse_header
from lockctl.fence.stores.http import HttpStore
from tests.fence.contract import DOMAIN, Client, mark
from tests.fence.objects import SIDE, ObjectContract, ObjectHarness, write, writes_data
from tests.jobs import LIMIT, eventually
from tests.servers import web
from tests.servers.lighttpd import Lighttpd
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.http_proxy import Answer, HttpProxy, Request

pytestmark = pytest.mark.slow

PASSWORD = "s3cret:/?"


class HttpHarness(ObjectHarness):
    """A directory of its own."""

    server: Lighttpd

    def __init__(self, server: Lighttpd) -> None:
        super().__init__(server)
        self.directory = server.documents / os.urandom(6).hex()
        self.directory.mkdir()

    def at(self, address: str, resource: str) -> str:
        return f"http://{address}/{self.directory.name}/{quote(resource)}"

    def stored(self, name: str) -> bytes | None:
        path = self.directory / name
        return path.read_bytes() if path.exists() else None

    def place(self, name: str, data: bytes) -> None:
        aside = self.directory / "aside"
        aside.write_bytes(data)
        aside.replace(self.directory / name)

    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.directory)


@pytest.fixture(scope="module")
def lighttpd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lighttpd]:
    try:
        server = Lighttpd(tmp_path_factory.mktemp("lighttpd"))
    except ProgramMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    server.start()
    yield server
    server.discard()


@pytest.fixture
def harness(lighttpd: Lighttpd) -> Iterator[HttpHarness]:
    made = HttpHarness(lighttpd)
    yield made
    made.close()


@pytest.fixture
def private(start_server: Callable[..., Any]) -> Callable[..., Lighttpd]:
    """A call that starts a server of another kind."""

    def start(**options: Any) -> Lighttpd:
        server = start_server(Lighttpd, **options)
        assert isinstance(server, Lighttpd)
        return server

    return start


class TestHttp(ObjectContract):
    """Every promise but one: whoever answers is the server."""

    test_what_a_proxy_refuses_is_no_missing_mark = None  # type: ignore[assignment]

    def test_the_type_of_a_document_stays(self, harness: HttpHarness, watched: Client, between: HttpProxy) -> None:
        sent = []

        def look(request: Request) -> None:
            if writes_data(request):
                sent.append((request.headers.get("content-type"), request.headers["x-fencing-token"]))

        harness.place("stock", b"{}")
        between.look = look
        write(watched, 33, b"[]")
        assert sent == [("application/octet-stream", str(mark(33)))]

    def test_a_server_that_checks_the_header_can_read_every_mark(self, watched: Client, between: HttpProxy) -> None:
        sent = []

        def look(request: Request) -> None:
            if request.method == "PUT" and "x-fencing-token" in request.headers:
                sent.append(request.headers["x-fencing-token"])

        between.look = look
        strange = mark(33, "file:web3:/srv/a, b;\N{SNOWMAN}")
        assert isinstance(watched.store, HttpStore)
        watched.store.put(watched.resource, b"[]", strange, timeout=LIMIT)
        assert [parse_header(content) for content in sent] == [strange, strange]

    def test_etags_that_are_weak_for_a_second_are_waited_for(self, watched: Client, between: HttpProxy) -> None:
        strong_from = time.monotonic() + 0.7

        def weak(_: Request, answer: Answer) -> Answer:
            status, fields, body = answer
            early = time.monotonic() < strong_from
            changed = [(name, "W/" + text if name.lower() == "etag" and early else text) for name, text in fields]
            return status, changed, body

        between.look_back = weak
        watched.advance(mark(33))
        assert watched.advance(mark(34)) == mark(34)
        assert time.monotonic() >= strong_from

    def test_etags_that_stay_weak_cannot_keep_a_mark(
        self, harness: HttpHarness, client: Client, watched: Client, between: HttpProxy
    ) -> None:
        client.advance(mark(33))

        def weak(_: Request, answer: Answer) -> Answer:
            status, fields, body = answer
            return status, [(name, "W/" + text if name.lower() == "etag" else text) for name, text in fields], body

        between.look_back = weak
        with pytest.raises(ConfigError, match="only weak ETags"):
            watched.advance(mark(34))
        assert client.current() == mark(33)

    def test_a_document_that_has_moved_is_not_followed(self, watched: Client, between: HttpProxy) -> None:
        def moved(_: Request) -> Answer:
            return 308, [("Location", "https://elsewhere.example/stock?signature=s3cret")], b""

        between.look = moved
        with pytest.raises(ConfigError, match=r"moved to https://elsewhere.example/stock: ") as told:
            watched.advance(mark(33))
        assert "s3cret" not in str(told.value)

    def test_a_directory_that_is_not_there_is_named(self, lighttpd: Lighttpd) -> None:
        with pytest.raises(ConfigError, match="is the directory there"):
            fence.advance(f"{lighttpd.url}/nowhere/stock", mark(33))


class TestServers:
    """Servers that are configured differently."""

    def test_a_full_disk_leaves_the_mark_as_it_was(self, private: Callable[..., Lighttpd]) -> None:
        server = private(disk="64k")
        url = f"{server.url}/stock"
        fence.advance(url, mark(33))
        while web.request(server.address, "PUT", f"/{os.urandom(6).hex()}", body=b"x" * 4096)[0] == 201:
            pass
        with pytest.raises((ConfigError, BackendUnavailable)) as told:
            fence.advance(url, mark(34))
        assert "status 507" in str(told.value)
        assert fence.current(url) == mark(33)

    def test_a_server_that_only_reads_refuses_the_mark(self, private: Callable[..., Lighttpd], tmp_path: Path) -> None:
        server = private(readonly=True)
        (server.documents / ("stock" + SIDE)).write_text(str(mark(33)))
        assert fence.current(f"{server.url}/stock") == mark(33)
        with pytest.raises(ConfigError, match="no permission"):
            fence.advance(f"{server.url}/stock", mark(34))

    def test_etags_that_do_not_change_with_the_content_are_found_out(self, private: Callable[..., Lighttpd]) -> None:
        server = private(extra=['etag.use-inode = "disable"', 'etag.use-mtime = "disable"'])
        for step in (lambda url: fence.advance(url, mark(33)), lambda url: fence.reset(url, mark(33))):
            with pytest.raises(ConfigError, match="ETags stay the same"):
                step(f"{server.url}/stock")
        assert list(server.documents.iterdir()) == []

    def test_a_server_without_etags_is_found_out(self, private: Callable[..., Lighttpd]) -> None:
        names = ("inode", "mtime", "size")
        server = private(extra=[f'etag.use-{name} = "disable"' for name in names])
        with pytest.raises(ConfigError):
            fence.advance(f"{server.url}/stock", mark(33))
        assert list(server.documents.iterdir()) == []

    def test_who_we_are_comes_from_the_url_or_a_file_and_is_never_shown(
        self, private: Callable[..., Lighttpd], tmp_path: Path
    ) -> None:
        server = private(login=("me", PASSWORD))
        (tmp_path / "password").write_text(PASSWORD + "\n")
        quoted = quote(PASSWORD, safe="")
        place = f"{server.address}/stock"
        assert fence.advance(f"http://me:{quoted}@{place}", mark(33)) == mark(33)
        assert fence.current(f"http://me@{place}?password_file={tmp_path}/password") == mark(33)
        (tmp_path / "changed").write_text("wrongpass")
        store = locate(f"http://me@{place}?password_file={tmp_path}/changed").store
        with pytest.raises(ConfigError, match="status 401"):
            store.current("/stock", timeout=LIMIT)
        (tmp_path / "changed").write_text(PASSWORD)
        assert store.current("/stock", timeout=LIMIT) == mark(33), "the file is read again"
        store.close()
        for wrong in ("", "me:wrongpass@", ":wrongpass@"):
            with pytest.raises(ConfigError, match=r"status 40[01]") as told:
                fence.advance(f"http://{wrong}{place}", mark(34))
            assert "wrongpass" not in str(told.value)
        assert fence.current(f"http://me:{quoted}@{place}") == mark(33)

    def test_a_token_is_sent_as_a_bearer_and_never_shown(self, harness: HttpHarness, between: HttpProxy) -> None:
        def look(request: Request) -> Answer | None:
            if request.headers.get("authorization") == "Bearer t0ken":
                return None
            return 422, [], f"I will not have {request.headers.get('authorization')}".encode()

        between.look = look
        url = harness.at(between.address, "stock")
        assert fence.advance(url.replace("//", "//:t0ken@"), mark(33)) == mark(33)
        with pytest.raises(ConfigError, match=r"I will not have Bearer \*\*\*") as told:
            fence.advance(url.replace("//", "//:an0ther@"), mark(33))
        assert "an0ther" not in str(told.value)

    @pytest.fixture
    def between(self, lighttpd: Lighttpd) -> Iterator[HttpProxy]:
        from tests.servers.http_proxy import HttpProxy

        with HttpProxy(lighttpd.address) as proxy:
            yield proxy

    def test_a_server_that_is_not_there_is_not_reachable(self) -> None:
        with pytest.raises(BackendUnavailable):
            fence.advance("http://127.0.0.1:1/stock", mark(33), timeout=3.0)


def test_the_command_line_writes_an_object_under_a_current_token_only(harness: HttpHarness, lockctl: Lockctl) -> None:
    resource, store = harness.words("stock")
    assert store == ""

    def shown(token: int, content: str) -> int:
        words = ("fence", "write", "--token", str(token), "--domain", DOMAIN, resource)
        return lockctl(*words, input=content).returncode

    assert shown(33, "first") == 0
    assert shown(34, "second") == 0
    assert shown(33, "late") == 77
    assert (harness.directory / "stock").read_text() == "second"


def test_the_command_line_calls_an_object_by_its_url(harness: HttpHarness, lockctl: Lockctl) -> None:
    """Its path alone looks like that of a file of this host."""
    resource, _ = harness.words("stock")
    for words in (("show",), ("reset", "--token", "33", "--domain", DOMAIN, "--yes"), ("reset", "--yes")):
        done = lockctl("fence", *words, resource)
        assert (done.returncode, done.stderr.startswith(f"lockctl: {resource} has ")) == (0, True)


def test_the_command_line_never_takes_the_beginning_of_an_input_for_all_of_it(
    harness: HttpHarness, lockctl: Lockctl
) -> None:
    resource, _ = harness.words("stock")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # as another program on the same pipe may have made it
    os.write(writing, b"first ")
    slow = lockctl.start("fence", "write", "--token", "33", "--domain", DOMAIN, resource, stdin=reading)
    eventually((harness.directory / f"stock{SIDE}").exists)
    time.sleep(0.2)
    os.write(writing, b"second")
    os.close(writing)
    assert slow.wait(timeout=LIMIT) == 0
    os.close(reading)
    assert (harness.directory / "stock").read_text() == "first second"
