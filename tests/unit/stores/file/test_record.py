"""lockctl.stores.file.layout: whatever a crash leaves in a lock file, the token is not lost."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockctl.model import Claim
from lockctl.stores.file import layout
from lockctl.stores.file.layout import HEAD, MAGIC, PAGE, ROOM, SIZE, NotARecord, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer, Self

DOCUMENTS = st.binary(max_size=300) | st.just(b"null") | st.just(b"x" * ROOM)
TOKENS = st.integers(min_value=0, max_value=2**63 - 1)


class File:
    """A lock file in memory, with its bytes at hand."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("lock", os.MFD_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def content(self) -> bytes:
        return os.pread(self.descriptor, 4 * SIZE, 0)

    @content.setter
    def content(self, content: bytes) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def write(self, *tokens: int, document: bytes = b"null") -> None:
        """One state after the other, as the holders do."""
        for token in tokens:
            before = layout.read(self.descriptor) or Record(0, 0, b"null")
            layout.write(self.descriptor, Record(before.sequence + 1, token, document), durable=False)

    def read(self) -> Record | None:
        return layout.read(self.descriptor)


@pytest.fixture
def file() -> Iterator[File]:
    with File() as made:
        yield made


@given(st.integers(min_value=0, max_value=10**15), TOKENS, DOCUMENTS)
def test_what_is_written_is_read(sequence: int, token: int, document: bytes) -> None:
    with File() as file:
        layout.write(file.descriptor, Record(sequence, token, document), durable=True)
        assert file.read() == Record(sequence, token, document, 0, token)
        assert len(file.content) <= SIZE


@given(st.lists(TOKENS, min_size=1, max_size=6))
def test_the_newest_of_the_two_slots_counts(tokens: list[int]) -> None:
    with File() as file:
        file.write(*tokens)
        newest = file.read()
        assert newest is not None
        assert (newest.sequence, newest.token) == (len(tokens), tokens[-1])
        assert len(file.content) <= SIZE


@given(st.integers(min_value=2, max_value=5), st.integers(min_value=0, max_value=PAGE), st.binary(max_size=PAGE))
def test_a_write_torn_at_any_byte_leaves_the_token_before_it_or_its_own(writes: int, at: int, garbage: bytes) -> None:
    with File() as file:
        file.write(*range(100, 100 + writes))
        before = file.content.ljust(SIZE, b"\0")
        file.write(100 + writes)
        start = ((writes + 1) % 2) * PAGE
        new, old = file.content[start : start + PAGE], before[start : start + PAGE]
        torn = (new[:at] + garbage + old)[:PAGE] if garbage else new[:at] + old[at:]
        file.content = before[:start] + torn + before[start + PAGE :]
        found = file.read()
        assert found is not None
        assert found.token in {100 + writes - 1, 100 + writes}
        file.write(found.token + 1)
        repaired = file.read()
        assert repaired is not None
        assert repaired.token == found.token + 1


@given(st.data())
def test_pages_torn_between_any_two_sectors_keep_what_was_reserved(data: st.DataObject) -> None:
    """After a loss of power each sector is as it is, or as it was at some time since the last sync."""
    with File() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "boot_id", lambda: "00000000-0000-0000-0000-000000000001")
        layout.grant(file.descriptor, Record(0, 0, b"null"), 100, b"{}", now=100)
        states = [file.content.ljust(SIZE, b"\0")]
        for token in range(101, 106):
            before = file.read() or Record(0, 0, b"null")
            layout.write(
                file.descriptor, Record(before.sequence + 1, before.token, b"null", before.reserved), durable=False
            )
            states.append(file.content)
            before = file.read() or Record(0, 0, b"null")
            layout.grant(file.descriptor, before, token, b"{}", now=token)
            states.append(file.content)
        ages = data.draw(st.lists(st.sampled_from(states), min_size=SIZE // 512, max_size=SIZE // 512))
        file.content = b"".join(state[at * 512 : at * 512 + 512] for at, state in enumerate(ages))
        patch.setattr(layout, "boot_id", lambda: "00000000-0000-0000-0000-000000000002")
        found = file.read()
        assert found is not None
        assert found.token >= 105


@given(st.integers(min_value=0, max_value=1), st.integers(min_value=0, max_value=PAGE - 1), st.integers(1, 255))
def test_a_flipped_bit_in_one_slot_leaves_the_other(slot: int, at: int, flip: int) -> None:
    with File() as file:
        file.write(100, 101, document=b'{"owner":"me"}' + b" " * (ROOM - 14))
        content = bytearray(file.content)
        content[slot * PAGE + at] ^= flip
        file.content = bytes(content)
        found = file.read()
        assert found is not None
        newest_is_whole = (found.sequence % 2) != slot or at >= HEAD + ROOM
        assert found.token == (101 if newest_is_whole and found.sequence == 2 else 100)


@given(st.integers(min_value=0, max_value=PAGE))
def test_a_file_cut_short_by_a_full_disk_leaves_what_is_whole(size: int) -> None:
    with File() as file:
        file.write(100, 101)
        os.ftruncate(file.descriptor, size)
        found = file.read()
        assert found is None or found.token in {100, 101}


@given(st.binary(min_size=1).filter(lambda content: content[:1] not in {b"\0", MAGIC[:1]}))
def test_the_content_of_another_program_is_not_written_over(content: bytes) -> None:
    with File() as file:
        file.content = content
        with pytest.raises(NotARecord):
            file.read()
        assert not layout.owned_by(file.descriptor, "me", 1)


@pytest.mark.parametrize("content", [b"", b"\0" * SIZE, MAGIC, MAGIC + b"x" * (PAGE - len(MAGIC))])
def test_an_empty_or_half_created_file_never_had_a_record(file: File, content: bytes) -> None:
    file.content = content
    assert file.read() is None
    assert not layout.owned_by(file.descriptor, "me", 1)


def test_a_file_can_be_read_by_a_person(file: File) -> None:
    file.write(41, document=layout.describe(claim(), {}))
    text = file.content.decode().strip("\0")
    assert text.splitlines()[0].split()[:3] == ["lockctl1", f"{1:020d}", f"{41:020d}"]
    assert json.loads(text.splitlines()[1])["command"] == ["./nightly.sh"]


def claim(**changes: object) -> Claim:
    fields: dict[str, object] = {
        "name": "nightly",
        "owner": "0123abcd",
        "ttl": 30.0,
        "host": "web3",
        "pid": 41,
        "user": "ops",
        "command": ("./nightly.sh",),
    }
    return Claim(**{**fields, **changes})  # type: ignore[arg-type]


WORD = st.text(st.characters(codec=None), max_size=5000)


@given(
    WORD,
    WORD,
    st.lists(WORD | st.just("x" * 4000), max_size=6).map(tuple),
    st.none() | st.integers() | WORD.map(lambda text: text[:20]),
)
def test_every_holder_fits_into_a_slot_and_is_found_again_with_whole_words(
    host: str, user: str, command: tuple[str, ...], extra: int | str | None
) -> None:
    document = layout.describe(claim(host=host, user=user, command=command), {"extra": extra})
    assert len(document) <= ROOM
    with File() as file:
        file.write(7, document=document)
        assert layout.owned_by(file.descriptor, "0123abcd", 7)
        assert not layout.owned_by(file.descriptor, "0123abcd", 8)
        assert not layout.owned_by(file.descriptor, "0123abce", 7)
        found = file.read()
        assert found is not None
        holder = found.holder
    assert holder is not None
    assert (holder["owner"], holder["pid"], holder["ttl"], holder["mode"]) == ("0123abcd", 41, 30.0, "exclusive")
    clean = [word.encode("utf-8", "replace").decode() for word in command]
    words = holder["command"]
    assert isinstance(words, list)
    assert words == clean or (words[-1] == "..." and words[:-1] == clean[: len(words) - 1])


def test_an_owner_that_another_holder_wrote_as_its_command_is_not_the_owner(file: File) -> None:
    file.write(7, document=layout.describe(claim(owner="other", command=('"owner":"0123abcd"',)), {}))
    assert not layout.owned_by(file.descriptor, "0123abcd", 7)


@pytest.mark.parametrize("document", [b"null", b"{}", b"[]", b'{"owner":""}', b"\xff", b"{", b""])
def test_a_document_without_an_owner_is_nobody(document: bytes) -> None:
    assert Record(1, 1, document).holder is None


def test_a_write_to_a_full_disk_says_so(full_disk: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        layout.write(full_disk, Record(1, 1, b"null"), durable=True)


@pytest.fixture
def full_disk() -> Iterator[int]:
    """A file of which every write fails as on a full disk, on every Linux and without mounting anything."""
    descriptor = os.open("/dev/full", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


class Killed(BaseException):
    """The process was, in the middle of a call."""


class Disk:
    """What of a lock file has reached the disk: each page as it is, or as it was at some time since the last sync."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.since: list[list[bytes]] = [[b""], [b""]]  # by page, what may be there after a loss of power
        self.calls_left = 99
        self.pwrite, self.fdatasync = os.pwrite, os.fdatasync

    def write(self, descriptor: int, data: Buffer, offset: int) -> int:
        self._call()
        written = self.pwrite(descriptor, data, offset)
        self.since[offset // PAGE].append(bytes(data))
        return written

    def sync(self, descriptor: int) -> None:
        self._call()
        self.fdatasync(descriptor)
        self.since = [each[-1:] for each in self.since]

    def lose_power(self, chosen: list[int]) -> None:
        pages = [each[which % len(each)] for each, which in zip(self.since, chosen, strict=True)]
        self.since = [[page] for page in pages]
        os.ftruncate(self.file.descriptor, 0)
        for number, page in enumerate(pages):
            self.pwrite(self.file.descriptor, page, number * PAGE)

    def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Killed


KILLED = st.sampled_from([99, 99, 99, 1, 2])  # calls before that
STEPS = st.one_of(
    st.tuples(st.just("grant"), KILLED, st.sampled_from([True, True, True, False])),
    st.tuples(st.just("release"), KILLED, st.booleans()),
    st.tuples(st.just("outage"), st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("long after"), st.none(), st.none()),
)


@settings(max_examples=500)
@given(st.lists(STEPS, min_size=4, max_size=16))
def test_tokens_rise_whatever_a_loss_of_power_leaves_and_also_if_the_clock_goes_back(
    steps: list[tuple[str, Any, Any]],
) -> None:
    """Processes are killed between any two calls, too; some have no boot id, as where /proc is hidden."""
    with File() as file, pytest.MonkeyPatch.context() as patch:
        disk, boot, now, last = Disk(file), 1, 10**12, 0
        patch.setattr(os, "pwrite", disk.write)
        patch.setattr(os, "fdatasync", disk.sync)
        for word, first, second in [*steps, ("grant", 99, True)]:
            patch.setattr(layout, "boot_id", lambda boot=boot: f"00000000-0000-0000-0000-{boot:012d}")
            before = file.read() or Record(0, 0, b"null")
            disk.calls_left = first if word in ("grant", "release") else 99
            try:
                if word == "grant":
                    token = max(before.token + 1, now)
                    layout.grant(file.descriptor, before, token, b"{}", now=now if second else None)
                    assert token > last
                    last = token
                elif word == "release":
                    released = Record(before.sequence + 1, before.token, b"null", before.reserved)
                    layout.write(file.descriptor, released, durable=second)
                elif word == "outage":
                    disk.lose_power([first, second])
                    boot, now = boot + 1, max(1, now - 10**9)
                else:
                    now += 10**8
            except Killed:
                pass
