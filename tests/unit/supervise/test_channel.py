"""lockctl.supervise.channel: frames and descriptors over a real socket pair."""

from __future__ import annotations

import _socket
import marshal
import os
import resource
import select
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lockctl.lease.schedule import Schedule
from lockctl.supervise import channel
from lockctl.supervise.orders import Orders, decode_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.supervise.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = channel.pair()
    yield one, other
    one.close()
    other.close()


def test_frames_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    for variables in ((), (b"x",), (b"A=1", b"B="), (b"y" * 150_000,)):
        assert one.send(channel.GO, variables)
    assert one.send(channel.SIGNAL, 15, 0)
    assert other.receive() == [
        (channel.GO, ((),), ()),
        (channel.GO, ((b"x",),), ()),
        (channel.GO, ((b"A=1", b"B="),), ()),
        (channel.GO, ((b"y" * 150_000,),), ()),
        (channel.SIGNAL, (15, 0), ()),
    ]
    assert one.receive() == []
    assert one.open


@pytest.mark.parametrize("room", [0, 1])
def test_a_frame_whose_descriptors_find_no_room_is_refused(ends: tuple[Channel, Channel], room: int) -> None:
    one, other = ends
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(room + 1)]
    assert one.send(channel.GO, (), descriptors=(0, 1))
    for descriptor in free:
        os.close(descriptor)
    before = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            other.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert os.listdir("/proc/self/fd") == before


def test_both_directions_are_separate(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.send(channel.DEADLINE, 1.0)
    other.send(channel.ACK, 1.0)
    assert (one.receive(), other.receive()) == ([(channel.ACK, (1.0,), ())], [(channel.DEADLINE, (1.0,), ())])


def test_each_kind_of_frame_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    orders = Orders(15, "kill", None, kernel_held=False, on_terminal=True, kill_on_loss=True, contain="no", token=7)
    schedule = Schedule(ttl=60.0, grace=1.0, margin=0.5, interval=20.0, request_timeout=5.0, rate_error=0.002)
    frames: dict[str, tuple[object, ...]] = {
        **dict.fromkeys((channel.DEADLINE, channel.ACK), (12345.678901234,)),
        **dict.fromkeys((channel.SIGNAL, channel.HALTED), (19, 2)),
        **dict.fromkeys((channel.STARTED, channel.ENDED), (4711,)),
        channel.MANNER: (True, False, True, None),
        channel.FAILED: (13, ""),
        channel.LEFTOVERS: (2, "sleep (pid 4711)"),
        channel.KILLED: ("sleep (pid 4711)",),
        channel.UNHELD: (),
        channel.FINISHED: (0,),
        channel.START: (*orders.encode(schedule), (b"LOCKCTL_TOKEN=5", b"X=\xff")),
        channel.STOP: ("lost", True),
        channel.CAUSE: ("revoked",),
        channel.GO: ((b"A=1",),),
    }
    assert frames.keys() == channel.SHAPES.keys()
    for kind, values in frames.items():
        assert one.send(kind, *values)
    received = {kind: values for kind, values, _ in other.receive()}
    assert received == frames
    assert decode_orders(*received[channel.START][:2]) == (orders, schedule)


@pytest.mark.parametrize(
    "content",
    [
        "halted",
        (),
        ("halted",),
        ("halted", 19),
        ("halted", 19, 2, 3),
        ("halted", 19, 2.0),
        ("halted", 19, True),
        ("halted", "19", 2),
        ("halted", (19, 2)),
        (b"halted", 19, 2),
        ["halted", 19, 2],
        ("HALTED", 19, 2),
        ("finished",),
        ("finished", "0"),
        ("stop", "lost", 1),
        ("deadline", None),
        ("go", b"A=1"),
        ("go", [b"A=1"]),
        ("go", ("A=1",)),
        ("start", (15, "kill", None, False, True, True, "no", False), (1.0,), ()),
        ("start", (15, "kill", None, False, True, True, "no", False, "5"), (1.0,), ()),
        ("start", (15, "kill", "", False, True, True, "no", False, 5), (1.0,), ()),
        ("start", (15, "kill", None, False, True, True, "no", False, 5), ("1.0",), ()),
        (("go",), ()),
        None,
    ],
)
def test_a_frame_of_another_shape_is_refused(ends: tuple[Channel, Channel], content: Any) -> None:
    assert refused(ends, marshal.dumps(content))


def test_a_truncated_frame_is_refused(ends: tuple[Channel, Channel]) -> None:
    whole = marshal.dumps(
        (channel.START, (15, "kill", None, False, True, True, "no", False, 5), (1.0,) * 6, (b"LOCKCTL_TOKEN=5",))
    )
    for length in range(1, len(whole)):
        assert refused(ends, whole[:length])
    assert not refused(ends, whole)


def test_a_frame_that_is_too_long_is_refused(ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    data = marshal.dumps((channel.GO, (b"y" * 1000,)))
    monkeypatch.setattr(channel, "LARGEST", len(data))
    assert not refused(ends, data)
    monkeypatch.setattr(channel, "LARGEST", len(data) - 1)
    assert refused(ends, data)


@given(st.binary(min_size=1, max_size=60))
def test_bytes_that_are_no_frame_are_refused_and_harm_nothing(data: bytes) -> None:
    assume(data[0] & 0x7F not in b"()<>[{c")  # a container may announce any size, for which room is made
    one, other = channel.pair()
    assert refused((one, other), data)
    one.close()
    other.close()


def refused(ends: tuple[Channel, Channel], data: bytes) -> bool:
    """Whether these bytes are taken for something else than a frame."""
    one, other = ends
    raw = _socket.socket(fileno=os.dup(one.fileno))
    assert raw.send(data) == len(data)
    raw.close()
    try:
        return not other.receive()
    except ValueError:
        return True


@pytest.mark.parametrize("count", [1, 2, channel.MOST_DESCRIPTORS])
def test_descriptors_arrive_as_the_same_open_files_and_are_not_inherited(
    ends: tuple[Channel, Channel], count: int
) -> None:
    one, other = ends
    readable, writable = os.pipe()
    assert one.send(channel.GO, (b"A=1",), descriptors=(writable,) * count)
    os.close(writable)
    ((kind, values, received),) = other.receive()
    assert (kind, values, len(received)) == (channel.GO, ((b"A=1",),), count)
    for descriptor in received:
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b".")
        os.close(descriptor)
    assert os.read(readable, 1000) == b"." * count
    os.close(readable)


def test_neither_end_is_inherited_by_a_command(ends: tuple[Channel, Channel]) -> None:
    assert not any(os.get_inheritable(end.fileno) for end in ends)


def test_the_end_of_one_side_wakes_and_is_seen_by_the_other_after_what_it_had_sent(
    ends: tuple[Channel, Channel],
) -> None:
    one, other = ends
    one.send(channel.CAUSE, "lost")
    one.close()
    assert select.select([other.fileno], [], [], 5.0)[0]
    assert other.receive() == [(channel.CAUSE, ("lost",), ())]
    assert not other.open
    assert other.receive() == []


def test_what_the_other_side_sent_before_its_end_arrives_though_it_left_frames_unread(
    ends: tuple[Channel, Channel],
) -> None:
    one, other = ends
    one.send(channel.ENDED, 9)
    one.send(channel.CAUSE, "lost")
    other.send(channel.STOP, "lost", True)
    one.close()
    assert [(kind, values) for kind, values, _ in other.receive()] == [
        (channel.ENDED, (9,)),
        (channel.CAUSE, ("lost",)),
    ]
    assert not other.open


def test_a_side_that_was_killed_is_seen_as_one_that_was_closed(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.send(channel.DEADLINE, 1.0)
    one.close()
    assert other.receive() == []
    assert not other.open


def test_sending_to_a_side_that_is_gone_says_no_and_raises_no_signal(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.close()
    assert not one.send(channel.DEADLINE, 1.0)


def test_sending_never_blocks(ends: tuple[Channel, Channel]) -> None:
    one, _ = ends
    answers = [one.send(channel.GO, (b"x" * 50_000,)) for _ in range(100)]
    assert answers[0]
    assert not answers[-1]
