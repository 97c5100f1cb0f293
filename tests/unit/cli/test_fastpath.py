"""lockctl.cli.fastpath and click read the same words in the same way."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockctl.cli import fastpath, main
from lockctl.cli.verbs import run
from lockctl.errors import UsageError
from lockctl.settings import SETTINGS

FLAGS = st.sampled_from([flag for setting in SETTINGS for flag in setting.flags])
# what a word of a command line can have: anything but NUL, and bytes that are no UTF-8
NOT_UTF8 = [chr(byte + 0xDC00) for byte in range(0x80, 0x100)]
LETTERS = st.characters(exclude_characters="\0") | st.sampled_from(NOT_UTF8)
VALUES = st.sampled_from(
    [
        "5s",
        "0",
        "",
        "-",
        "--",
        "-5",
        "-x",
        "--ttl",
        "a=b",
        "=",
        "kill",
        "term",
        "nightly",
        "a b",
        "75",
        "file:///a",
        "-v",
    ]
) | st.text(LETTERS, max_size=8)
OPTION = st.one_of(
    st.tuples(FLAGS),
    st.tuples(FLAGS, VALUES),
    st.builds(lambda flag, word: (f"{flag}={word}",), FLAGS, VALUES),
    st.builds(lambda flag, word: (flag + word,), FLAGS, VALUES),
    st.builds(lambda flag, length: (flag[:length],), FLAGS, st.integers(2, 6)),
    st.sampled_from([("-vq",), ("-nv",), ("-vt", "5s"), ("-h",), ("--help",), ("--unknown",), ("-Z",), ("---",)]),
)
# mostly such as the fast path must read itself
GOOD = st.sampled_from(SETTINGS).flatmap(
    lambda setting: (
        st.sampled_from(setting.flags).map(lambda flag: (flag,))
        if not setting.takes_value
        else st.one_of(
            st.tuples(st.sampled_from(setting.flags), VALUES),
            st.builds(lambda word: (f"{setting.flags[-1]}={word}",), VALUES),
            st.builds(lambda word: (setting.flags[0] + word,), VALUES),
        )
    )
)
COMMAND = st.lists(VALUES | FLAGS | st.just("true"), max_size=4).map(tuple)
LINES = st.builds(
    lambda options, dashes, command: [word for option in options for word in option] + dashes + list(command),
    st.lists(GOOD, max_size=5) | st.lists(OPTION | GOOD, max_size=5),
    st.sampled_from([[], ["--"]]),
    COMMAND,
)


class Read(Exception):
    """Stands in for the run itself: what click has read."""


def by_click(words: list[str]) -> object:
    """(settings, command) as click reads them; ``None`` when it refuses them or shows its help."""

    def start_run(*read: object) -> int:
        raise Read(read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "start_run", start_run)
        try:
            run.command.main(list(words), prog_name="lockctl run", standalone_mode=False)
        except Read as read:
            return read.args[0]
        except (click.UsageError, UsageError):
            return None
    return None


@pytest.mark.slow
@given(LINES)
@settings(max_examples=settings().max_examples * 3)
def test_what_the_fast_path_reads_click_reads_the_same(words: list[str]) -> None:
    fast = fastpath.read(words)
    if fast is not None:
        assert by_click(words) == fast


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_fast_path_reads_every_setting_in_every_usual_form(setting: Any) -> None:
    command = ("true", "--ttl", "-x")
    for flag in setting.flags:
        if not setting.takes_value:
            forms: list[tuple[list[str], object]] = [([flag], True)]
        else:
            glued = [f"{flag}=75"] if flag.startswith("--") else [f"{flag}75"]
            forms = [([flag, "75"], "75"), (glued, "75")]
        for words, content in forms:
            for dashes in ([], ["--"]):
                expected = ({setting.name: content}, command, ())
                assert fastpath.read([*words, *dashes, *command]) == expected
                assert by_click([*words, *dashes, *command]) == expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["-v"],
        ["--help"],
        ["-h", "true"],
        ["--tt", "5s", "true"],
        ["-vq", "true"],
        ["--verbose=1", "true"],
        ["-t"],
        ["-t", "1s", "-t", "2s", "true"],
    ],
)
def test_what_is_unusual_is_left_to_click(words: list[str]) -> None:
    assert fastpath.read(words) is None


def test_locks_can_be_named_several_times() -> None:
    words = ["-l", "b", "--lock=a", "-t", "5s", "-lc", "--", "true"]
    assert fastpath.read(words) == ({"lock": "b", "ttl": "5s"}, ("true",), ("a", "c"))
    assert by_click(words) == fastpath.read(words)


def test_options_after_the_command_are_the_commands() -> None:
    assert fastpath.read(["-v", "backup", "-v", "--", "-t"]) == ({"verbose": True}, ("backup", "-v", "--", "-t"), ())
    assert fastpath.read(["--", "-v"]) == ({}, ("-v",), ())
    assert fastpath.read(["-"]) == ({}, ("-",), ())
