"""What every store of objects promises beyond the contract: data under a token, and servers that ignore conditions."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lockctl import fence
from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence import Mark, Stale, put
from lockctl.fence.stores.objects import ObjectStore, Overtaken
from tests.fence.changed_answers import ChangedAnswers
from tests.fence.contract import LIMIT, Client, FenceHarness, StoreContract, mark
from tests.servers.http_proxy import HttpProxy, without_conditions, without_conditions_for_new_ones
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.http_proxy import Answer, Request
    from tests.servers.process import Server

SIDE = ".lockctl-fence"


class ObjectHarness(FenceHarness):
    """One empty place for objects at a server, behind a network that can be cut."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.proxy = Proxy(server)

    @abstractmethod
    def at(self, address: str, resource: str) -> str:
        """The URL of an object when the server is at another address."""

    @abstractmethod
    def stored(self, name: str) -> bytes | None:
        """The content of an object, as the server has it."""

    @abstractmethod
    def place(self, name: str, data: bytes) -> None:
        """Make an object without us."""

    @abstractmethod
    def names(self) -> set[str]:
        """The names of all objects."""

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return self.at(self.proxy.address, resource), ""

    def behind(self, address: str) -> tuple[str, str]:
        """As :meth:`words`, through a server at this address."""
        return self.at(address, "stock"), ""

    def damage(self, resource: str = "stock") -> None:
        self.place(resource + SIDE, b"\xff\x1b[31m;34")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.mode = "blackhole"
        yield
        self.proxy.mode = "pass"

    def close(self) -> None:
        self.proxy.close()


class Watched(ObjectHarness):
    """The same place, through a proxy that sees every request."""

    def __init__(self, harness: ObjectHarness, between: HttpProxy) -> None:
        self.harness = harness
        self.between = between

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return self.harness.at(self.between.address, resource), ""

    def at(self, address: str, resource: str) -> str:
        return self.harness.at(address, resource)

    def stored(self, name: str) -> bytes | None:
        return self.harness.stored(name)

    def place(self, name: str, data: bytes) -> None:
        self.harness.place(name, data)

    def names(self) -> set[str]:
        return self.harness.names()

    def close(self) -> None:
        pass


def write(client: Client, token: int, body: bytes, timeout: float = LIMIT) -> None:
    assert isinstance(client.store, ObjectStore)
    client.store.put(client.resource, body, mark(token), timeout=timeout)


def once(chosen: Callable[[Request], bool], action: Callable[[], object]) -> Callable[[Request], None]:
    """Do something when the first request comes that is chosen, before it is passed on."""
    left = [action]

    def look(request: Request) -> None:
        if left and chosen(request):
            left.pop()()

    return look


def writes_data(request: Request) -> bool:
    return _written(request).endswith("/stock")


def writes_mark(request: Request) -> bool:
    return _written(request).endswith("/stock" + SIDE)


def _written(request: Request) -> str:
    """The path of the object that a request writes; empty: it writes none. Google has it in the body."""
    if request.method == "POST":
        found = re.search(rb'"name": ?"([^"]*)"', request.body)
        return f"/{found[1].decode()}" if found else ""
    return request.path.partition("?")[0] if request.method == "PUT" else ""


class ObjectContract(ChangedAnswers, StoreContract):
    """To be inherited for each kind of object."""

    @pytest.fixture
    def between(self, harness: ObjectHarness) -> Iterator[HttpProxy]:
        with HttpProxy(harness.server.address) as proxy:
            yield proxy

    @pytest.fixture
    def watched(self, harness: ObjectHarness, between: HttpProxy) -> Iterator[Client]:
        made = Client(Watched(harness, between))
        yield made
        made.store.close()

    # Data under a token

    def test_data_is_written_under_a_token_and_not_under_a_lower_one(
        self, harness: ObjectHarness, client: Client, other: Client
    ) -> None:
        write(client, 33, b"first")
        assert harness.stored("stock") == b"first"
        write(other, 34, b"")
        assert harness.stored("stock") == b""
        write(other, 34, b"third\0\xff")
        with pytest.raises(Stale):
            write(client, 33, b"old")
        assert harness.stored("stock") == b"third\0\xff"
        assert client.current() == mark(34)

    def test_who_advanced_first_keeps_older_writers_out(
        self, harness: ObjectHarness, client: Client, other: Client
    ) -> None:
        harness.place("stock", b"before")
        client.advance(mark(34))
        with pytest.raises(Stale):
            write(other, 33, b"old")
        assert harness.stored("stock") == b"before"

    @pytest.mark.parametrize("before", [b"before", None])
    def test_a_writer_that_was_stopped_before_its_write_does_not_replace_newer_data(
        self, harness: ObjectHarness, watched: Client, other: Client, between: HttpProxy, before: bytes | None
    ) -> None:
        if before is not None:
            harness.place("stock", before)
        between.look = once(writes_data, lambda: write(other, 34, b"new"))
        with pytest.raises(Stale) as refused:
            write(watched, 33, b"old")
        assert not isinstance(refused.value, Overtaken)
        assert harness.stored("stock") == b"new"

    @pytest.mark.parametrize("before", [b"before", None])
    def test_newer_data_stay_wherever_an_older_writer_was_stopped(
        self, harness: ObjectHarness, between: HttpProxy, before: bytes | None
    ) -> None:
        """It is stopped before each of its requests in turn, as long as there is one more."""
        step = 0
        while self.is_stopped_before(step, harness, between, before):
            assert harness.stored(f"stock{step}") == b"new", f"stopped before request {step + 1}"
            step += 1
        assert step > 4
        assert harness.stored(f"stock{step}") == b"old"

    def is_stopped_before(self, step: int, harness: ObjectHarness, between: HttpProxy, before: bytes | None) -> bool:
        """Whether there was such a request, counted from 0; then a newer writer wrote while it waited."""
        name, requests, overtaken = f"stock{step}", itertools.count(), []

        def overtake() -> None:
            newer = Client(harness, name)
            with contextlib.closing(newer.store):
                write(newer, 34, b"new")
            overtaken.append(name)

        if before is not None:
            harness.place(name, before)
        between.look = once(lambda _: next(requests) == step, overtake)
        older = Client(Watched(harness, between), name)
        with contextlib.closing(older.store), contextlib.suppress(Stale):
            write(older, 33, b"old")
        return bool(overtaken)

    def test_a_writer_that_was_overtaken_while_it_wrote_is_told_so(
        self, harness: ObjectHarness, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        between.look = once(writes_data, lambda: other.advance(mark(34)))
        with pytest.raises(Overtaken, match="token 34 came while token 33 wrote") as told:
            write(watched, 33, b"old")
        assert told.value.current == mark(34)
        write(other, 34, b"new")
        assert harness.stored("stock") == b"new"

    @pytest.mark.parametrize("status", [404, 412])
    def test_what_a_proxy_refuses_is_no_missing_mark(self, watched: Client, between: HttpProxy, status: int) -> None:
        watched.advance(mark(33))
        between.look = lambda _: (status, [], b"404 page not found")
        for step in (watched.current, lambda: watched.advance(mark(34)), lambda: write(watched, 34, b"new")):
            with pytest.raises(BackendUnavailable):
                step()
        between.look = lambda _: None
        assert watched.current() == mark(33)

    def test_data_that_somebody_else_replaced_meanwhile_is_replaced_all_the_same(
        self, harness: ObjectHarness, watched: Client, between: HttpProxy
    ) -> None:
        between.look = once(writes_data, lambda: harness.place("stock", b"by hand"))
        write(watched, 33, b"ours")
        assert harness.stored("stock") == b"ours"

    def test_of_many_writers_the_highest_token_has_the_last_word(self, harness: ObjectHarness) -> None:
        def one(token: int) -> bool:
            client = Client(harness)
            try:
                write(client, token, b"data of %d" % token, timeout=60.0)
            except Stale:
                return False
            finally:
                client.store.close()
            return True

        with ThreadPoolExecutor(8) as pool:
            accepted = list(pool.map(one, range(1, 17)))
        assert accepted[-1]
        assert harness.stored("stock") == b"data of 16"

    def test_the_module_has_it_in_one_call(self, harness: ObjectHarness) -> None:
        words, _ = harness.words()
        put(words, b"data", mark(33))
        assert harness.stored("stock") == b"data"
        with pytest.raises(Stale):
            put(words, b"old", mark(32))
        with pytest.raises(UsageError, match="not an object"):
            put("/tmp/stock", b"data", mark(33))

    # The mark

    def test_the_mark_is_text_in_an_object_beside_it_and_nothing_else_is_left(
        self, harness: ObjectHarness, client: Client
    ) -> None:
        write(client, 33, b"data")
        assert harness.names() == {"stock", "stock" + SIDE}
        assert (harness.stored("stock" + SIDE) or b"").split() == [str(mark(33)).encode()]

    def test_a_mark_that_a_person_wrote_is_read(self, harness: ObjectHarness, client: Client) -> None:
        harness.place("stock" + SIDE, str(mark(33)).encode() + b"\n")
        assert client.current() == mark(33)
        assert not client.accepts(mark(32))
        assert client.accepts(mark(34))

    @pytest.mark.parametrize("content", [b"", b"33", b"d;", b"d;0", b"d;-1", b"d;1e3", b"d;33\nd;34", b"d;9" * 100_000])
    def test_no_other_text_is_a_mark(self, harness: ObjectHarness, client: Client, content: bytes) -> None:
        harness.place("stock" + SIDE, content)
        with pytest.raises(ConfigError, match="not a mark of lockctl") as told:
            client.advance(mark(34))
        assert len(str(told.value)) < 300
        assert harness.stored("stock" + SIDE) == content

    @pytest.mark.parametrize("domain", ["", "two\nlines", "x" * 301])
    def test_a_mark_that_could_not_be_read_again_is_not_written(
        self, harness: ObjectHarness, client: Client, domain: str
    ) -> None:
        with pytest.raises(ConfigError):
            client.advance(Mark(domain, 33))
        assert harness.names() == set()

    def test_a_name_is_below_the_path_of_the_store(self, harness: ObjectHarness) -> None:
        place = harness.at(harness.proxy.address, "")
        fence.advance("stock of today?", mark(33), store=place)
        assert harness.names() == {"stock of today?" + SIDE}
        assert fence.current("stock of today?", store=place) == mark(33)
        for name in ("../stock", "a/./b", "a/"):
            with pytest.raises(ConfigError):
                fence.advance(name, mark(33), store=place)

    # What happens between reading and writing

    def test_a_higher_token_that_comes_between_reading_and_writing_is_not_lowered(
        self, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        other.advance(mark(3))
        between.look = once(writes_mark, lambda: other.advance(mark(34)))
        with pytest.raises(Stale):
            watched.advance(mark(33))
        assert other.current() == mark(34)

    def test_a_lower_token_that_comes_in_between_makes_no_difference(
        self, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        between.look = once(writes_mark, lambda: other.advance(mark(3)))
        assert watched.advance(mark(33)) == mark(33)
        between.look = once(writes_mark, lambda: other.reset(None))
        assert watched.advance(mark(34)) == mark(34)
        assert other.current() == mark(34)

    def test_an_answer_that_was_lost_leaves_a_mark_that_the_same_token_passes(
        self, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        def lose(request: Request) -> None:
            between.lose_answer = writes_mark(request)

        between.look = lose
        with pytest.raises(BackendUnavailable):
            watched.advance(mark(33))
        assert other.current() == mark(33)
        assert watched.advance(mark(33)) == mark(33)

    def test_data_that_were_written_are_not_said_to_be_untouched_when_the_answer_was_lost_and_a_higher_token_came(
        self, harness: ObjectHarness, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        lost: list[Request] = []

        def lose_one(request: Request, answer: Answer) -> Answer:
            between.lose_answer = writes_data(request) and not lost
            if between.lose_answer:
                lost.append(request)
                other.advance(mark(34))
            return answer

        between.look_back = lose_one
        with pytest.raises(Overtaken, match="token 34 came while token 33 wrote"):
            write(watched, 33, b"old")
        assert harness.stored("stock") == b"old"

    def test_data_whose_answer_was_lost_are_written(
        self, harness: ObjectHarness, watched: Client, between: HttpProxy
    ) -> None:
        lost: list[Request] = []

        def lose_one(request: Request, answer: Answer) -> Answer:
            between.lose_answer = writes_data(request) and not lost
            lost.extend([request] if between.lose_answer else [])
            return answer

        between.look_back = lose_one
        write(watched, 33, b"new")
        assert lost
        assert harness.stored("stock") == b"new"

    @pytest.mark.parametrize("lost", [1, 2, 3, 4, 5])
    def test_an_answer_that_is_lost_while_conditions_are_tried_is_no_server_that_ignores_them(
        self, watched: Client, other: Client, between: HttpProxy, lost: int
    ) -> None:
        tries = 0

        def lose_one(request: Request, answer: Answer) -> Answer:
            nonlocal tries
            tried = f"{SIDE}-probe-" in _written(request)
            tries += tried
            between.lose_answer = tried and tries == lost
            return answer

        between.look_back = lose_one
        assert watched.current() is None, "it has a connection, on which the server may just close"
        assert watched.advance(mark(33)) == mark(33)
        assert other.current() == mark(33)

    # Servers

    def test_a_server_that_ignores_conditions_is_found_out_before_anything_is_written(
        self, harness: ObjectHarness, watched: Client, client: Client, between: HttpProxy
    ) -> None:
        between.look = without_conditions
        steps: list[Callable[[], object]] = [
            lambda: watched.advance(mark(34)),
            lambda: watched.reset(mark(34)),
            lambda: write(watched, 34, b"data"),
        ]
        for step in steps:
            with pytest.raises(ConfigError, match="ignores If-Match"):
                step()
        assert harness.names() == set()
        client.advance(mark(33))
        for step in steps:
            with pytest.raises(ConfigError, match="ignores If-Match"):
                step()
        assert client.current() == mark(33)
        assert harness.names() == {"stock" + SIDE}

    def test_a_write_of_what_exists_needs_one_request_to_prove_that_conditions_count(
        self, harness: ObjectHarness, watched: Client, client: Client, between: HttpProxy
    ) -> None:
        harness.place("stock", b"data of 33")
        client.advance(mark(33))
        seen: list[str] = []
        between.look = lambda request: seen.append(_written(request) or request.path)
        write(watched, 34, b"data of 34")
        probes = [path for path in seen if "-probe-" in path]
        assert len(probes) == 1
        assert len(seen) <= 7
        write(watched, 35, b"data of 35")
        assert len([path for path in seen if "-probe-" in path]) == 1
        assert len(seen) <= 13

    def test_a_server_that_ignores_only_the_condition_for_new_objects_is_found_out_too(
        self, harness: ObjectHarness, watched: Client, between: HttpProxy
    ) -> None:
        between.look = without_conditions_for_new_ones
        with pytest.raises(ConfigError, match="ignores If-None-Match"):
            watched.advance(mark(34))
        assert harness.names() == set()

    @pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
    def test_a_server_in_trouble_is_not_believed(self, watched: Client, between: HttpProxy, status: int) -> None:
        watched.advance(mark(33))

        def trouble(_: Request) -> Answer:
            return status, [("Content-Type", "text/html")], b"<html>\x1b[31mTrouble</html>"

        between.look = trouble
        for step in (watched.current, lambda: watched.advance(mark(34)), lambda: watched.reset(None)):
            with pytest.raises(BackendUnavailable) as told:
                step()
            assert str(told.value).isprintable()

    @pytest.mark.parametrize("status", [200, 204, 206, 400, 401, 403, 418, 404])
    def test_no_strange_answer_is_taken_for_a_mark(self, watched: Client, between: HttpProxy, status: int) -> None:
        def strange(_: Request) -> Answer:
            return status, [], b"" if status == 204 else b"\x1b[31m&<nonsense"

        between.look = strange
        with pytest.raises((ConfigError, BackendUnavailable)) as told:
            watched.advance(mark(33))
        assert str(told.value).isprintable()

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    @pytest.mark.parametrize("more", [[], [("Location", "http://elsewhere.example/x")], [("Location", "")]])
    def test_a_redirect_is_refused_in_one_line(
        self, watched: Client, between: HttpProxy, status: int, more: list[tuple[str, str]]
    ) -> None:
        def moved(request: Request) -> Answer:
            body = b"" if request.method == "HEAD" else b"<Error><Code>PermanentRedirect</Code></Error>"
            return status, more, body

        between.look = moved
        for step in (watched.current, lambda: watched.advance(mark(34)), lambda: write(watched, 34, b"data")):
            with pytest.raises(ConfigError, match=r"moved|elsewhere") as told:
                step()
            assert str(told.value).isprintable()

    def test_an_answer_byte_by_byte_is_bounded_by_the_time_limit(self, harness: ObjectHarness, client: Client) -> None:
        client.advance(mark(33))
        fresh = Client(harness)
        harness.proxy.mode = "trickle"
        before = time.monotonic()
        with pytest.raises(BackendUnavailable, match="within"):
            fresh.advance(mark(34), timeout=1.0)
        assert time.monotonic() - before < 6.0
        harness.proxy.mode = "pass"
        fresh.store.close()


class VersionedContract(ObjectContract):
    """To be inherited for each kind of object whose version never comes back, also where the content does."""

    def test_who_saw_the_same_data_before_does_not_replace_newer_ones(
        self, harness: ObjectHarness, watched: Client, other: Client, between: HttpProxy
    ) -> None:
        """Other than in S3."""
        harness.place("stock", b"5 pieces")
        between.look = once(writes_data, lambda: write(other, 34, b"5 pieces"))
        with pytest.raises(Stale) as refused:
            write(watched, 33, b"4 pieces")
        assert not isinstance(refused.value, Overtaken)
        assert harness.stored("stock") == b"5 pieces"

    @pytest.mark.parametrize("key", ["a/b c+d%25e/\N{SNOWMAN}", "x" * 200])
    def test_names_are_what_they_are(self, harness: ObjectHarness, key: str) -> None:
        fence.advance(harness.at(harness.proxy.address, key), mark(33))
        assert harness.names() == {key.replace("%25", "%") + SIDE}
