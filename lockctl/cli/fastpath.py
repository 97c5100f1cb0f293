"""Reading the words of ``run`` without click, whose import costs more than all the rest of the start.

It reads what it is sure of. Anything unusual (help, a mistake, an abbreviation) it leaves to click,
which reads the same table of settings; a test holds the two to the same answers.
"""

from __future__ import annotations

from lockctl.settings import REPEATED, SETTINGS

LOCK_FLAGS = ("-l", "--lock")
BY_FLAG = {flag: setting for setting in SETTINGS for flag in setting.flags}


def read(words: list[str]) -> tuple[dict[str, str | bool], tuple[str, ...], tuple[str, ...]] | None:
    """(settings as given, the command, locks named after the first), or ``None``: let click read it."""
    given: dict[str, str | bool] = {}
    more_locks: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            position -= 1
            break
        flag, value = split(word)
        setting = BY_FLAG.get(flag)
        another_lock = flag in LOCK_FLAGS and "lock" in given
        again = setting is not None and setting.name in given
        if setting is None or (again and not another_lock and setting.kind not in REPEATED):
            return None
        if not setting.takes_value:
            if value is not None:
                return None
            given[setting.name] = True
            continue
        if value is None:
            if position == len(words):
                return None
            value = words[position]
            position += 1
        if another_lock:
            more_locks.append(value)
        elif again:
            given[setting.name] = f"{given[setting.name]}\n{value}"
        else:
            given[setting.name] = value
    command = tuple(words[position:])
    return (given, command, tuple(more_locks)) if command else None


def split(word: str) -> tuple[str, str | None]:
    """``--ttl=5s`` and ``-t5s`` into flag and value; clusters of short flags are left to click."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag, value if equals else None
    return word[:2], word[2:] or None
