"""lockctl.wire.answer, http and lines: answers in any framing and any pieces; broken ones end in one clear error."""

from __future__ import annotations

import email.utils
import itertools
import re
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable
from lockctl.wire.answer import Malformed, Parser, Response, seconds
from lockctl.wire.deadline import Deadline
from lockctl.wire.http import Client
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Endpoint
from tests.unit.wire.servers import LIMIT, answering, flooding, serving

if TYPE_CHECKING:
    import socket

FRAMINGS = st.sampled_from(["length", "chunked", "close"])


def written(status: int, body: bytes, framing: str, sizes: list[int]) -> bytes:
    """How a server writes an answer."""
    head = f"HTTP/1.1 {status} Fine\r\nX-Consul-Index: 7\r\n".encode()
    if framing == "close":
        return head + b"Connection: close\r\n\r\n" + body
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    chunks, at = [], 0
    for size in [*sizes, len(body)]:
        piece = body[at : at + size]
        at += size
        if piece:
            chunks.append(b"%X;ext=1\r\n%b\r\n" % (len(piece), piece))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\nTrailer: x\r\n\r\n"


def read(data: bytes, cuts: list[int], *, closed: bool) -> tuple[Parser, bytes]:
    """One answer, fed in pieces."""
    parser, body = Parser(), b""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        body += parser.feed(data[start:end])
    if closed:
        parser.feed_end()
    return parser, body


@given(
    st.sampled_from([200, 400, 404, 500]),
    st.binary(max_size=400),
    FRAMINGS,
    st.lists(st.integers(1, 100), max_size=5),
    st.lists(st.integers(0, 10**6), max_size=20),
)
def test_answers_are_read_as_they_were_written_in_any_pieces(
    status: int, body: bytes, framing: str, sizes: list[int], cuts: list[int]
) -> None:
    parser, found = read(written(status, body, framing, sizes), cuts, closed=framing == "close")
    assert parser.complete
    assert (parser.status, found, parser.headers["x-consul-index"]) == (status, body, "7")
    assert parser.reusable is (framing != "close")


@given(st.binary(min_size=1, max_size=200), st.sampled_from(["length", "chunked"]), st.integers(0, 10**6))
def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(body: bytes, framing: str, cut: int) -> None:
    data = written(200, body, framing, [7])
    with pytest.raises(Malformed):
        read(data[: cut % len(data)], [], closed=True)


def said_of(data: bytes, *, closed: bool = True) -> str:
    """What is said of an answer that may be broken."""
    try:
        read(data, [], closed=closed)
    except Malformed as wrong:
        return str(wrong)
    return "complete, or more is waited for"


@given(data=st.binary(max_size=300), closed=st.booleans())
def test_any_other_bytes_are_waited_for_or_refused_and_nothing_else(*, data: bytes, closed: bool) -> None:
    assert said_of(data, closed=closed).isprintable()


@given(st.binary(max_size=60), FRAMINGS, st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_an_answer_with_a_broken_byte_does_no_harm(body: bytes, framing: str, place: int, noise: bytes) -> None:
    data = written(200, body, framing, [5])
    at = place % len(data)
    assert said_of(data[:at] + noise + data[at + 1 :]).isprintable()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70000,
        b"x" * 70000,
    ],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data, [], closed=False)


def test_answers_on_the_way_are_skipped() -> None:
    parser, body = read(b"HTTP/1.1 100 Continue\r\n\r\n" + written(200, b"x", "length", []), [], closed=False)
    assert (parser.status, body) == (200, b"x")


def client(address: tuple[str, int], *headers: tuple[str, str]) -> Client:
    return Client(Endpoint("consul at h:1", *address), headers)


def test_a_request_says_everything_it_should_and_the_connection_is_kept() -> None:
    asked: list[bytes] = []
    connections: list[int] = []

    def behave(connection: socket.socket) -> None:
        connections.append(1)
        for _ in range(2):
            asked.append(connection.recv(65536))
            connection.sendall(written(200, b'{"a": [1]}', "chunked", [3]))

    with serving(behave) as address:
        using = client(address, ("X-Consul-Token", "t"))
        for _ in range(2):
            answer = using.request("PUT", "/v1/kv/a?b=c", Deadline(LIMIT), body=b"body", headers=(("A", "b"),))
            assert answer.json() == {"a": [1]}
        using.close()
    host = f"{address[0]}:{address[1]}".encode()
    whole = b"PUT /v1/kv/a?b=c HTTP/1.1\r\nHost: %b\r\nX-Consul-Token: t\r\nA: b\r\nContent-Length: 4\r\n\r\nbody"
    assert asked == [whole % host] * 2
    assert len(connections) == 1


def test_a_kept_connection_that_was_closed_is_replaced_but_a_fresh_one_is_not_tried_again() -> None:
    answers = [written(200, b"1", "length", []), written(200, b"2", "length", []), b""]

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answers.pop(0))

    with serving(behave) as address:
        using = client(address)
        assert using.request("GET", "/", Deadline(LIMIT)).body == b"1"
        assert using.request("GET", "/", Deadline(LIMIT)).body == b"2"
        using.close()
        with pytest.raises(Closed):
            using.request("GET", "/", Deadline(LIMIT))
    assert not answers


PAIR = (("PUT", "/renew", b"body"), ("GET", "/look", b""))


@given(
    st.lists(st.integers(0, 200), max_size=6), st.lists(st.sampled_from(["length", "chunked"]), min_size=2, max_size=2)
)
def test_several_requests_take_one_round_trip(cuts: list[int], framings: list[str]) -> None:
    asked = bytearray()

    def behave(connection: socket.socket) -> None:
        while not asked.endswith(b"Content-Length: 0\r\n\r\n"):
            asked.extend(connection.recv(65536))  # nothing is answered before both have come
        data = written(200, b"first", framings[0], [2]) + written(404, b"second", framings[1], [3])
        for start, end in itertools.pairwise(sorted({0, len(data), *(cut % len(data) for cut in cuts)})):
            connection.sendall(data[start:end])
        connection.recv(1)

    with serving(behave) as address:
        using = client(address)
        answers = using.pipeline(PAIR, Deadline(LIMIT))
        using.close()
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"first"), (404, b"second")]
    assert [asked.index(word) for word in (b"PUT /renew ", b"body", b"GET /look ")] == sorted(
        asked.index(word) for word in (b"PUT /renew ", b"body", b"GET /look ")
    )


@pytest.mark.parametrize("framing", ["length", "close"])
def test_what_a_server_did_not_answer_before_it_closed_is_asked_again_alone(framing: str) -> None:
    asked: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(written(200, b"%d" % len(asked), framing, []))

    with serving(behave) as address:
        using = client(address)
        assert [answer.body for answer in using.pipeline(PAIR, Deadline(LIMIT))] == [b"1", b"2"]
        using.close()
    assert [data.count(b"HTTP/1.1") for data in asked] == [2, 1]
    assert asked[1].startswith(b"GET /look ")


def test_what_was_begun_is_not_sent_again_and_answered_first() -> None:
    asked = bytearray()
    first = PAIR[0]

    def behave(connection: socket.socket) -> None:
        for number in range(3):
            while asked.count(b"HTTP/1.1") <= number:
                asked.extend(connection.recv(65536))
            connection.sendall(written(200, b"%d" % number, "length", []))

    with serving(behave) as address:
        using = client(address)
        using.begin((first,), Deadline(LIMIT))  # there is no connection yet
        assert using.request(*first[:2], Deadline(LIMIT)).body == b"0"
        using.begin((first,), Deadline(LIMIT))
        assert [answer.body for answer in using.pipeline(PAIR, Deadline(LIMIT))] == [b"1", b"2"]
        using.close()
    assert re.findall(rb"(/\w+) HTTP", asked) == [b"/renew", b"/renew", b"/look"]


def test_what_was_begun_on_a_connection_that_is_closed_then_is_sent_on_another_one() -> None:
    asked: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        for _ in range(2 if not asked else 1):
            asked.append(connection.recv(65536))
            if len(asked) != 2:
                connection.sendall(written(200, b"%d" % len(asked), "length", []))

    with serving(behave) as address:
        using = client(address)
        using.request("GET", "/", Deadline(LIMIT))
        using.begin(PAIR[:1], Deadline(LIMIT))
        assert [answer.body for answer in using.pipeline(PAIR[:1], Deadline(LIMIT))] == [b"3"]
        using.close()
    assert asked[1] == asked[2]


def test_a_late_answer_is_never_taken_for_that_to_the_next_request() -> None:
    answers = [b"late", b"right"]

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        if len(answers) == 2:
            time.sleep(0.3)
        connection.sendall(written(200, answers.pop(0), "length", []))

    with serving(behave) as address:
        using = client(address)
        with pytest.raises(BackendUnavailable, match=r"consul at h:1: no answer within 0.1 s"):
            using.request("GET", "/", Deadline(0.1))
        assert using.request("GET", "/", Deadline(LIMIT)).body == b"right"
        using.close()


def test_a_server_that_trickles_ends_at_the_deadline() -> None:
    stop = threading.Event()
    pieces = [bytes([byte]) for byte in written(200, b"x" * 100, "length", [])]
    with serving(answering(*pieces, pause=0.05, stop=stop)) as address:
        before = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"no answer within 0.4 s"):
            client(address).request("GET", "/", Deadline(0.4))
        assert 0.35 < time.monotonic() - before < 5.0
        stop.set()


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "1xx": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
    "trailers": (HEAD + b"0\r\n", b"x: y\r\n" * 200),
    "chunks of one byte": (HEAD, b"1\r\nx\r\n" * 200),
    "large chunks": (HEAD, b"ffff\r\n" + b"x" * 65535 + b"\r\n"),
    "a body until the end": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "a long body": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", b"x" * 65536),
    "a byte now and then": (HEAD, b"1"),
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_server_that_always_has_data_ends_at_the_deadline_or_before(flood: str, *, streamed: bool) -> None:
    def ask(deadline: Deadline) -> None:
        if not streamed:
            client(address).request("GET", "/", deadline)
        lines = client(address).stream("GET", "/", deadline)
        try:
            while lines.next(deadline) is not None:
                pass
        finally:
            lines.close()

    with serving(flooding(*FLOODS[flood])) as address:
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"no answer within|larger than 8 MiB|without a length"):
            ask(Deadline(0.5))
        assert time.monotonic() - began < 5.0  # the server would go on for longer


def test_many_lines_of_a_stream_are_not_one_long_answer() -> None:
    come = 0
    with serving(flooding(HEAD, b"400\r\n" + b"x" * 1023 + b"\n" + b"\r\n")) as address:
        lines = client(address).stream("GET", "/", Deadline(LIMIT))
        while come < 2 * LARGEST_ANSWER:
            come += len(lines.next(Deadline(LIMIT)) or b"")
        lines.close()


def test_lines_of_a_stream_come_one_by_one_and_in_any_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head + b"4\r\none\n\r\n", b"6\r\ntwo\nth\r\n", b"4\r\nree\n\r\n", b"3\r\nend\r\n0\r\n\r\n"]
    with serving(answering(*pieces, pause=0.02)) as address:
        lines = client(address).stream("POST", "/v3/watch", Deadline(LIMIT), body=b"{}")
        assert lines.status == 200
        deadline = Deadline(LIMIT)
        assert [lines.next(deadline) for _ in range(5)] == [b"one", b"two", b"three", b"end", None]
        assert lines.buffered() is None
        lines.close()


def test_a_stream_that_is_silent_ends_at_the_deadline_and_goes_on_afterwards() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(answering(head, b"4\r\none\n\r\n", pause=0.4)) as address:
        lines = client(address).stream("POST", "/v3/watch", Deadline(LIMIT))
        with pytest.raises(BackendUnavailable):
            lines.next(Deadline(0.1))
        assert lines.next(Deadline(LIMIT)) == b"one"
        with pytest.raises(BackendUnavailable, match="cut off"):
            lines.next(Deadline(LIMIT))
        lines.close()


def test_a_body_that_is_not_json_is_said_so() -> None:
    with pytest.raises(Malformed, match="not JSON"):
        Response(200, {}, b"<html>").json()
    assert Response(500, {}, b"\x1b[2J no\r\nleader \xff").excerpt().isprintable()
    assert Response(502, {}, b" \r\n").excerpt() == "an empty body"


@given(st.integers(0, 253402300799))
def test_the_date_of_an_answer_is_read_to_the_second(moment: int) -> None:
    assert seconds(email.utils.formatdate(moment, usegmt=True)) == moment


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777.0),
        ("Thu, 29 Feb 2024 00:00:00 GMT", 1709164800.0),
        ("Sat, 31 Dec 2016 23:59:60 GMT", 1483228800.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_a_date_may_be_any_that_the_calendar_has(date: str, moment: float) -> None:
    assert Response(200, {"date": date}, b"").date == moment


@pytest.mark.parametrize(
    "date",
    [
        "",
        "784111777",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun,  6 Nov 1994 08:49:37 GMT",
        "Sun, +6 Nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Fri, 30 Feb 2024 00:00:00 GMT",
        "Wed, 29 Feb 2023 00:00:00 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Sun, 0\N{ARABIC-INDIC DIGIT SIX} Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT\x00",
    ],
)
def test_a_date_that_is_none_is_not_believed(date: str) -> None:
    assert Response(200, {"date": date}, b"").date is None


def test_an_answer_without_a_date_has_none() -> None:
    assert Response(200, {}, b"").date is None


@given(st.text(max_size=40))
def test_any_text_in_place_of_a_date_is_borne(text: str) -> None:
    moment = seconds(text)
    assert moment is None or moment >= 0
