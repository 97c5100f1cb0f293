"""What is printed as YAML reads back as what it was."""

from __future__ import annotations

import pytest
import yaml

from lockctl.cli.query import to_yaml

WORDS = ["", "-", "~", "null", "Yes", "12", "1.5", "0x1f", "2026-11-20T02:00:00.123Z", "a: b", "a #b", "/bin/true"]
HOSTILE = ["\x1b[2J\r\n\t", "\"\\'", "\u2028\ufeff\x85", "\U0001f600", "\U000e0001", "[x]", "&a", "*a", "!t", "<<", "="]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"a": None, "b": [1, 2.5, True], "c": {"d": [{"x": "y", "l": []}, [1, [2]]]}},
        {"words": WORDS, "hostile": HOSTILE},
        [{word: word} for word in [*WORDS, *HOSTILE]],
    ],
    ids=["nothing", "empty", "nested", "values", "keys"],
)
def test_a_document_comes_back(document: object) -> None:
    assert yaml.safe_load(to_yaml(document)) == document


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_a_byte_that_is_no_text_leaves_a_document_that_can_be_read(loader: type) -> None:
    assert yaml.load(to_yaml({"key": "/lo\udcffcks/a\ud800"}), loader) == {"key": "/lo\ufffdcks/a\ufffd"}
