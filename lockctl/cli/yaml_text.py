"""Documents as YAML: what JSON can say, in block style, for every parser of YAML 1.1 and 1.2."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# letters first, so that it is neither a number nor a date; no colon, so that it is not a mapping
PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._+@-]*\Z")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # that are values of another type


def to_yaml(document: object) -> str:
    """One document, a mapping or a sequence, with a newline at its end."""
    return "\n".join(_block(document)) + "\n"


def _block(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, content in value.items():
            yield from _entry(f"{_scalar(key)}:", content)
    elif isinstance(value, list) and value:
        for content in value:
            lines = list(_block(content))
            yield f"- {lines[0]}"
            yield from ("  " + line for line in lines[1:])
    else:
        yield _scalar(value)


def _entry(key: str, content: object) -> Iterator[str]:
    if isinstance(content, (dict, list)) and content:
        yield key
        yield from ("  " + line for line in _block(content))
    else:
        yield f"{key} {_scalar(content)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and PLAIN.match(value) and value.lower() not in WORDS:
        return value
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08x}"
