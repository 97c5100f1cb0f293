"""Hiding secrets in the words of a command, which everybody who can read the locks sees. The command gets them all.

What is hidden without being asked for: values of names such as ``password`` and ``token``, passwords in URLs and
headers, tokens whose form is known, and the options of a few tools that take a password.
"""

from __future__ import annotations

import _signal

from lockctl import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from lockctl.config import Effective

    Rule = tuple[Callable[[str], bool], str]

HIDDEN = "***"
LONGEST = 1 << 16  # characters: nobody needs more to know what runs, and what is left out is not searched
LIMIT = 1.0  # seconds of the processor for the patterns of a user: one can take longer than the universe is old
BLANK = "\ue000"  # in place of a blank in a word, while words are looked at together
BETWEEN = "\x1f"  # words: a blank to a regular expression
ENDS = (  # of the names of secrets
    *("passwd", "password", "passphrase", "pass", "pwd", "secret", "token"),
    *("credential", "credentials", "sig", "signature"),
    *[f"{kind}{mark}key" for kind in ("api", "access", "private") for mark in ("", "_", "-")],
)
FORMS = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox")  # beginnings of tokens
LETTERS = "abcdefghijklmnopqrstuvwxyz"

WORDS = "(?:" + "|".join(ENDS) + ")"
NAME = rf"(?<![\w.-])[\w.-]*?{WORDS}(?![\w.-])"
VALUE = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'&;|,)}]+)"""
ARGUMENT = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'-][^\s;|&]*)"""
TOOL = r"(?<![\w.-])(?:{})(?=\s)[^;|&\n]{{0,1000}}?\s"
WHOLE_WORD = rf"(?is)([\w.-]*?{WORDS}=).+"
OPTION = rf"(?i)-[\w.-]*?{WORDS}"


def _names_a_secret(text: str) -> bool:
    """Whether one of ``ENDS`` ends a name."""
    for end in ENDS:
        at = text.find(end)
        while at >= 0:
            at += len(end)
            following = text[at : at + 1]
            if not following.isalnum() and following not in ("_", ".", "-"):
                return True
            at = text.find(end, at)
    return False


def _has_login_in_url(text: str) -> bool:
    return any(":" in part.partition("@")[0] for part in text.split("://")[1:] if "@" in part)


def _has_option_u(text: str) -> bool:
    """Whether there is a ``u`` in the letters of an option."""
    return any("u" in part[: len(part) - len(part.lstrip(LETTERS))] for part in text.split("-")[1:])


# Whether a regular expression can match at all, told without it: to compile them all takes a third of a run. In each
# the first group stays, and what follows it is the secret.
IN_A_WORD: list[Rule] = [
    (_names_a_secret, rf"(?i)({NAME}[\"']?\s*[=:]\s*)({VALUE})"),
    (_names_a_secret, rf"(?i)(?:^|(?<=\s))(--?[\w.-]*?{WORDS}\s+)({ARGUMENT})"),
    (
        lambda text: "authorization" in text and "digest" in text,
        r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?digest\s+)([^\n]+)",
    ),
    (
        lambda text: "authorization" in text,
        r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)([^\s\"']+)",
    ),
    (lambda text: "bearer" in text, r"(?i)(\bbearer\s+)([^\s\"']+)"),
    (_has_login_in_url, r"([a-zA-Z][\w+.-]{0,40}://[^/\s:@]*:)([^/\s@]+)(?=@)"),
    (
        lambda text: any(form in text for form in FORMS),
        r"()(\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}))",
    ),
    (lambda text: "eyj" in text, r"()(\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"),
]
OF_A_TOOL: list[Rule] = [
    (
        lambda text: ("mysql" in text or "mariadb" in text) and "-p" in text,
        rf"({TOOL.format('mysql[a-z]*|mariadb[a-z-]*')}-p)([^\s;|&]+)",
    ),
    (lambda text: "sshpass" in text, r"((?<![\w.-])sshpass\s+(?:-[evV]+\s+)*-[evV]*p\s*)(\S+)"),
    (lambda text: "redis-cli" in text and "-a" in text, rf"({TOOL.format('redis-cli')}-a\s*)(\S+)"),
    (
        lambda text: "curl" in text and _has_option_u(text),
        rf"({TOOL.format('curl')}(?:-[a-zA-Z]*[uU]|--(?:proxy-)?user)[\s=]*[\"']?[^\s:]*:)([^\s\"']+)",
    ),
]


def hide(words: tuple[str, ...], patterns: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The words with what is secret, and what matches one of *patterns*, replaced.

    Raises ``ValueError`` if the patterns take too long. Call it in the main thread.
    """
    shown = _hide_own(_short(words), patterns)
    text = "\n".join(shown).casefold()
    in_a_word, of_a_tool = ([rule for is_there, rule in rules if is_there(text)] for rules in (IN_A_WORD, OF_A_TOOL))
    if not in_a_word and not of_a_tool:
        return tuple(shown)
    import re

    for number, word in enumerate(shown if _names_a_secret(text) else ()):
        assigned = re.fullmatch(WHOLE_WORD, word)
        if assigned:
            shown[number] = assigned.group(1) + HIDDEN
        elif number and re.fullmatch(OPTION, shown[number - 1]) and not word.startswith("-"):
            shown[number] = HIDDEN
    if not any(BETWEEN in word or BLANK in word for word in shown):
        together = BETWEEN.join([word.replace(" ", BLANK) for word in shown])
        shown = [word.replace(BLANK, " ") for word in _without(of_a_tool, together).split(BETWEEN)]
    return tuple([_without(in_a_word + of_a_tool, word) for word in shown])


def _hide_own(words: list[str], patterns: tuple[str, ...]) -> list[str]:
    """Raises ``ValueError`` for patterns that take too long: nothing but the handler of a signal runs in a search."""
    if not patterns:
        return words
    import re

    def give_up(*_: object) -> None:
        raise ValueError(f"matching takes longer than {LIMIT:g} s: write a simpler regular expression")

    before = _signal.signal(_signal.SIGVTALRM, give_up)
    blocked = _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGVTALRM])
    _signal.setitimer(_signal.ITIMER_VIRTUAL, LIMIT)
    try:
        for pattern in patterns:
            words = [re.sub(pattern, _without_groups, word) for word in words]
        return words
    finally:
        _signal.setitimer(_signal.ITIMER_VIRTUAL, 0)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        _signal.signal(_signal.SIGVTALRM, before)


def hide_as(words: tuple[str, ...], patterns: Effective) -> tuple[str, ...]:
    """The same with the setting of the patterns; raises ``UsageError`` or ``ConfigError``, which says where it is."""
    try:
        return hide(words, patterns.content or ())
    except ValueError as wrong:
        raise config.refusal(f"{config.named(patterns)}: {wrong}", patterns) from None


def _short(words: tuple[str, ...]) -> list[str]:
    shown: list[str] = []
    left = LONGEST
    for word in words:
        left -= len(word) + 1
        if left < 0:
            return [*shown, "..."]
        shown.append(word)
    return shown


def _without(rules: list[str], text: str) -> str:
    import re

    for rule in rules:
        text = re.sub(rule, rf"\1{HIDDEN}", text)
    return text


def _without_groups(found: re.Match[str]) -> str:
    spans = [found.span(number) for number in range(1, found.re.groups + 1)] or [found.span()]
    text, end, whole = "", found.start(), found.string
    for start, stop in sorted(spans):
        if start >= end and stop > start:
            text += whole[end:start] + HIDDEN
            end = stop
    return text + whole[end : found.end()]
