"""Requests to Google Cloud Storage: what its servers do beyond what all stores of objects do."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.locks.objects import AT_ONCE
from tests.contract.harness import LIMIT, claim, take
from tests.contract.remembering import a_run
from tests.servers import web
from tests.stores.test_refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, HttpProxy, Request


@pytest.fixture
def store() -> str:
    return "gcs"


def test_a_write_that_is_refused_as_too_often_is_tried_again_and_no_lock_is_lost(
    between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    """Google writes one object about once a second."""
    client = connect()
    grant = take(client, claim())
    refuse = refusal("gcs", 429, "exceeded the rate limit for object mutation operations")
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


def test_what_is_forgotten_leaves_no_object_where_deletions_compare(
    between: HttpProxy, connect: Callable[[], Backend], gcs_server: Gcs, word: str
) -> None:
    """As Google's servers do, other than this emulator."""

    def compare(request: Request) -> Answer | None:
        if request.method != "DELETE":
            return None
        path, _, wanted = request.path.partition("?ifGenerationMatch=")
        found = json.loads(web.request(gcs_server.address, "GET", path)[1])
        return None if found["generation"] == wanted else refusal("gcs", 412, "conditionNotMet")(request)

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


def test_an_object_that_is_not_there_is_not_taken_for_its_bucket(
    between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    """Google names both in its answer."""
    between.look = refusal("gcs", 404, "No such object: the-bucket/locks/lock:nightly")
    assert connect().last_success("nightly", timeout=LIMIT) is None


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
