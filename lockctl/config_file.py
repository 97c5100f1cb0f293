"""The configuration file: read whole, every key and every value checked, mistakes named by line."""

from __future__ import annotations

import os
import select
import stat
from typing import Any

from lockctl import toml
from lockctl.clock import monotonic
from lockctl.commanding import DESCRIPTORS, check_owner, is_pipe
from lockctl.errors import ConfigError
from lockctl.names import did_you_mean, printable
from lockctl.settings import BY_NAME, COUNT, DURATION, FLAG, NUMBER, REPEATED, SETTINGS, SIGNAL, SPAN, WAIT
from lockctl.settings_values import CONTRADICTIONS, asks, check_in_file
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

TABLES = ("defaults", "locks", "backends")
LARGEST = 1 << 18  # bytes: a larger file is no configuration
LONGEST = 1 << 13  # characters of a line: the time for a key with dots grows with the square of their number
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what some editors put first
TYPES: dict[str, tuple[tuple[type, ...], str]] = {  # of a kind of setting, if it is no string; and in words
    FLAG: ((bool,), "true or false"),
    SIGNAL: ((str, int), "a name or number of a signal"),
    **dict.fromkeys((NUMBER, COUNT), ((int,), "a whole number")),
    **dict.fromkeys((DURATION, SPAN, WAIT), ((str, int, float), "a duration")),
    **dict.fromkeys(REPEATED, ((str, list), "a string")),
}
SECRET_FILES = ("password_file", "token_file", "creds", "nkey")  # how the names of settings for secret files end
LIMIT = 10.0  # seconds for what a FIFO or a terminal is to give


class ConfigFile(Value):
    """A configuration file that was read and found right."""

    path: str
    text: str
    tables: dict[str, Any]


_given: dict[str, ConfigFile | ConfigError] = {}  # by path: a pipe gives it once, and a daemon closes descriptors


def read(path: str) -> ConfigFile:
    """Read and check a whole file; raises ``ConfigError`` with file, key and line."""
    found = _given.get(path)
    if found is None:
        found = _checked(path)
        if path.startswith(DESCRIPTORS) or is_pipe(path):
            _given[path] = found
    if isinstance(found, ConfigError):
        raise found
    return found


def _checked(path: str) -> ConfigFile | ConfigError:
    try:
        file = parse(path)
    except ConfigError as wrong:
        return wrong
    return next(mistakes(file), file)


def parse(path: str) -> ConfigFile:
    """Read a whole file, which may have mistakes; raises ``ConfigError`` for what is no such file at all."""
    name = printable(path)
    try:
        # a FIFO that nobody writes to must not hold us up: signals wait to be read, and would not end it
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            check_owner(name, os.fstat(descriptor), "the configuration", "change its owner, or give --config")
            data = _whole(descriptor)
        finally:
            os.close(descriptor)
    except OSError as failure:
        raise ConfigError(f"{name}: cannot read the configuration: {failure.strerror}") from failure
    if data is None:
        raise ConfigError(f"{name}: cannot read the configuration: no end of file within {LIMIT:g} s")
    if len(data) > LARGEST:
        raise ConfigError(f"{name}: larger than {LARGEST} bytes: this is not a configuration of lockctl")
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise ConfigError(f"{name}:{line}: not UTF-8 text: this is not a configuration of lockctl") from failure
    for number, written in enumerate(text.splitlines(), 1):
        if len(written) > LONGEST:
            message = f"{name}:{number}: longer than {LONGEST} characters: this is not a configuration of lockctl"
            raise ConfigError(message)
    return ConfigFile(path, text, toml.parse(name, text))


def _whole(descriptor: int) -> bytes | None:
    """All that is there to read, or a little more than a configuration has; ``None`` if that takes too long."""
    until = monotonic() + LIMIT
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data = b""
    while len(data) <= LARGEST:
        left = until - monotonic()
        if left <= 0:
            return None
        if poll.poll(left * 1000 + 1):
            piece = os.read(descriptor, LARGEST + 1)
            if not piece:
                break
            data += piece
    return data


def readable_secrets(file: ConfigFile) -> list[str]:
    """For each password that everybody on this host can read: where, and what to do."""
    from lockctl.url import parse_url

    def everybody_reads(path: str) -> bool:
        try:
            return bool(os.stat(path).st_mode & stat.S_IROTH)
        except OSError:
            return False  # said when it is needed

    said = []
    open_file = everybody_reads(file.path)
    settings: list[tuple[tuple[str, ...], dict[str, Any]]] = [(("defaults",), file.tables.get("defaults", {}))]
    settings += [(("locks", pattern), table) for pattern, table in file.tables.get("locks", {}).items()]
    urls = [(place, key, table) for place, table in settings for key in ("backend", "fence")]
    urls += [(("backends", name), "url", table) for name, table in file.tables.get("backends", {}).items()]
    for table, key, content in urls:
        written = str(content.get(key, ""))
        # the words of a fence without these are a path, in which a colon is a letter like others
        url = parse_url(written) if ("://" if key == "fence" else ":") in written else None
        if open_file:
            found = "password" if "password" in content else key if url is not None and url.password else ""
            if found:
                said.append(str(at(file, table, found, "every user can read this password: chmod go-r the file")))
        in_url = dict(url.params) if url is not None else {}
        for name, path in {**in_url, **content}.items():  # whosever password it is
            if name.endswith(SECRET_FILES) and everybody_reads(str(path)):
                said.append(str(at(file, table, name if name in content else key, f"every user can read {path}")))
    return said


def check_entry(file: ConfigFile, table: tuple[str, ...], key: str) -> object:
    """The value of one entry of a table of settings; raises ``ConfigError`` with file, key and line."""
    content: Any = file.tables
    for part in table:
        content = content[part]
    content = content[key]
    setting = BY_NAME[key]
    types, wanted = TYPES.get(setting.kind, ((str,), "a string"))
    if isinstance(content, bool) != (setting.kind == FLAG) or not isinstance(content, types):
        raise at(file, table, key, f"must be {wanted}")
    if isinstance(content, list):
        if not all(isinstance(each, str) and each and "\n" not in each for each in content):
            raise at(file, table, key, "must be a string or a list of strings")
        content = "\n".join(content)
    try:
        return check_in_file(setting, str(content).lower() if isinstance(content, bool) else str(content))
    except ValueError as wrong:
        raise at(file, table, key, printable(str(wrong))) from None


def mistakes(file: ConfigFile) -> Iterator[ConfigError]:
    """Whatever is wrong with any key or value, also of locks that are not asked for now: a typo shows at once."""
    for table, content in file.tables.items():
        if table in TABLES and not isinstance(content, dict):
            yield at(file, (), table, "must be a table, and neither a value nor a list of tables")
        elif table not in TABLES:
            yield at(file, (), table, f"unknown table; there are: {', '.join(TABLES)}{did_you_mean(table, TABLES)}")
    tables = {table: content for table, content in file.tables.items() if isinstance(content, dict)}
    defaults = tables.get("defaults", {})
    sound = yield from _in_settings(file, ("defaults",), defaults)
    if sound:
        yield from _in_pairs(file, ("defaults",), defaults, {})
    for pattern, content in tables.get("locks", {}).items():
        if not isinstance(content, dict):
            yield at(file, ("locks",), pattern, 'must be a table: [locks."GLOB"]')
        elif (yield from _in_settings(file, ("locks", pattern), content)):
            yield from _in_pairs(file, ("locks", pattern), content, defaults if sound else {})
    for profile, content in tables.get("backends", {}).items():
        yield from _in_profile(file, profile, content)


def _in_profile(file: ConfigFile, profile: str, content: object) -> Iterator[ConfigError]:
    if not isinstance(content, dict):
        yield at(file, ("backends",), profile, "must be a table: [backends.NAME]")
        return
    for key, entry in content.items():
        if not isinstance(entry, (str, int)):
            yield at(file, ("backends", profile), key, "must be a string, a whole number, true or false")
        elif isinstance(entry, str) and "\0" in entry:
            yield at(file, ("backends", profile), key, "must not contain a NUL character")
    if "url" not in content and content:
        first = next(iter(content))
        missing = "this backend has no url: add one, such as file:///var/lib/lockctl"
        yield at(file, ("backends", profile), first, missing)
    elif not isinstance(content.get("url"), str) or ":" not in content["url"]:
        yield at(file, ("backends", profile), "url", "must be a URL, such as file:///var/lib/lockctl")


def _in_settings(
    file: ConfigFile, table: tuple[str, ...], content: dict[str, Any]
) -> Generator[ConfigError, None, bool]:
    """The mistakes in single entries of a table of settings; whether there are none."""
    known = [setting.name for setting in SETTINGS if setting.in_config]
    sound = True
    for key in content:
        try:
            if key not in known:
                raise at(file, table, key, f"unknown key; there are: {', '.join(known)}{did_you_mean(key, known)}")
            check_entry(file, table, key)
        except ConfigError as wrong:
            sound = False
            yield wrong
    return sound


def _in_pairs(
    file: ConfigFile, table: tuple[str, ...], content: dict[str, Any], below: dict[str, Any]
) -> Iterator[ConfigError]:
    """What cannot be together, if the file says both; *below* is the table that counts less."""
    key = "kill_after" if "kill_after" in content else "ttl"
    grace, ttl = (_entry(file, table, name, content, below) for name in ("kill_after", "ttl"))
    if key in content and isinstance(grace, float) and isinstance(ttl, float) and grace >= ttl:
        yield at(file, table, key, "kill_after must be shorter than the ttl")
    for one, other, why in CONTRADICTIONS:
        here = [name for name in (other, one) if name in content]
        if here and all(asks(name, _entry(file, table, name, content, below)) for name in (one, other)):
            yield at(file, table, here[0], f"{one} and {other} contradict each other: {why}")


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
