"""TOML through the standard library (``tomli`` before Python 3.11), and the line that a key stands on."""

from __future__ import annotations

import sys

from lockctl.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parse(name: str, text: str) -> dict[str, Any]:
    """The tables of a file; raises ``ConfigError`` with file and line."""
    try:
        return tomllib.loads(text)
    except ValueError as wrong:  # a TOMLDecodeError, or what int() says of thousands of digits
        reason = wrong if isinstance(wrong, tomllib.TOMLDecodeError) else "a number is too long"
        raise ConfigError(f"{name}: not valid TOML: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{name}: not valid TOML: nested too deeply") from None


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The number of the first line that sets *path* or something below it; ``None`` if none does alone."""
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            content = tomllib.loads(line)
        except (ValueError, RecursionError):
            # the first line of a value that goes on
            try:
                content = tomllib.loads(line.partition("=")[0] + "= 0")
            except (ValueError, RecursionError):
                continue
        found = _first_path(content)
        if line.lstrip().startswith("["):
            header = found
            whole = found
        else:
            whole = header + found
        if found and whole[: len(path)] == path:
            return number
    return None


def _first_path(content: object) -> tuple[str, ...]:
    path: tuple[str, ...] = ()
    while isinstance(content, dict) and content:
        key = next(iter(content))
        path = (*path, key)
        content = content[key]
    while isinstance(content, list) and content:
        content = content[0]
    return path
