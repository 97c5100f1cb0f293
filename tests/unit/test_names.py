"""lockctl.names: what may name a lock, and what may be shown on a terminal."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.fence.mark import parse_domain, parse_token
from lockctl.names import (
    ALLOWED,
    LONGEST,
    LONGEST_DOMAIN,
    check_name,
    command_line,
    derived_name,
    printable,
    some_of,
    token_domain,
)

ANY_TEXT = st.text(st.characters(codec=None))
ANY_WORD = st.binary().map(lambda word: word.decode("utf-8", "surrogateescape"))  # as argv comes


@given(st.text(st.sampled_from(sorted(ALLOWED)), min_size=1, max_size=LONGEST))
def test_a_name_of_allowed_characters_is_allowed_unless_it_begins_with_a_dot_or_dash(name: str) -> None:
    if name[0] in ".-":
        with pytest.raises(ValueError, match="cannot start"):
            check_name(name)
    else:
        assert check_name(name) == name


@given(ANY_TEXT)
def test_no_other_text_names_a_lock_and_the_reason_is_one_printable_line(text: str) -> None:
    try:
        name = check_name(text)
    except ValueError as wrong:
        said = str(wrong)
        assert printable(said) == said
    else:
        assert name == text
        assert set(text) <= ALLOWED
        assert 1 <= len(text) <= LONGEST


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "/etc/passwd",
        "..",
        "../a",
        ".",
        ".hidden",
        "-l",
        "--",
        "a b",
        "a\tb",
        "a\n",
        "a\0",
        "\x1b[1m",
        "a\x7f",
        "a\u202eb",
        "ü",
        "a*",
        "a\udcff",
        "a" * (LONGEST + 1),
        "x" * 5000,
    ],
)
def test_these_are_refused_briefly(name: str) -> None:
    with pytest.raises(ValueError, match="lock name") as refused:
        check_name(name)
    assert len(str(refused.value)) < 150


@given(st.lists(ANY_WORD, min_size=1, max_size=5).map(tuple))
def test_every_command_has_a_derived_name_that_is_allowed_and_always_the_same(words: tuple[str, ...]) -> None:
    name = derived_name(words)
    assert check_name(name) == name
    assert derived_name(words) == name


def test_a_derived_name_never_changes_between_versions() -> None:
    # as `printf 'WORD\0WORD' | b2sum -l 32` says
    assert derived_name(("/usr/local/bin/backup.sh", "--all")) == "backup.sh-25635a94"
    assert derived_name(("backup.sh",)) == "backup.sh-571faf4d"
    assert derived_name(("true",)) == "true-7472756a"


@pytest.mark.parametrize(
    ("line", "base"),
    [
        ("PASSWORD=s3cret /bin/load --all", "load"),
        ("A=1 B=s3cret load", "load"),
        ("PASSWORD=s3cret", "command"),
        ("PASSWORD='a s3cret' load", "command"),
        ("PASSWORD=$(cat s3cret) load", "command"),
        ("/opt/a=b/load", "load"),
        ("(PASSWORD=s3cret load)", "command"),
        ("PASSWORD+=s3cret load", "command"),
        ("PASSWORD[0]=s3cret load", "command"),
        ("! PASSWORD=s3cret load", "_"),
        ("", "command"),
    ],
)
def test_a_derived_name_shows_no_value_that_is_assigned_before_the_program(line: str, base: str) -> None:
    assert derived_name((line,)).rpartition("-")[0] == base


def test_commands_that_differ_in_any_word_have_different_names() -> None:
    commands = [
        ("a",),
        ("a", ""),
        ("a", "b"),
        ("a", "b", ""),
        ("a", "b c"),
        ("a b", "c"),
        ("/a",),
        ("\udcff",),
        ("\udcfe",),
    ]
    assert len({derived_name(words) for words in commands}) == len(commands)


@given(ANY_TEXT)
def test_what_is_shown_moves_no_cursor_and_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    shown.encode()


@given(ANY_TEXT.filter(bool) | ANY_TEXT.filter(bool).map(lambda text: text * 200))
def test_every_counter_has_a_domain_that_every_resource_keeps(text: str) -> None:
    domain = token_domain(text)
    assert parse_domain(domain) == domain
    assert token_domain(domain) == domain
    if len(text) <= LONGEST_DOMAIN and text.isprintable():
        assert domain == text


def test_domains_that_are_shortened_or_cleaned_stay_different() -> None:
    texts = ["d" * 301, "d" * 302, "d" * 300 + "e", "d\n", "d\t", "d\udcff", "d\udcfe"]
    assert len({token_domain(text) for text in texts}) == len(texts)


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"])), min_size=1, max_size=4).map(tuple))
def test_a_shown_command_can_be_read_back_word_by_word(words: tuple[str, ...]) -> None:
    assert tuple(shlex.split(command_line(words))) == words


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "+5", " 5", "5 ", "five", "0x5", "5.0", "1e3", "1_000", "9" * 20, str(2**63), "\u0665"]
)
def test_what_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a fencing token"):
        parse_token(text)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], ""),
        (["dc1"], "dc1"),
        (["a", "b", "c", "d", "e"], "a, b, c, d, e"),
        (["a", "b", "c", "d", "e", "f"], "a, b, c, d, e and others"),
        (["x\x1b[2J", "y" * 51], f"x\N{REPLACEMENT CHARACTER}[2J, {'y' * 50}"),
    ],
)
def test_of_names_that_another_program_tells_a_message_has_some(names: list[str], shown: str) -> None:
    assert some_of(iter(names)) == shown
