"""What every server with the middleware promises, whichever protocol it speaks to the application."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import select
import signal
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from lockctl.fence import Mark, Stale, locate
from lockctl.fence import http as fencing
from tests.fence.databases import PostgresqlHarness
from tests.fence.shop import BLOCK, LARGE
from tests.fence.webserver import DOMAIN, LIMIT, Answer, WebServer, serving
from tests.jobs import alive, eventually
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.servers.postgres import Postgres

MOST_PROCESSES = 3  # of one server here
OTHER = "redis:db.example:6379/0"


class WebContract:
    """To be inherited for each server."""

    words: ClassVar[Sequence[str]]  # that start it, behind ``python -m``
    reads_first = False  # whether the server calls an application only when all of the request is there

    @pytest.fixture
    def start(self, locks: Path) -> Iterator[Callable[..., WebServer]]:
        """A call that starts a server of the test, with these variables."""
        yield from serving(locks, *self.words)

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Iterator[WebServer]:
        """A server of all tests that do not harm it."""
        with tempfile.TemporaryDirectory(prefix="lockctl-shop-", dir=local_directory()) as directory:
            for start in serving(Path(directory), *cls.words):
                yield start()

    @pytest.fixture
    def shop(self, shared: WebServer) -> WebServer:
        """One that has seen no request."""
        shared.clear()
        return shared

    def test_of_many_writers_at_once_those_that_are_let_in_rise_one_after_the_other(self, shop: WebServer) -> None:
        check_writers(shop, shop)

    def test_so_they_do_when_two_servers_share_the_marks(self, start: Callable[..., WebServer]) -> None:
        first, second = start(), start()
        check_writers(first, second)
        assert len({pid for name in "abcd" for _, _, pid in first.journal(name)}) > 1

    def test_a_read_with_a_newer_token_waits_for_the_write_before_it_and_no_older_write_follows(
        self, shop: WebServer
    ) -> None:
        with ThreadPoolExecutor(2) as pool:
            old = pool.submit(shop.send, "PUT", "/stock/a?wait=go", f"{DOMAIN};33")
            eventually(shop.journal)
            new = pool.submit(shop.send, "GET", "/stock/a", f"{DOMAIN};34")
            time.sleep(0.2)
            assert [step for step, _, _ in shop.journal()] == ["begin"]
            assert not new.done()
            shop.say("go")
            assert old.result().status == 200
            assert new.result().status == 200
        assert [(step, token) for step, token, _ in shop.journal()][-1] == ("end", 34)
        assert shop.journal()[1][:2] == ("end", 33)
        refused = shop.put(33)
        assert refused.status == 412
        assert refused.problem()["error"] == "stale"
        assert shop.put(34).status == 200

    def test_a_read_runs_beside_others(self, shop: WebServer) -> None:
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit(shop.send, "GET", "/stock/a?wait=go", f"{DOMAIN};33")
            eventually(shop.journal)
            assert shop.put(32).status == 412
            assert shop.put(33).status == 200
            assert shop.put(34).status == 200
            assert not read.done()
            shop.say("go")
            assert read.result().status == 200

    def test_what_is_refused_and_how(self, shop: WebServer) -> None:
        assert shop.put(33).status == 200
        ran = len(shop.journal())
        for method in ("PUT", "POST", "PATCH", "DELETE", "PURGE"):
            missing = shop.send(method, "/stock/a")
            assert missing.status == 428
            assert missing.problem()["error"] == "missing"
        for header in ("33", "d;x", f"{DOMAIN};-1", f"{DOMAIN};34,{DOMAIN};34", "", f"{DOMAIN}\xff;34"):
            malformed = shop.send("PUT", "/stock/a", header)
            assert malformed.status == 400
        for first, second in ((33, 34), (34, 34), (34, 33)):
            assert shop.send("PUT", "/stock/a", f"{DOMAIN};{first}", f"{DOMAIN};{second}").status == 400
        stale = shop.put(32)
        assert stale.status == 412
        assert fencing.parse_header(stale.fields["X-Fencing-Token-Current"]) == Mark(DOMAIN, 33)
        assert stale.problem()["resource"] == "a"
        assert stale.problem()["current"] == {"domain": DOMAIN, "token": 33}
        assert stale.problem()["detail"] == "a refuses token 32: it has already seen token 33"
        with pytest.raises(Stale):
            fencing.raise_if_stale("a", Mark(DOMAIN, 32), stale.status, stale.fields)
        foreign = shop.put(10**18, domain=OTHER)
        assert foreign.status == 412
        assert foreign.problem()["error"] == "other_domain"
        told = f"a refuses token {10**18}: its mark is of another domain, {DOMAIN} and not {OTHER}"
        assert foreign.problem()["detail"] == told
        head = shop.send("HEAD", "/stock/a", f"{DOMAIN};32")
        assert (head.status, head.body) == (412, b"")
        assert shop.send("PUT", "/stock/" + "x" * 301, f"{DOMAIN};1").status == 400
        assert len(shop.journal()) == ran  # no handler ran
        assert shop.mark() == Mark(DOMAIN, 33)
        assert shop.send("GET", "/stock/a").status == 200  # reads need no token
        assert shop.send("PUT", "/free").status == 200
        assert shop.put(33).status == 200

    def test_a_handler_that_raises_gives_the_mark_back(self, shop: WebServer) -> None:
        for token in (33, 34, 35):
            assert shop.put(token, "/stock/a?raise", timeout=5).status == 500
        assert shop.mark() == Mark(DOMAIN, 35)
        assert shop.put(34).status == 412
        assert shop.put(36, timeout=5).status == 200
        assert [step for step, _, _ in shop.journal()] == ["raise", "raise", "raise", "begin", "end"]

    def test_a_response_is_sent_when_the_mark_was_given_back(self, shop: WebServer) -> None:
        with self.reading(shop, "go") as connection, ThreadPoolExecutor(1) as pool:
            eventually(shop.journal)
            new = pool.submit(shop.put, 34)
            assert shop.mark() == Mark(DOMAIN, 33)
            assert not new.done()
            assert not select.select([connection.sock], [], [], 0.1)[0]
            shop.say("go")
            response = connection.getresponse()
            body = response.read()
            assert (response.status, body[:6], body[-5:]) == (200, b"first\n", b"last\n")
            assert new.result().status == 200
        assert [(step, token) for step, token, _ in shop.journal()] == [
            ("begin", 33),
            ("end", 33),
            ("begin", 34),
            ("end", 34),
        ]

    def test_a_client_that_goes_in_the_middle_of_a_stream_leaves_nothing_shut(self, shop: WebServer) -> None:
        with self.reading(shop, "go"):
            eventually(shop.journal)
        shop.say("go")
        assert shop.put(34, timeout=10).status == 200
        assert [step for step, _, _ in shop.journal()] == ["begin", "end", "begin", "end"]

    def test_a_client_that_does_not_read_a_large_answer_keeps_nobody_out(self, shop: WebServer) -> None:
        with self.reading(shop, "large") as connection:
            eventually(lambda: len(shop.journal()) == 2)
            assert shop.put(34, timeout=10).status == 200
            body = connection.getresponse().read()
            assert (body[:6], body[-5:], len(body)) == (b"first\n", b"last\n", 6 + LARGE * len(BLOCK) + 5)

    def test_a_client_that_is_paused_in_its_upload_keeps_nobody_out_and_is_refused(self, shop: WebServer) -> None:
        with socket.create_connection(("127.0.0.1", shop.port), LIMIT) as slow:
            head = f"PUT /stock/a HTTP/1.1\r\nHost: shop\r\nX-Fencing-Token: {DOMAIN};33\r\nContent-Length: 8\r\n\r\n"
            slow.sendall(head.encode() + b"half")
            if not self.reads_first:
                eventually((shop.directory / "a.came").exists)
            assert shop.put(34, timeout=10).status == 200
            slow.sendall(b"rest")
            assert slow.recv(100).startswith(b"HTTP/1.1 412 ")
        assert {token for _, token, _ in shop.journal()} == {34}

    def test_a_client_that_goes_in_its_upload_has_done_nothing(self, shop: WebServer) -> None:
        with socket.create_connection(("127.0.0.1", shop.port), LIMIT) as slow:
            head = f"PUT /stock/a HTTP/1.1\r\nHost: shop\r\nX-Fencing-Token: {DOMAIN};34\r\nContent-Length: 8\r\n\r\n"
            slow.sendall(head.encode() + b"half")
            if not self.reads_first:
                eventually((shop.directory / "a.came").exists)
        assert shop.put(33, timeout=10).status == 200
        assert {token for _, token, _ in shop.journal()} == {33}

    def test_an_answer_of_a_handler_whose_mark_was_lost_is_not_passed_on(
        self, start: Callable[..., WebServer], postgres_server: Postgres
    ) -> None:
        with contextlib.closing(PostgresqlHarness(postgres_server)) as marks:
            shop = start(SHOP_STORE=marks.url())
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(shop.put, 33, "/stock/a?wait=go")
                eventually(shop.journal)
                marks.proxy.mode = "reset"
                shop.say("go")
                lost = writing.result()
            marks.proxy.mode = "pass"
            assert (lost.status, lost.problem()["error"]) == (503, "not_held")
            assert "Retry-After" not in lost.fields
            assert [step for step, _, _ in shop.journal()] == ["begin", "end"]
            assert "may have been free before its request ended" in shop.log()
            assert shop.put(34).status == 200

    def test_one_connection_to_the_store_serves_one_request_after_the_other(
        self, start: Callable[..., WebServer], postgres_server: Postgres
    ) -> None:
        with contextlib.closing(PostgresqlHarness(postgres_server)) as marks:
            shop = start(SHOP_STORE=marks.url())
            for token in range(1, 21):
                assert shop.put(token).status == 200
            assert 1 <= marks.proxy.accepted <= MOST_PROCESSES

    class reading:  # noqa: N801 - used like a function
        """A request for a stream under token 33, cut off when the block ends."""

        def __init__(self, shop: WebServer, word: str) -> None:
            self._connection = http.client.HTTPConnection(shop.address, timeout=LIMIT)
            self._connection.request("POST", f"/stock/a?stream={word}", headers={"X-Fencing-Token": f"{DOMAIN};33"})

        def __enter__(self) -> http.client.HTTPConnection:
            return self._connection

        def __exit__(self, *_error: object) -> None:
            self._connection.close()

    def test_a_mark_that_another_program_holds_is_waited_for_and_then_503(
        self, start: Callable[..., WebServer]
    ) -> None:
        shop = start(SHOP_TIMEOUT="1")
        location = locate("a", f"file://{shop.directory}")
        with location.store.holding("a", Mark(DOMAIN, 33), timeout=5):
            began = time.monotonic()
            refused = shop.put(34)
            assert 0.9 < time.monotonic() - began < 5
            assert refused.status == 503
            assert refused.problem()["error"] == "unavailable"
            assert refused.fields["Retry-After"] == "1"
            assert str(shop.directory) not in refused.body.decode()
            with ThreadPoolExecutor(1) as pool:  # nobody else has to wait meanwhile
                waiting = pool.submit(shop.put, 34)
                assert shop.put(1, "/stock/b").status == 200
                assert shop.send("GET", "/free").status == 200
                assert not waiting.done()
                assert waiting.result().status == 503
        assert shop.journal() == []
        assert shop.put(34).status == 200

    def test_a_mark_that_is_damaged_is_not_believed_and_told_to_the_operator_alone(self, shop: WebServer) -> None:
        assert shop.put(33).status == 200
        path = shop.directory / "a.fence"
        path.write_bytes(b"garbage")
        refused = shop.put(34)
        assert refused.status == 500
        assert refused.problem()["error"] == "unusable"
        assert len(shop.journal()) == 2
        assert path.read_bytes() == b"garbage"
        assert "a.fence" in shop.log()
        assert "Traceback" not in shop.log()

    def test_a_server_that_is_killed_in_a_handler_has_recorded_the_mark_and_holds_it_no_more(
        self, start: Callable[..., WebServer]
    ) -> None:
        shop, pool = start(), ThreadPoolExecutor(1)
        cut_off = pool.submit(shop.put, 33, "/stock/a?wait=never")
        eventually(shop.journal)
        ((_, _, pid),) = shop.journal()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            cut_off.result()
        pool.shutdown()
        eventually(lambda: not alive(pid))
        location = locate("a", f"file://{shop.directory}")
        assert shop.mark() == Mark(DOMAIN, 33)
        with pytest.raises(Stale):
            location.store.advance("a", Mark(DOMAIN, 32), timeout=5)
        location.store.advance("a", Mark(DOMAIN, 34), timeout=5)


def check_writers(*servers: WebServer, mark_of: Callable[[str], Mark | None] | None = None) -> None:
    """64 writers with shuffled tokens on four resources: at every moment one handler, and tokens that rise."""
    work = [(name, token) for name in "abcd" for token in range(1, 33)] * 2
    random.Random(5).shuffle(work)
    barrier = threading.Barrier(64)

    def write(number: int) -> list[tuple[str, int, Answer]]:
        barrier.wait()
        done = []
        for name, token in work[number::64]:
            # the last token of each resource always goes to the same server: each has something to do
            server = servers[("abcd".index(name) if token == 32 else number) % len(servers)]
            done.append((name, token, server.put(token, f"/stock/{name}")))
        return done

    with ThreadPoolExecutor(64) as pool:
        answers = [answer for part in pool.map(write, range(64)) for answer in part]
    for name in "abcd":
        steps = [(step, token) for step, token, _ in servers[0].journal(name)]
        ran = [token for _, token in steps[::2]]
        assert steps == [(step, token) for token in ran for step in ("begin", "end")]
        assert ran == sorted(ran)
        assert ran[-1] == 32
        assert (mark_of or servers[0].mark)(name) == Mark(DOMAIN, 32)
        mine = [(token, answer) for whose, token, answer in answers if whose == name]
        assert sorted(token for token, answer in mine if answer.status == 200) == ran
        refused = [(token, answer) for token, answer in mine if answer.status != 200]
        assert {answer.status for _, answer in refused} == {412}
        assert all(answer.problem()["current"]["token"] > token for token, answer in refused)
