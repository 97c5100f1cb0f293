"""Marks: which token a resource has seen last, of which counter; and the one rule that compares them."""

from __future__ import annotations

from lockctl.errors import TokenRefused
from lockctl.names import LONGEST_DOMAIN, printable
from lockctl.value import Value

LARGEST = 2**63 - 1  # the largest token: every store keeps it in a signed number of 64 bits
DIGITS = 19
REMEDY = "if the lock has moved for good, use: lockctl fence reset"  # of an operator, for a mark of another domain


class Mark(Value):
    """A fencing token, and the domain of its counter: tokens of two domains cannot be compared."""

    domain: str
    token: int

    def __str__(self) -> str:
        """``DOMAIN;TOKEN``; for a header of HTTP see ``lockctl.fence.http``, which escapes what it must."""
        return f"{self.domain};{self.token}"


class Stale(TokenRefused):
    """A resource refused a token, and was not touched: it has seen a higher one, or one of another domain."""

    def __init__(self, resource: str, offered: Mark, current: Mark) -> None:
        """*current* is the mark that refused *offered*."""
        self.resource = resource
        self.offered = offered
        self.current = current
        moved = current.domain != offered.domain
        super().__init__(self.told(resource) + (f": {REMEDY}" if moved else ""))

    def told(self, name: str) -> str:
        """One line for who sent the token and knows the resource by this *name*: nothing of the store but the mark."""
        if self.current.domain == self.offered.domain:
            reason = f"it has already seen token {self.current.token}"
        else:
            domains = f"{printable(self.current.domain)} and not {printable(self.offered.domain)}"
            reason = f"its mark is of another domain, {domains}"
        return f"{printable(name)} refuses token {self.offered.token}: {reason}"


def accept(resource: str, current: Mark | None, offered: Mark) -> bool:
    """Whether *offered* must be recorded (``True``) or is the mark already (``False``). Raises ``Stale``.

    The rule: the same domain, and a token that is not lower. To be used inside of the store's atomic step.
    """
    if current is None:
        return True
    if current.domain != offered.domain or offered.token < current.token:
        raise Stale(resource, offered, current)
    return offered.token > current.token


def parse_token(text: str) -> int:
    """A token as it stands in ``LOCKCTL_TOKEN``: 1 to 19 decimal digits, above 0. Raises ``ValueError``, one line."""
    plain = text.isascii() and text.isdigit() and len(text) <= DIGITS
    if not plain or not 0 < int(text) <= LARGEST:
        raise ValueError(f"{text[:40]!r} is not a fencing token: a decimal number from 1 to {LARGEST}")
    return int(text)


def parse_domain(text: str) -> str:
    """A domain as it stands in ``LOCKCTL_TOKEN_DOMAIN``: printable text. Raises ``ValueError`` with one line."""
    if not text or len(text) > LONGEST_DOMAIN or not text.isprintable():
        raise ValueError(f"{text[:40]!r} is not the domain of a token: see LOCKCTL_TOKEN_DOMAIN")
    return text


def parse_mark(text: str) -> Mark:
    """``DOMAIN;TOKEN``, as :class:`Mark` prints it. Raises ``ValueError`` with one line."""
    domain, semicolon, token = text.rpartition(";")
    if not semicolon:
        raise ValueError(f"{text[:40]!r} is not DOMAIN;TOKEN")
    return Mark(parse_domain(domain), parse_token(token))
