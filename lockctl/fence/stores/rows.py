"""Rows of the table of marks, as drivers of databases give them: believed only if lockctl can have written them."""

from __future__ import annotations

from lockctl.fence.mark import LARGEST, Mark, parse_domain

LONGEST_DOMAIN = 1200  # bytes: so many characters of UTF-8; a longer one is not worth its transport


class ForeignRow(Exception):
    """What is in the table is not a mark of ours; the text says why, in words that follow "the mark of X"."""


def as_mark(domain: object, token: object) -> Mark:
    """The mark in two columns. Raises ``ForeignRow``."""
    if type(token) is not int or not 0 < token <= LARGEST:
        raise ForeignRow("has no token, a whole number above 0")
    try:
        return Mark(parse_domain(_text(domain)), token)
    except ValueError:
        raise ForeignRow("has no domain of a token") from None


def _text(domain: object) -> str:
    """A text, also of a driver that gives bytes. Raises ``ValueError``."""
    if isinstance(domain, str):
        return domain
    if isinstance(domain, bytes):
        return domain.decode()
    raise ValueError
