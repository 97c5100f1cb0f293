"""The values of settings: how a text is read, how a value is shown, and which settings exclude each other."""

from __future__ import annotations

from lockctl import settings as kinds
from lockctl.durations import format_duration, parse_duration, parse_wait
from lockctl.names import check_name, is_name, json_string
from lockctl.settings import MOST_SLOTS, NO_FENCE, REPEATED, Setting
from lockctl.supervise.signals import NAMES, parse_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# two settings that cannot both ask for something, and why
CONTRADICTIONS = (
    ("shared", "slots", "the number of shared holders is not limited"),
    ("min_hold", "shared", "only an exclusive lock can be held after its job"),
    ("min_hold", "slots", "only an exclusive lock can be held after its job"),
    ("once_per", "shared", "several holders could run at once in the same period"),
    ("once_per", "slots", "several holders could run at once in the same period"),
    ("restart", "once_per", "a standby runs its command whenever it acquires the lock"),
    ("fence", "on_unavailable", "without a lock there is no fencing token"),
    ("fence", "shared", "each reader would make the resource refuse the tokens of earlier ones: give --fence none"),
    ("fence", "slots", "each holder would make the resource refuse the tokens of earlier holders"),
    ("contain", "leftover", "all processes in the pid namespace of a job end with it"),
    ("restart", "on_unavailable", "if the backend is not reachable, two standbys would both run"),
)
LONGEST_KEY = 64  # characters
MOST_IN_LABELS = 400  # bytes of all labels as JSON: the room of a holder and of a run in the history has an end
# values that ask for nothing
NEUTRAL: dict[str, tuple[object, ...]] = {
    "slots": (1,),
    "on_unavailable": ("fail",),
    "contain": ("no",),
    "fence": (NO_FENCE,),
    "leftover": ("kill", "wait"),
}


def asks(name: str, content: object) -> bool:
    """Whether this value of a setting of ``CONTRADICTIONS`` asks for anything."""
    return bool(content) and content not in NEUTRAL.get(name, ())


def check(setting: Setting, text: str) -> object:
    """The value that *text* means for this setting; raises ``ValueError`` with one line."""
    checks: dict[str, Callable[[str], object]] = {
        kinds.DURATION: parse_duration,
        kinds.SPAN: parse_span,
        kinds.COUNT: parse_slots,
        kinds.WAIT: parse_wait,
        kinds.SIGNAL: parse_signal,
        kinds.NAME: check_name,
        kinds.FLAG: parse_flag,
        kinds.TEXT: _not_empty,
        kinds.FILE: _not_empty,
        kinds.LABELS: parse_labels,
        kinds.PATTERNS: parse_patterns,
    }
    if setting.kind == kinds.CHOICE:
        if text not in setting.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(setting.choices)}")
        return text
    if setting.kind == kinds.NUMBER:
        return parse_exit_code(text)
    return checks[setting.kind](text)


def check_in_file(setting: Setting, text: str) -> object:
    """As :func:`check`, for the configuration, in which a resource is the same wherever a run is started."""
    content = check(setting, text)
    if setting.name == "fence" and asks("fence", text) and not text.startswith("/") and "://" not in text:
        # without the words themselves: they may have a password
        raise ValueError(
            "must be an absolute path, or a URL such as redis://redis.example/0: a relative path names another"
            " resource in each directory"
        )
    return content


def parse_exit_code(text: str) -> int:
    """An exit status; raises ``ValueError`` for one that a shell would not see as it is."""
    if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > 255:
        raise ValueError(f"{text[:30]!r} is not an exit status: 0 to 255")
    return int(text)


def parse_span(text: str) -> float | None:
    """A span of at least a second, which the coarsest clock of a store can tell apart; 0 is none at all.

    Raises ``ValueError``.
    """
    span = parse_duration(text)
    if 0 < span < 1:
        raise ValueError(f"{text!r} is too short: at least 1s")
    return span or None


def parse_slots(text: str) -> int:
    """How many may hold a lock at once; raises ``ValueError``."""
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= MOST_SLOTS:
        raise ValueError(f"{text[:30]!r} is not a number of slots: 1 to {MOST_SLOTS}")
    return int(text)


def parse_flag(text: str) -> bool:
    """A yes or no, as a variable or a config file has it."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(f"{text!r} is not one of true, false")
    return words[text.lower()]


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Labels, each ``KEY=VALUE`` on a line; the last one of a key counts. Raises ``ValueError``."""
    labels: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        key, equals, content = line.partition("=")
        if not equals or not is_name(key) or len(key) > LONGEST_KEY:
            raise ValueError(
                f"{line[:60]!r} is not a label: it must be KEY=VALUE, with a key of letters, digits and ._:@+-"
            )
        if not content.isprintable():
            raise ValueError(f"{line[:60]!r} is not a label: its value must be printable text, in UTF-8")
        labels[key] = content
    size = sum(len(json_string(part)) + 1 for pair in labels.items() for part in pair)
    if size > MOST_IN_LABELS:
        raise ValueError(f"the labels have {size} bytes: at most {MOST_IN_LABELS} are allowed")
    return tuple(labels.items())


def parse_patterns(text: str) -> tuple[str, ...]:
    """Regular expressions, one on each line; raises ``ValueError``."""
    import re

    patterns = tuple(filter(None, text.split("\n")))
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as wrong:
            raise ValueError(f"{pattern[:60]!r} is not a regular expression: {wrong}") from None
    return patterns


def shown(setting: Setting, content: Any) -> str:
    """A value as a user would write it."""
    if content is None:
        return "0" if setting.kind == kinds.SPAN else ""
    if isinstance(content, bool):
        return "true" if content else "false"
    if setting.kind in (kinds.DURATION, kinds.SPAN, kinds.WAIT) and isinstance(content, float):
        return format_duration(content)
    if setting.kind in REPEATED:
        return "\n".join("=".join(each) if isinstance(each, tuple) else each for each in content)
    if setting.kind == kinds.SIGNAL:
        for name, number in NAMES.items():
            if number == content:
                return name
    return str(content)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text
