"""The configuration file: read whole, every key and every value checked, mistakes named by line."""

from __future__ import annotations

from typing import Any

from lockctl import toml
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.settings import (
    BY_NAME,
    CONTRADICTIONS,
    COUNT,
    DURATION,
    FLAG,
    NUMBER,
    SETTINGS,
    SPAN,
    WAIT,
    asks,
    check,
)
from lockctl.value import Value

TABLES = ("defaults", "locks", "backends")
LARGEST = 1 << 20  # bytes: a larger file is no configuration


class ConfigFile(Value):
    """A configuration file that was read and found right."""

    path: str
    text: str
    tables: dict[str, Any]


def read(path: str) -> ConfigFile:
    """Read and check a whole file; raises ``ConfigError`` with file, key and line."""
    name = printable(path)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as failure:
        message = f"{name}: cannot read the configuration: {failure.strerror}"
        raise ConfigError(message) from failure
    if len(data) > LARGEST:
        message = f"{name}: larger than {LARGEST} bytes: this is no configuration of lockctl"
        raise ConfigError(message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        message = f"{name}:{line}: not UTF-8 text: this is no configuration of lockctl"
        raise ConfigError(message) from failure
    file_ = ConfigFile(path, text, toml.parse(name, text))
    _check_tables(file_)
    return file_


def check_entry(file: ConfigFile, table: tuple[str, ...], key: str) -> object:
    """The value of one entry of a table of settings; raises ``ConfigError`` with file, key and line."""
    content: Any = file.tables
    for part in table:
        content = content[part]
    content = content[key]
    setting = BY_NAME[key]
    allowed: dict[str, tuple[type, ...]] = {
        FLAG: (bool,),
        NUMBER: (int,),
        COUNT: (int,),
        **dict.fromkeys((DURATION, SPAN, WAIT), (str, int, float)),
    }
    if isinstance(content, bool) != (setting.kind == FLAG) or not isinstance(
        content, allowed.get(setting.kind, (str,))
    ):
        wanted = {FLAG: "true or false", **dict.fromkeys((NUMBER, COUNT), "a whole number")}
        wanted |= dict.fromkeys((DURATION, SPAN, WAIT), "a duration")
        raise at(file, table, key, f"must be {wanted.get(setting.kind, 'a string')}")
    try:
        return check(setting, str(content).lower() if isinstance(content, bool) else str(content))
    except ValueError as wrong:
        raise at(file, table, key, printable(str(wrong))) from None


def _check_tables(file: ConfigFile) -> None:
    """Every key and every value, also of locks that are not asked for now: a typo shows at once."""
    for table, content in file.tables.items():
        if table not in TABLES or not isinstance(content, dict):
            raise at(file, (), table, f"unknown; there are the tables {', '.join(TABLES)}")
    defaults = file.tables.get("defaults", {})
    _check_settings(file, ("defaults",), defaults)
    for pattern, content in file.tables.get("locks", {}).items():
        if not isinstance(content, dict):
            raise at(file, ("locks",), pattern, 'must be a table: [locks."GLOB"]')
        _check_settings(file, ("locks", pattern), content)
        _check_pairs(file, ("locks", pattern), content, defaults)
    for profile, content in file.tables.get("backends", {}).items():
        if not isinstance(content, dict):
            raise at(file, ("backends",), profile, "must be a table: [backends.NAME]")
        for key, entry in content.items():
            if not isinstance(entry, (str, int)):
                raise at(file, ("backends", profile), key, "must be a string, a whole number, true or false")
            if isinstance(entry, str) and "\0" in entry:
                raise at(file, ("backends", profile), key, "it has a NUL character")
        if "url" not in content and content:
            raise at(file, ("backends", profile), next(iter(content)), "in a backend without url, which must be a URL")
        if not isinstance(content.get("url"), str) or ":" not in content["url"]:
            raise at(file, ("backends", profile), "url", "must be a URL, such as file:///var/lib/lockctl")


def _check_settings(file: ConfigFile, table: tuple[str, ...], content: dict[str, Any]) -> None:
    known = [setting.name for setting in SETTINGS if setting.in_config]
    for key in content:
        if key not in known:
            raise at(file, table, key, f"unknown key; there are: {', '.join(known)}")
        check_entry(file, table, key)
    _check_pairs(file, table, content, {})


def _check_pairs(file: ConfigFile, table: tuple[str, ...], content: dict[str, Any], below: dict[str, Any]) -> None:
    """What cannot be together, if the file says both; *below* is the table that counts less."""
    key = "kill_after" if "kill_after" in content else "ttl"
    grace, ttl = (_entry(file, table, name, content, below) for name in ("kill_after", "ttl"))
    if key in content and isinstance(grace, float) and isinstance(ttl, float) and grace >= ttl:
        raise at(file, table, key, "kill_after must be shorter than the ttl")
    for one, other, why in CONTRADICTIONS:
        here = [name for name in (other, one) if name in content]
        if here and all(asks(name, _entry(file, table, name, content, below)) for name in (one, other)):
            raise at(file, table, here[0], f"{one} and {other} contradict each other: {why}")


def _entry(
    file: ConfigFile, table: tuple[str, ...], key: str, content: dict[str, Any], below: dict[str, Any]
) -> object:
    """The value of an entry, of the table below if this one does not have it, else ``None``."""
    if key in content:
        return check_entry(file, table, key)
    return check_entry(file, ("defaults",), key) if key in below else None


def at(file: ConfigFile, table: tuple[str, ...], key: str, what: str) -> ConfigError:
    """An error at one entry of the file."""
    line = toml.line_of(file.text, (*table, key))
    place = f"{printable(file.path)}:{line}" if line else printable(file.path)
    shown_table = f"[{'.'.join(printable(part) for part in table)}] " if table else ""
    return ConfigError(f"{place}: {shown_table}{printable(key)}: {what}")
