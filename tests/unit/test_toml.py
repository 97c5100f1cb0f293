"""lockctl.toml: what is wrong, and on which line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import ConfigError
from lockctl.toml import line_of, parse

TEXT = """\
# ttl = "in a comment"
[defaults]
ttl = "30s"
wait = "5m"   # ttl
report = '''
ttl = "inside a string"
'''
kill_after = "5s"

[locks."web.*"]
ttl = "1m"

[locks]
db = { ttl = "2m", wait = "0" }

[backends]
main.url = "file:///a"
"quoted key" = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("defaults",), 2),
        (("defaults", "ttl"), 3),
        (("defaults", "wait"), 4),
        (("defaults", "report"), 5),
        (("defaults", "kill_after"), 8),
        (("locks", "web.*"), 10),
        (("locks", "web.*", "ttl"), 11),
        (("locks", "db", "ttl"), 14),
        (("backends", "main", "url"), 17),
        (("backends", "quoted key"), 18),
        (("defaults", "never"), None),
        (("nowhere",), None),
    ],
)
def test_a_key_is_found_on_the_line_that_sets_it(path: tuple[str, ...], line: int | None) -> None:
    assert line_of(TEXT, path) == line


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_read_or_refused_in_one_line_with_the_name_of_the_file(text: str) -> None:
    try:
        tables = parse("some.toml", text)
    except ConfigError as wrong:
        assert str(wrong).startswith("some.toml: not valid TOML: ")  # noqa: PT017 - one of the two ways
    else:
        for key in tables:
            assert line_of(text, (key,)) is None or line_of(text, (key,))


def test_a_half_written_file_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^some.toml: not valid TOML: .*line 2"):
        parse("some.toml", "[defaults]\nttl = \nwait = 1\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse("some.toml", '[defaults]\nttl = "30')


def test_a_file_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse("some.toml", "a = " + "[" * 100_000)
