"""JSON through the C parts of the standard library alone.

``import json`` loads ``re`` and takes as long as a whole refused run should; its C scanner and quoter do
the work anyway. They are private to CPython, so where they are missing, or want to be called otherwise, ``json`` itself
serves.
"""

from __future__ import annotations

from lockctl.names import json_string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


MOST_VALUES = 200_000  # of one document: the smallest take some hundred bytes of memory each, for three of text


def parse(data: bytes) -> Any:
    """The content of a document; raises ``ValueError`` for anything else, however deep it is nested."""
    if len(data) > MOST_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_VALUES:
        raise ValueError("not JSON: too many values")
    text = data.decode("utf-8").strip(" \t\n\r")  # what JSON calls white space
    try:
        content, end = _scan(text, 0)
    except (StopIteration, RecursionError, SystemError):
        # SystemError: it wants to raise json's own error, and json is not loaded
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("not JSON: more than one document")
    return content


def an_object(data: bytes) -> dict[str, Any] | None:
    """The object that a document has; ``None`` for anything else."""
    try:
        content = parse(data)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")


class _Options:
    """What ``json.JSONDecoder`` tells the scanner."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # from Python 3.15 on
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_no_constant)


def _refuse(content: object) -> NoReturn:
    raise TypeError(f"not for JSON: {type(content).__name__}")


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan: Any = make_scanner(_Options)  # type: ignore[arg-type]
    _write: Any = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)
    _write_clean: Any = make_encoder(None, _refuse, json_string, None, ":", ",", False, False, True)
    _write_spaced: Any = make_encoder(None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
except (ImportError, AttributeError, TypeError):
    from json import JSONDecoder, JSONEncoder

    _scan = JSONDecoder(parse_constant=_no_constant).raw_decode
    _write = _write_clean = JSONEncoder(separators=(",", ":"), default=_refuse).iterencode
    _write_spaced = JSONEncoder(default=_refuse).iterencode


def render(content: object) -> str:
    """A document of dictionaries with text keys, lists, texts, finite numbers, yes, no and nothing."""
    text = "".join(_write(content, 0))
    # a lone surrogate is no text: who reads it may refuse the whole document
    return "".join(_write_clean(content, 0)) if "\\ud" in text else text


def on_one_line(content: object) -> str:
    """As ``json.dumps`` writes it, with blanks; a lone surrogate is escaped, so that nothing is lost."""
    return "".join(_write_spaced(content, 0))


def on_many_lines(content: object, margin: str = "\n") -> str:
    """As ``json.dumps`` writes it with an indent of two; *margin* is a new line and what stands before it."""
    inner = margin + "  "
    if isinstance(content, dict) and content:
        pairs = [f"{inner}{on_one_line(key)}: {on_many_lines(each, inner)}" for key, each in content.items()]
        return "{" + ",".join(pairs) + margin + "}"
    if isinstance(content, list) and content:
        return "[" + ",".join([inner + on_many_lines(each, inner) for each in content]) + margin + "]"
    return on_one_line(content)
