"""Rows of the table of marks, as drivers of databases give them: believed only if lockctl can have written them."""

from __future__ import annotations

from lockctl.fence.mark import LARGEST, Mark, parse_domain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_DOMAIN = 1200  # bytes: so many characters of UTF-8; a longer one is not worth its transport


class ForeignRow(Exception):
    """What is in the table is not a mark of ours; the text says why, in words that follow "the mark of X"."""


def as_mark(row: Sequence[object]) -> Mark:
    """The mark in a row that begins with the domain and the token. Raises ``ForeignRow``."""
    domain, token = (*row, None, None)[:2]
    if type(token) is not int or not 0 < token <= LARGEST:
        raise ForeignRow("has no token, a whole number above 0")
    try:
        return Mark(parse_domain(_text(domain)), token)
    except ValueError:
        raise ForeignRow("has no domain of a token") from None


def only(rows: Sequence[Sequence[object]]) -> object:
    """The value in the first column of the first row; ``None``: there is none."""
    return rows[0][0] if rows and rows[0] else None


def _text(domain: object) -> str:
    """A text, also of a driver that gives bytes. Raises ``ValueError``."""
    if isinstance(domain, str):
        return domain
    if isinstance(domain, bytes):
        return domain.decode()
    raise ValueError
