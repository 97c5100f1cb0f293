"""The lean JSON is the JSON of the standard library."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl import json_text
from lockctl.names import json_string

if TYPE_CHECKING:
    from types import ModuleType

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_what_json_writes_is_read_as_json_reads_it(document: object) -> None:
    assert json_text.parse(json.dumps(document).encode()) == document


@given(DOCUMENTS)
def test_people_and_programs_are_shown_a_document_as_json_shows_it(document: object) -> None:
    assert json_text.on_one_line(document) == json.dumps(document)
    assert json_text.on_many_lines(document) == json.dumps(document, indent=2)


def test_a_name_that_is_not_text_is_shown_as_json_shows_it() -> None:
    document = {"command": ["a\udcff"]}
    assert json_text.on_one_line(document) == json.dumps(document)
    assert json_text.on_many_lines(document) == json.dumps(document, indent=2)


@given(st.text())
def test_a_quoted_text_is_read_back_by_json(text: str) -> None:
    assert json.loads(json_string(text)) == text


def test_what_is_not_text_becomes_a_question_mark() -> None:
    assert json.loads(json_string("a\udcffb")) == "a?b"


@given(st.binary())
def test_bytes_are_refused_whenever_json_refuses_them(data: bytes) -> None:
    def accepted(read: object) -> bool:
        try:
            content = read(data)  # type: ignore[operator]
        except ValueError:
            return False
        return not (isinstance(content, float) and not math.isfinite(content))

    if b"\0" not in data and not data.startswith(b"\xef\xbb\xbf"):  # json guesses other encodings
        assert accepted(json_text.parse) <= accepted(json.loads)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":',
        b"[1] 2",
        b"NaN",
        b"[Infinity]",
        b"nul",
        b"[" * 200_000,
        b"\xff",
        b"\x0b0",
        b"1\x1c",
        b"[" + b"[]," * 200_000 + b"1]",
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        json_text.parse(data)


@pytest.fixture(params=[None, AttributeError, TypeError], ids=["absent", "with more options", "with other arguments"])
def without_c_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is with a Python whose private parts of json are absent, or other ones."""

    def refuse(*_: object) -> NoReturn:
        raise request.param

    for part in ("make_scanner", "make_encoder"):
        if request.param is None:
            monkeypatch.delattr(f"_json.{part}")
        else:
            monkeypatch.setattr(f"_json.{part}", refuse)
    assert json_text.__spec__ is not None
    spec = importlib.util.spec_from_file_location("json_text_anew", json_text.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_json_itself_serves_where_its_private_parts_are_others(without_c_parts: ModuleType) -> None:
    document = {"name": "\N{SNOWMAN}", "numbers": [1, -2.5, True, None]}
    assert without_c_parts.render(document) == json_text.render(document)
    assert without_c_parts.parse(json_text.render(document).encode()) == document
    for data in (b"", b"{", b"[1] 2", b"NaN", b"[Infinity]", b"[" * 200_000, b"\xff"):
        with pytest.raises(ValueError, match=r".*"):
            without_c_parts.parse(data)
    with pytest.raises(TypeError):
        without_c_parts.render(object())
