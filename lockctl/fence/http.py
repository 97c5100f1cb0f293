"""The header ``X-Fencing-Token: DOMAIN;TOKEN``: how clients say it, how servers read it, and answers that refuse it.

In the header a domain is visible ASCII without ``"``, ``%``, ``,``, ``;`` and a backslash. All other characters are
written as the ``%XX`` of their UTF-8, so that a header that came twice, which servers join with a comma, is never one
mark. The domains of all lockctl's backends are plain, unless a path or a database has an unusual name; so in a shell::

    curl -H "X-Fencing-Token: $LOCKCTL_TOKEN_DOMAIN;$LOCKCTL_TOKEN" -T stock.json https://stock.example/items

and in Python, with any client::

    from lockctl.fence import http

    urllib.request.Request(url, data, http.headers(os.environ), method="PUT")
    requests.put(url, data, headers=http.headers(os.environ))
    httpx.put(url, content=data, headers=http.headers(os.environ))
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, LockctlError, UsageError
from lockctl.fence.holder import own_mark
from lockctl.fence.mark import Mark, Stale, parse_domain, parse_token
from lockctl.json_text import render
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    class Fields(Protocol):
        """Header fields of an answer, as urllib, requests and httpx have them: names in any case."""

        def get(self, name: str, /) -> str | None:
            """The content of a field, ``None`` if it is not there."""


HEADER = "X-Fencing-Token"
CURRENT = "X-Fencing-Token-Current"  # of an answer: the mark that refused the request
LONGEST = 3620  # characters: a domain of 300 characters with 4 bytes each, a semicolon and 19 digits
PLAIN = frozenset(map(chr, range(0x21, 0x7F))) - frozenset('"%,;\\')  # what a domain has as it is
HEX = "0123456789abcdefABCDEF"
RETRY_AFTER = 1  # seconds, said with 503
REASONS = {
    400: "Bad Request",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    428: "Precondition Required",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MalformedToken(LockctlError):
    """A request has the header, and it is not one ``DOMAIN;TOKEN``."""


class MissingToken(LockctlError):
    """A request that needs the header has none."""


class Incomplete(LockctlError):
    """The client went away, or lied about the length, before its request was there."""


class NoLength(LockctlError):
    """The body of a request comes in chunks, and the server does not tell where they end."""


class TooLarge(LockctlError):
    """The body of a request is longer than what is kept here."""


class NotHeld(LockctlError):
    """The handler has run, and it is not known whether the mark was held until its end."""


UNAVAILABLE = "unavailable"
# each error but Stale: the status, the key ``error``, and for the client what is said instead of the error's own text
ANSWERS: tuple[tuple[type[LockctlError], int, str, str | None], ...] = (
    (MissingToken, 428, "missing", None),
    (MalformedToken, 400, "malformed", None),
    (Incomplete, 400, "incomplete", None),
    (NoLength, 411, "no_length", None),
    (TooLarge, 413, "too_large", None),
    (NotHeld, 503, "not_held", None),  # no Retry-After: what repeats requests by itself must not do it with this one
    (UsageError, 400, "resource", "the resource of the request has a name that cannot be used"),
    (BackendUnavailable, 503, UNAVAILABLE, "the mark of the resource is held, or its store gives no answer"),
    (LockctlError, 500, "unusable", "the store of the mark must be looked at by its operator"),
)


def format_header(mark: Mark) -> str:
    """The content of the header; raises ``ValueError`` for what no lock has given."""
    token = parse_token(str(mark.token))
    pieces = [char if char in PLAIN else _escaped(char) for char in parse_domain(mark.domain)]
    return f"{''.join(pieces)};{token}"


def parse_header(text: str) -> Mark:
    """The mark in the content of a header; raises ``MalformedToken`` with one line."""
    if len(text) > LONGEST:
        raise MalformedToken(f"{HEADER} is too long: DOMAIN;TOKEN has at most {LONGEST} characters")
    if "," in text:
        raise MalformedToken(f"{HEADER} came twice, or its domain has a comma, which must be %2C")
    domain, semicolon, token = text.partition(";")
    if not semicolon:
        raise MalformedToken(f"{HEADER} is not DOMAIN;TOKEN")
    try:
        return Mark(parse_domain(_unescaped(domain)), parse_token(token))
    except ValueError as wrong:
        raise MalformedToken(f"{HEADER}: {printable(str(wrong))}") from None


def mark_of(contents: Sequence[str]) -> Mark | None:
    """The mark of a request that has the header with these *contents*, ``None`` without. Raises ``MalformedToken``."""
    if len(contents) > 1:
        raise MalformedToken(f"{HEADER} came {len(contents)} times")
    return parse_header(contents[0]) if contents else None


def headers(environ: Mapping[str, str]) -> dict[str, str]:
    """The header for the token in *environ*, to be given to any client of HTTP; raises ``UsageError`` without one."""
    return {HEADER: format_header(own_mark(environ))}


def raise_if_stale(resource: str, offered: Mark, status: int, fields: Fields) -> None:
    """Raise ``Stale`` if an answer refuses the token *offered*; other answers, and another 412, are not looked at.

    *resource* is for the message: what the request was about. Raises ``BackendUnavailable`` if the answer has a mark
    that cannot be read.
    """
    told = fields.get(CURRENT) if status == 412 else None
    if told is None:
        return
    try:
        current = parse_header(told)
    except MalformedToken:
        raise BackendUnavailable(f"{printable(resource)}: the {CURRENT} of the answer is not DOMAIN;TOKEN") from None
    raise Stale(resource, offered, current)


class Refusal(Value):
    """An answer in the place of that of the handler: a problem document (RFC 9457)."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def status_line(self) -> str:
        """``412 Precondition Failed``."""
        return f"{self.status} {REASONS[self.status]}"


def refusal(error: LockctlError, resource: str) -> Refusal:
    """The answer for *error*. It has the key ``error``, which is stable, and nothing of the store but the mark."""
    current = None
    more = []
    if isinstance(error, Stale):
        status, name = 412, "stale" if error.current.domain == error.offered.domain else "other_domain"
        detail = error.told(resource)
        current = {"domain": error.current.domain, "token": error.current.token}
        more.append((CURRENT, format_header(error.current)))
    else:
        _, status, name, said = next(answer for answer in ANSWERS if isinstance(error, answer[0]))
        detail = str(error) if said is None else said
        if name == UNAVAILABLE:
            more.append(("Retry-After", str(RETRY_AFTER)))
    content = {
        "title": REASONS[status],
        "status": status,
        "detail": detail,
        "error": name,
        "resource": resource,
        "current": current,
    }
    body = render(content).encode() + b"\n"
    fields = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
    fields += [("Cache-Control", "no-store"), *more]
    return Refusal(status, tuple(fields), body)


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def _unescaped(text: str) -> str:
    """Raises ``ValueError`` for a character that must be escaped, and for an escape that is none."""
    if not text.isascii():
        raise ValueError("a domain has ASCII characters and %XX only")
    data = bytearray()
    at = 0
    while at < len(text):
        if text[at] == "%":
            digits = text[at + 1 : at + 3]
            if len(digits) != 2 or any(digit not in HEX for digit in digits):
                raise ValueError(f"{text[at : at + 3]!r} in a domain is not %XX")
            data.append(int(digits, 16))
            at += 3
            continue
        if text[at] not in PLAIN:
            raise ValueError(f"{text[at]!r} in a domain must be %{ord(text[at]):02X}")
        data.append(ord(text[at]))
        at += 1
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the %XX of a domain are not UTF-8") from None
