"""Effective settings, each with its source: flag, variable, ``[locks."GLOB"]``, ``[defaults]``, built-in."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError, UsageError
from lockctl.names import printable
from lockctl.registry import SCHEMES
from lockctl.settings import BY_NAME, FLAG, SETTINGS, check
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lockctl.config_file import ConfigFile

SYSTEM_CONFIG = "/etc/lockctl/config.toml"
SYSTEM_DIRECTORY = "/var/lib/lockctl"


class Effective(Value):
    """One setting as it counts, and where it came from."""

    name: str
    content: Any
    source: str


def config_path(explicit: str | None, environ: Mapping[str, str]) -> str | None:
    """The file that counts: the first that exists, or the one that was asked for, existing or not."""
    asked = explicit or environ.get("LOCKCTL_CONFIG")
    if asked:
        return asked
    home = environ.get("XDG_CONFIG_HOME") or (environ["HOME"] + "/.config" if environ.get("HOME") else "")
    for path in (home + "/lockctl/config.toml" if home.startswith("/") else "", SYSTEM_CONFIG):
        if path and os.path.exists(path):
            return path
    return None


def read_config(path: str | None) -> ConfigFile | None:
    """The file at *path*, read and checked, if there is one; raises ``ConfigError`` with file, key and line."""
    if path is None:
        return None
    from lockctl import config_file  # most runs have no file

    return config_file.read(path)


def resolve(
    flags: Mapping[str, str | bool],
    environ: Mapping[str, str],
    file: ConfigFile | None,
    lock: str | None,
) -> dict[str, Effective]:
    """Every setting as it counts for this lock. Raises ``UsageError`` for a flag, else ``ConfigError``."""
    inside = "LOCKCTL_OWNER" in environ
    found = {}
    for setting in SETTINGS:
        name = setting.name
        if name in flags:
            found[name] = Effective(name, _from_flag(name, flags[name]), setting.flags[-1])
            continue
        written = environ.get(setting.variable) if setting.in_config else None
        if written and not (inside and _is_output(setting.variable, written)):
            found[name] = Effective(name, _from_variable(name, written), "$" + setting.variable)
            continue
        found[name] = _from_file(name, file, lock) or _built_in(name)
    if found["no_wait"].content:
        found["wait"] = Effective("wait", 0.0, "--no-wait")
    return found


def backend_url(backend: Effective, environ: Mapping[str, str], file: ConfigFile | None) -> str:
    """The URL that the backend setting means; raises ``ConfigError`` for an unknown profile."""
    word = backend.content
    if word is None:
        outer = environ.get("LOCKCTL_BACKEND", "")
        if "LOCKCTL_OWNER" in environ and outer in SCHEMES and outer != "file":
            message = (
                f"this is inside a job that is locked on {printable(outer)}, and no backend is configured here:"
                " say --backend, or file: if local files are meant"
            )
            raise ConfigError(message)
        return default_url(environ)
    profiles = file.tables.get("backends", {}) if file else {}
    if word in profiles:
        word = str(profiles[word]["url"])
    elif ":" not in word:
        known = ", ".join(sorted(profiles)) or "none are configured"
        message = f"{backend.source}: no backend profile {printable(word)!r} ({known}), and it is not a URL"
        raise ConfigError(message)
    return default_url(environ) if word in ("file:", "file://") else word


def default_url(environ: Mapping[str, str]) -> str:
    """The files of this user on this host."""
    if os.geteuid() == 0:
        return "file://" + SYSTEM_DIRECTORY
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise ConfigError("neither HOME nor XDG_STATE_HOME is set: say where the locks live with --backend")
        state = home + "/.local/state"
    return "file://" + (state + "/lockctl").replace("%", "%25").replace("?", "%3f")


def _is_output(variable: str, written: str) -> bool:
    """Inside a job these are what the outer run told its command, not what the user asked for."""
    if variable == "LOCKCTL_TTL":
        return written.replace(".", "", 1).isdigit()
    return variable == "LOCKCTL_BACKEND" and written in SCHEMES


def _from_flag(name: str, written: str | bool) -> object:  # noqa: FBT001 - a flag as it was given
    if isinstance(written, bool):
        return written
    try:
        return check(BY_NAME[name], written)
    except ValueError as wrong:
        message = f"{BY_NAME[name].flags[-1]}: {printable(str(wrong))}"
        raise UsageError(message) from None


def _from_variable(name: str, written: str) -> object:
    try:
        return check(BY_NAME[name], written)
    except ValueError as wrong:
        message = f"${BY_NAME[name].variable}: {printable(str(wrong))}"
        raise ConfigError(message) from None


def _from_file(name: str, file: ConfigFile | None, lock: str | None) -> Effective | None:
    if file is None or not BY_NAME[name].in_config:
        return None
    from lockctl import config_file

    found = None
    if name in file.tables.get("defaults", {}):
        found = Effective(name, config_file.check_entry(file, ("defaults",), name), f"{file.path} [defaults]")
    if lock is not None and "locks" in file.tables:
        from fnmatch import fnmatchcase

        for pattern, table in file.tables["locks"].items():
            if name in table and fnmatchcase(lock, pattern):
                content = config_file.check_entry(file, ("locks", pattern), name)
                found = Effective(name, content, f'{file.path} [locks."{pattern}"]')
    return found


def _built_in(name: str) -> Effective:
    setting = BY_NAME[name]
    if setting.kind == FLAG:
        content: object = False
    else:
        content = check(setting, setting.default) if setting.default else None
    return Effective(name, content, "built-in")
