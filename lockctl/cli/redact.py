"""Hiding secrets in the words of a command, which everybody who can read the locks sees. The command gets them all.

What is hidden without being asked for: values of names such as ``password`` and ``token``, passwords in URLs and
headers, tokens whose form is known, and the options of a few tools that take a password.
"""

from __future__ import annotations

import _signal
import contextlib
import re
from typing import TYPE_CHECKING

from lockctl import config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.config import Effective

HIDDEN = "***"
LONGEST = 1 << 16  # characters: nobody needs more to know what runs, and what is left out is not searched
LIMIT = 1.0  # seconds of the processor for the patterns of a user: one can take longer than the universe is old
BLANK = "\ue000"  # in place of a blank in a word, while words are looked at together
BETWEEN = "\x1f"  # words: a blank to a regular expression

WORDS = (
    r"(?:passw(?:or)?d|passphrase|pass|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    r"|sig(?:nature)?)"
)
NAME = rf"(?<![\w.-])[\w.-]*?{WORDS}(?![\w.-])"
VALUE = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'&;|,)}]+)"""
ARGUMENT = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'-][^\s;|&]*)"""
TOOL = r"(?<![\w.-])(?:{})(?=\s)[^;|&\n]{{0,1000}}?\s"
WHOLE_WORD = re.compile(rf"(?i)([\w.-]*?{WORDS}=).+", re.DOTALL)
OPTION = re.compile(rf"(?i)-[\w.-]*?{WORDS}")
# in each the first group stays, and what follows it is the secret
IN_A_WORD = [
    re.compile(pattern)
    for pattern in (
        rf"(?i)({NAME}[\"']?\s*[=:]\s*)({VALUE})",
        rf"(?i)(?:^|(?<=\s))(--?[\w.-]*?{WORDS}\s+)({ARGUMENT})",
        r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?digest\s+)([^\n]+)",
        r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)([^\s\"']+)",
        r"(?i)(\bbearer\s+)([^\s\"']+)",
        r"([a-zA-Z][\w+.-]{0,40}://[^/\s:@]*:)([^/\s@]+)(?=@)",
        r"()(\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}))",
        r"()(\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
    )
]
OF_A_TOOL = [
    re.compile(pattern)
    for pattern in (
        rf"({TOOL.format('mysql[a-z]*|mariadb[a-z-]*')}-p)([^\s;|&]+)",
        r"((?<![\w.-])sshpass\s+(?:-[evV]+\s+)*-[evV]*p\s*)(\S+)",
        rf"({TOOL.format('redis-cli')}-a\s*)(\S+)",
        rf"({TOOL.format('curl')}(?:-[a-zA-Z]*[uU]|--(?:proxy-)?user)[\s=]*[\"']?[^\s:]*:)([^\s\"']+)",
    )
]


def hide(words: tuple[str, ...], patterns: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The words with what is secret, and what matches one of *patterns*, replaced.

    Raises ``ValueError`` if the patterns take too long. Call it in the main thread.
    """
    shown = _short(words)
    if patterns:
        with _limited():
            for pattern in patterns:
                own = re.compile(pattern)
                shown = [own.sub(_without_groups, word) for word in shown]
    for number, word in enumerate(shown):
        assigned = WHOLE_WORD.fullmatch(word)
        if assigned:
            shown[number] = assigned.group(1) + HIDDEN
        elif number and OPTION.fullmatch(shown[number - 1]) and not word.startswith("-"):
            shown[number] = HIDDEN
    if not any(BETWEEN in word or BLANK in word for word in shown):
        together = BETWEEN.join([word.replace(" ", BLANK) for word in shown])
        shown = [word.replace(BLANK, " ") for word in _without(OF_A_TOOL, together).split(BETWEEN)]
    return tuple([_without(IN_A_WORD + OF_A_TOOL, word) for word in shown])


def hide_as(words: tuple[str, ...], patterns: Effective) -> tuple[str, ...]:
    """The same with the setting of the patterns; raises ``UsageError`` or ``ConfigError``, which says where it is."""
    try:
        return hide(words, patterns.content or ())
    except ValueError as wrong:
        raise config.refusal(f"{config.named(patterns)}: {wrong}", patterns) from None


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise ``ValueError`` in a block that takes too long: nothing but the handler of a signal runs in a search."""

    def give_up(*_: object) -> None:
        raise ValueError(f"matching takes longer than {LIMIT:g} s: write a simpler regular expression")

    before = _signal.signal(_signal.SIGVTALRM, give_up)
    blocked = _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGVTALRM])
    _signal.setitimer(_signal.ITIMER_VIRTUAL, LIMIT)
    try:
        yield
    finally:
        _signal.setitimer(_signal.ITIMER_VIRTUAL, 0)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        _signal.signal(_signal.SIGVTALRM, before)


def _short(words: tuple[str, ...]) -> list[str]:
    shown: list[str] = []
    left = LONGEST
    for word in words:
        left -= len(word) + 1
        if left < 0:
            return [*shown, "..."]
        shown.append(word)
    return shown


def _without(secrets: list[re.Pattern[str]], text: str) -> str:
    for pattern in secrets:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _without_groups(found: re.Match[str]) -> str:
    spans = [found.span(number) for number in range(1, found.re.groups + 1)] or [found.span()]
    text, end, whole = "", found.start(), found.string
    for start, stop in sorted(spans):
        if start >= end and stop > start:
            text += whole[end:start] + HIDDEN
            end = stop
    return text + whole[end : found.end()]
