"""lockctl.wire.resp: what Redis says, in any pieces; what it would never say ends in one clear error."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable
from lockctl.wire.deadline import Deadline
from lockctl.wire.resp import DEEPEST, LONGEST_TEXT, Connection, Malformed, Parser, ReplyError, encode
from lockctl.wire.stream import Endpoint, TooLarge
from tests.unit.wire.servers import LIMIT, answering, flooding, serving

ERRORS = st.builds(
    ReplyError, st.text("ABCDEFGHIJ", min_size=1, max_size=10), st.text("abc XYZ'\"", max_size=30).map(str.strip)
)
REPLIES = st.recursive(
    st.none() | st.integers(-(10**18), 10**18) | st.binary(max_size=200) | ERRORS,
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def written(reply: object) -> bytes:
    """How a server writes a reply."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, ReplyError):
        return b"-" + f"{reply.code} {reply.text}".encode() + b"\r\n"
    assert isinstance(reply, list)
    return b"*%d\r\n" % len(reply) + b"".join(written(element) for element in reply)


def read_all(data: bytes, cuts: list[int]) -> list[object]:
    """The replies in *data*, fed in pieces."""
    parser, replies = Parser(), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        parser.feed(data[start:end])
        while (found := parser.next()) is not None:
            replies.append(found[0])
    return replies


def said_of(data: bytes, cuts: list[int]) -> str:
    """What is said of bytes that may be broken."""
    try:
        read_all(data, cuts)
    except Malformed as wrong:
        return str(wrong)
    return "complete, or more is waited for"


@given(st.lists(REPLIES, max_size=4), st.lists(st.integers(0, 10**6), max_size=20))
def test_replies_are_read_as_they_were_written_in_any_pieces(replies: list[object], cuts: list[int]) -> None:
    assert read_all(b"".join(written(reply) for reply in replies), cuts) == replies


@given(REPLIES, st.integers(0, 10**6))
def test_a_reply_that_is_cut_off_is_never_taken_for_a_whole_one(reply: object, cut: int) -> None:
    data = written(reply)
    assert read_all(data[: cut % len(data)], []) == []


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_other_bytes_are_waited_for_or_refused_and_nothing_else(data: bytes, cuts: list[int]) -> None:
    assert said_of(data, cuts).isprintable()


@given(REPLIES, st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_a_reply_with_a_broken_byte_does_no_harm(reply: object, place: int, noise: bytes) -> None:
    data = written(reply)
    at = place % len(data)
    assert said_of(data[:at] + noise + data[at + 1 :], []).isprintable()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16\r\n",
        b":12a\r\n",
        b":\r\n",
        b":" + b"9" * 20 + b"\r\n",
        b":1_0\r\n",
        b"$-2\r\n",
        b"$99999999999\r\n",
        b"$3\r\nabcde",
        b"*-2\r\n",
        b"*99999999\r\n",
        b"*1\r\n" * (DEEPEST + 1),
        b"+" + b"x" * 70000,
        b"%1\r\n",
    ],
)
def test_what_is_not_resp2_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_all(data, [])


FLOODS = {
    "a long string": (flooding(b"$8000000\r\n", b"x" * 65536), "does not end where it should"),
    "a string that is too long": (flooding(b"$8388609\r\n", b"x"), "string that is too large"),
    "many strings": (flooding(b"*1000\r\n", b"$65536\r\n" + b"x" * 65536 + b"\r\n"), "larger than 8 MiB"),
    "arrays in arrays": (flooding(b"*100000\r\n", b"*1000\r\n" + b"*0\r\n" * 1000), "too large or too deep"),
    "many arrays": (flooding(b"*131072\r\n", b"*1\r\n*0\r\n" * 1000), "too large or too deep"),
    "a line": (flooding(b"+", b"x" * 65536), "line without end"),
    "a byte now and then": (answering(b"*131072\r\n", *[b"+\r\n"] * 1000, pause=0.01), "no answer within"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_server_that_always_has_data_ends_at_the_deadline_or_before(flood: str) -> None:
    behave, reason = FLOODS[flood]
    with serving(behave) as address:
        connection = Connection(Endpoint("here", *address).connect(Deadline(LIMIT)))
        began = time.monotonic()
        # a busy machine may be too slow to see more than the deadline
        with (
            contextlib.closing(connection),
            pytest.raises(BackendUnavailable, match=f"here: .*({reason}|no answer within)"),
        ):
            connection.call("PING", deadline=Deadline(0.5))
        assert time.monotonic() - began < 5.0  # the server would go on for longer


def test_replies_that_are_sent_together_share_one_limit() -> None:
    half = b"$5000000\r\n" + bytes(5000000) + b"\r\n"
    with serving(answering(half, half)) as address:
        connection = Connection(Endpoint("here", *address).connect(Deadline(LIMIT)))
        with pytest.raises(TooLarge, match="here: the answer is larger than 8 MiB"):
            connection.pipeline([("GET", "a"), ("GET", "b")], deadline=Deadline(LIMIT))
        connection.close()


def test_a_long_error_is_cut() -> None:
    (error,) = read_all(b"-ERR " + b"x" * 60000 + b"\r\n", [])
    assert isinstance(error, ReplyError)
    assert len(error.text) == LONGEST_TEXT


def test_control_characters_of_an_error_reach_no_terminal() -> None:
    (error,) = read_all(b"-ERR \x1b[2Jboo\xff\r\n", [])
    assert isinstance(error, ReplyError)
    assert error.code == "ERR"
    assert error.text.isprintable()


def test_a_command_is_an_array_of_bulk_strings() -> None:
    assert encode(("SET", b"\x00k", 7)) == b"*3\r\n$3\r\nSET\r\n$2\r\n\x00k\r\n$1\r\n7\r\n"


def test_commands_and_replies_over_a_connection() -> None:
    with serving(answering(b"+OK\r\n:", b"1\r\n$2\r\nhi\r\n", pause=0.05)) as (host, port):
        deadline = Deadline(5.0)
        connection = Connection(Endpoint("redis at h:1", host, port).connect(deadline))
        assert connection.pipeline([("PING",), ("INCR", "a")], deadline=deadline) == [b"OK", 1]
        assert connection.receive(deadline) == b"hi"
        with pytest.raises(BackendUnavailable, match="redis at h:1: the server closed the connection"):
            connection.receive(deadline)
        connection.close()


def test_a_server_that_trickles_ends_at_the_deadline() -> None:
    stop = threading.Event()
    with serving(answering(*[b"+", *[b"x"] * 50], pause=0.05, stop=stop)) as (host, port):
        deadline = Deadline(0.4)
        before = time.monotonic()
        connection = Connection(Endpoint("redis at h:1", host, port).connect(deadline))
        with pytest.raises(BackendUnavailable, match=r"no answer within 0.4 s"):
            connection.call("PING", deadline=deadline)
        assert 0.35 < time.monotonic() - before < 5.0
        connection.close()
        stop.set()


def test_what_is_wrong_is_said_with_the_name_of_the_server() -> None:
    with serving(answering(b"SSH-2.0-OpenSSH\r\n")) as (host, port):
        deadline = Deadline(5.0)
        connection = Connection(Endpoint("redis at h:1", host, port).connect(deadline))
        with pytest.raises(BackendUnavailable, match="redis at h:1: not RESP2: a reply begins with 'S'"):
            connection.call("PING", deadline=deadline)
        connection.close()
