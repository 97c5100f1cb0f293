"""Requests to Google Cloud Storage, and what is said to answers that are no good."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.objects import AT_ONCE
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.contract.remembering import a_run
from tests.servers import web
from tests.servers.http_proxy import HttpProxy, without_conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, Request


@pytest.fixture
def between(gcs_server: Gcs) -> Iterator[HttpProxy]:
    with HttpProxy(gcs_server.address) as proxy:
        yield proxy


@pytest.fixture
def word() -> str:
    """A path that nobody else uses."""
    return f"requests-{os.urandom(6).hex()}"


@pytest.fixture
def connect(between: HttpProxy, word: str) -> Iterator[Callable[[], Backend]]:
    """A call that makes a client behind the proxy."""
    with contextlib.ExitStack() as ends:

        def new() -> Backend:
            made = open_backend(parse_url(f"gcs://locks/{word}?anonymous=yes&endpoint={between.url}"))
            ends.callback(made.close)
            return made

        yield new


def refusal(status: int, message: str) -> Callable[[Request], Answer]:
    """Every request is answered so."""
    body = json.dumps({"error": {"code": status, "message": message}})
    date = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))]
    return lambda _: (status, date, body.encode())


@pytest.mark.parametrize("status", [503, 500, 408])
def test_a_server_that_is_out_of_order_says_nothing_about_the_lock(
    status: int, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    grant = take(client, claim())
    between.look = refusal(status, "\x1b[31m Backend Error")
    asked = len(between.seen)
    for step in (
        lambda: client.renew(grant, timeout=LIMIT),
        lambda: client.try_acquire(claim("other"), timeout=LIMIT),
        lambda: client.inspect("nightly", timeout=LIMIT),
    ):
        with pytest.raises(BackendUnavailable, match=rf"Backend Error \({status}\)") as told:
            step()
        assert str(told.value).isprintable()
    assert len(between.seen) == asked + 3, "nothing is tried again: that is for the caller, who has a deadline"
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_a_write_that_is_refused_as_too_often_is_tried_again_and_no_lock_is_lost(
    between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    """Google writes one object about once a second."""
    client = connect()
    grant = take(client, claim())
    refuse = refusal(429, "exceeded the rate limit for object mutation operations")
    refused: list[Request] = []

    def once(request: Request) -> Answer | None:
        if request.method != "POST" or refused:
            return None
        refused.append(request)
        return refuse(request)

    between.look = once
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert refused
    between.look = lambda request: refuse(request) if request.method == "POST" else None
    asked = len(between.seen)
    with pytest.raises(BackendUnavailable, match=r"too many requests \(429\)"):
        client.renew(grant, timeout=0.5)
    assert len(between.seen) == asked + 2, "there was no time for another write"
    between.look = refuse
    with pytest.raises(BackendUnavailable, match=r"too many requests \(429\)"):
        client.inspect("nightly", timeout=LIMIT)
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_a_server_that_ignores_conditions_keeps_no_lock(between: HttpProxy, connect: Callable[[], Backend]) -> None:
    between.look = without_conditions
    with pytest.raises(ConfigError, match="ignores the conditions of writes"):
        connect().try_acquire(claim(), timeout=LIMIT)


def test_what_is_forgotten_leaves_no_object_where_deletions_compare(
    between: HttpProxy, connect: Callable[[], Backend], gcs_server: Gcs, word: str
) -> None:
    """As Google's servers do, other than this emulator."""

    def compare(request: Request) -> Answer | None:
        if request.method != "DELETE":
            return None
        path, _, wanted = request.path.partition("?ifGenerationMatch=")
        found = json.loads(web.request(gcs_server.address, "GET", path)[1])
        return None if found["generation"] == wanted else refusal(412, "conditionNotMet")(request)

    between.look = compare
    client = connect()
    client.release(take(client, claim()), timeout=LIMIT)
    ours = [name for name in gcs_server.objects("locks") if name.startswith(word)]
    assert f"{word}/lock:nightly" in ours
    assert client.forget("nightly", older_than=0.0, timeout=LIMIT)
    ours = [name for name in gcs_server.objects("locks") if name.startswith(word)]
    assert sorted(ours) == [f"{word}/domain:", f"{word}/floor:"]


def test_a_list_reads_objects_beside_each_other_and_no_others_than_those_that_may_match(
    between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    for number in range(AT_ONCE):
        take(client, claim(f"a-{number}"))
    take(client, claim("b"))
    together = threading.Barrier(AT_ONCE)  # none is answered before all are there

    def look(request: Request) -> None:
        if "alt=media" in request.path:
            together.wait(LIMIT)

    between.look = look
    asked = len(between.seen)
    assert len(list(client.list("a-*", timeout=LIMIT))) == AT_ONCE
    assert len(between.seen) == asked + 1 + AT_ONCE
    between.look = lambda _: None
    assert [lock.name for lock in client.list("b", timeout=LIMIT)] == ["b"]
    assert len(between.seen) == asked + 1 + AT_ONCE + 2


def test_objects_are_not_kept_by_caches(connect: Callable[[], Backend], gcs_server: Gcs, word: str) -> None:
    """Google lets them keep an object that everybody may read for an hour, unless it says otherwise."""
    take(connect(), claim())
    path = f"/storage/v1/b/locks/o/{word}%2Flock%3Anightly"
    assert json.loads(web.request(gcs_server.address, "GET", path)[1])["cacheControl"] == "no-store"


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (404, "The specified bucket does not exist.", "there is no gcs://locks"),
        (
            403,
            "me@x does not have storage.objects.get access",
            "needed are storage.objects.get, .create, .delete and .list, for requests-",
        ),
        (401, "Anonymous caller does not have storage.objects.get access", "the credentials are not, or no longer,"),
        (400, "\x1b[31mInvalid", r"Invalid \(400\)"),
        (200, "no object of Google's", "the answer has no generation"),
    ],
)
def test_a_refusal_says_what_a_person_must_change(
    status: int, message: str, told: str, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    between.look = refusal(status, message)
    with pytest.raises(ConfigError, match=told) as refused:
        connect().inspect("nightly", timeout=LIMIT)
    assert str(refused.value).isprintable()


def test_an_object_that_is_not_there_is_not_taken_for_its_bucket(
    between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    """Google names both in its answer."""
    between.look = refusal(404, "No such object: the-bucket/locks/lock:nightly")
    assert connect().last_success("nightly", timeout=LIMIT) is None


def test_a_holder_asks_as_often_as_its_cost_says(between: HttpProxy, connect: Callable[[], Backend]) -> None:
    client = connect()
    grant = take(client, claim())
    asked = len(between.seen)
    client.renew(grant, timeout=LIMIT)
    assert [method for method, _ in between.seen[asked:]] == ["GET", "POST"]
    cost = client.capabilities.holder_cost
    assert cost is not None
    renewals = 3600 / 5  # an hour of a lease of 30 s
    assert cost.requests == 2 * renewals
    assert cost.dollars == pytest.approx(renewals * (0.005 + 0.0004) / 1000, rel=0.02)


def test_the_library_is_not_loaded_for_who_has_no_name(lockctl: Lockctl) -> None:
    url = "gcs://locks/x?anonymous=yes&endpoint=http://127.0.0.1:1"
    done = lockctl("run", "-b", url, "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 69
    assert "lockctl.stores.gcs" in done.stderr
    assert "google" not in done.stderr


def test_a_run_is_remembered_once_though_the_answer_was_lost(
    between: HttpProxy, connect: Callable[..., Backend]
) -> None:
    client = connect()
    client.inspect("nightly", timeout=LIMIT)  # only a connection that was kept is replaced
    lost: list[bool] = []

    def lose_one(request: Request, answer: Answer) -> Answer:
        between.lose_answer = b"started" in request.body and not lost
        lost.extend([True] * between.lose_answer)
        return answer

    between.look_back = lose_one
    client.remember("nightly", a_run(), timeout=LIMIT)
    assert lost
    assert len(client.history("nightly", timeout=LIMIT)) == 1
