"""lockctl.supervise.channel: frames and descriptors over a real socket pair."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.supervise import channel

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
    for payload in (b"", b"x", b"A=1\0B=\0", b"y" * 150_000):
        assert one.send(channel.START, payload)
    assert one.send(channel.SIGNAL, b"15")
    assert other.receive() == [
        (channel.START, b"", ()),
        (channel.START, b"x", ()),
        (channel.START, b"A=1\0B=\0", ()),
        (channel.START, b"y" * 150_000, ()),
        (channel.SIGNAL, b"15", ()),
    ]
    assert one.receive() == []
    assert one.open


def test_both_directions_are_separate(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.send(channel.DEADLINE, b"1")
    other.send(channel.ACK, b"1")
    assert (one.receive(), other.receive()) == ([(channel.ACK, b"1", ())], [(channel.DEADLINE, b"1", ())])


@pytest.mark.parametrize("count", [1, 2, channel.MOST_DESCRIPTORS])
def test_descriptors_arrive_as_the_same_open_files_and_are_not_inherited(
    ends: tuple[Channel, Channel], count: int
) -> None:
    one, other = ends
    readable, writable = os.pipe()
    assert one.send(channel.START, b"A=1", (writable,) * count)
    os.close(writable)
    ((kind, payload, received),) = other.receive()
    assert (kind, payload, len(received)) == (channel.START, b"A=1", count)
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
    one.send(channel.CAUSE, b"lost")
    one.close()
    assert select.select([other.fileno], [], [], 5.0)[0]
    assert other.receive() == [(channel.CAUSE, b"lost", ())]
    assert not other.open
    assert other.receive() == []


def test_what_the_other_side_sent_before_its_end_arrives_though_it_left_frames_unread(
    ends: tuple[Channel, Channel],
) -> None:
    one, other = ends
    one.send(channel.ENDED, b"9")
    one.send(channel.CAUSE, b"lost")
    other.send(channel.STOP, b"!lost")
    one.close()
    assert [(kind, payload) for kind, payload, _ in other.receive()] == [
        (channel.ENDED, b"9"),
        (channel.CAUSE, b"lost"),
    ]
    assert not other.open


def test_a_side_that_was_killed_is_seen_as_one_that_was_closed(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.send(channel.DEADLINE, b"never read")
    one.close()
    assert other.receive() == []
    assert not other.open


def test_sending_to_a_side_that_is_gone_says_no_and_raises_no_signal(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.close()
    assert not one.send(channel.DEADLINE, b"1")


def test_sending_never_blocks(ends: tuple[Channel, Channel]) -> None:
    one, _ = ends
    answers = [one.send(channel.START, b"x" * 50_000) for _ in range(100)]
    assert answers[0]
    assert not answers[-1]


@given(st.floats(min_value=0, max_value=1e9))
def test_a_time_survives_the_channel_to_the_microsecond_and_never_grows(moment: float) -> None:
    received = channel.seconds(channel.number(moment))
    assert received == pytest.approx(moment, abs=1e-6)
    assert received <= moment + 1e-9 * max(1.0, moment)
