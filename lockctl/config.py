"""Effective settings, each with its source: flag, variable, ``[locks."GLOB"]``, ``[defaults]``, built-in."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError, LockctlError, UsageError
from lockctl.names import did_you_mean, printable, token_domain
from lockctl.registry import SCHEMES
from lockctl.settings import BY_NAME, FLAG, PASSWORD, SETTINGS
from lockctl.settings_values import check
from lockctl.url import Url, parse_url
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lockctl.config_file import ConfigFile

# what lockctl reads from its environment, and what it gives to commands
VARIABLES = {setting.variable for setting in SETTINGS if setting.in_config} | {
    "LOCKCTL_" + word
    for word in (
        *("CONFIG", "PASSWORD", "STANDBY", "HANDLE"),
        *("LOCK", "TOKEN", "TOKENS", "TOKEN_DOMAIN", "FENCING", "OWNER", "BACKEND", "TTL"),
    )
}
BUILT_IN = "built-in"
SYSTEM_CONFIG = "/etc/lockctl/config.toml"
SYSTEM_DIRECTORY = "/var/lib/lockctl"


class Effective(Value):
    """One setting as it counts, and where it came from."""

    name: str
    content: Any
    source: str


def refusal(why: str, *settings: Effective) -> LockctlError:
    """The error for *settings* that cannot be used: wrong usage if an option said one of them, else configuration."""
    by_option = any(setting.source.startswith("-") for setting in settings)
    return (UsageError if by_option else ConfigError)(why)


def named(setting: Effective) -> str:
    """Where a setting is: its option, its variable, or file, table and key."""
    return setting.source if setting.source.startswith(("-", "$")) else f"{printable(setting.source)} {setting.name}"


def config_path(explicit: str | bool | None, environ: Mapping[str, str]) -> str | None:  # noqa: FBT001 - an option
    """The file that counts: the first that exists, or the one that was asked for, existing or not.

    Raises ``ConfigError`` where that cannot be seen: what cannot be looked at may have been meant to count.
    """
    asked = explicit or environ.get("LOCKCTL_CONFIG")
    if asked:
        return str(asked)
    home = environ.get("XDG_CONFIG_HOME") or (environ["HOME"] + "/.config" if environ.get("HOME") else "")
    for path in (home + "/lockctl/config.toml" if home.startswith("/") else "", SYSTEM_CONFIG):
        if path and _exists(path):
            return path
    return None


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.islink(path)  # to a place that is not there now
    except OSError as failure:
        message = f"{printable(path)}: cannot look for a configuration: {failure.strerror}; give --config, or set HOME"
        raise ConfigError(message) from failure
    return True


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
    found = {setting.name: effective(setting.name, flags, environ, file, lock) for setting in SETTINGS}
    if found["no_wait"].content:
        found["wait"] = Effective("wait", 0.0, "--no-wait")
    elif found["restart"].content and found["wait"].source == BUILT_IN:
        found["wait"] = Effective("wait", float("inf"), found["restart"].source)
    return found


def effective(
    name: str, flags: Mapping[str, str | bool], environ: Mapping[str, str], file: ConfigFile | None, lock: str | None
) -> Effective:
    """One setting as :func:`resolve` has it, before others change it. Raises as it does."""
    setting = BY_NAME[name]
    if name in flags:
        return Effective(name, _from_flag(name, flags[name]), setting.flags[-1])
    written = environ.get(setting.variable) if setting.in_config else None
    if written and not is_output(setting.variable, environ):
        return Effective(name, _from_variable(name, written), "$" + setting.variable)
    return _from_file(name, file, lock) or _built_in(name)


def backend_url(backend: Effective, environ: Mapping[str, str], file: ConfigFile | None) -> Url:
    """The URL that the backend setting means, with the password of ``$LOCKCTL_PASSWORD`` if it takes that.

    Raises ``ConfigError`` for an unknown profile, for what is not a URL, and for a password that is no text.
    """
    word = backend.content
    if word is None:
        outer = environ.get("LOCKCTL_BACKEND", "") if "LOCKCTL_OWNER" in environ else ""
        url = parse_url(default_url(environ))
        if outer in SCHEMES and (outer != "file" or environ.get("LOCKCTL_TOKEN_DOMAIN") != _domain(url)):
            where = f"in another directory than {url}" if outer == "file" else f"of {outer}"
            raise ConfigError(
                f"this job runs under a lock {where}, and no backend is configured here:"
                f" give --backend, or file: for {'that directory' if outer == 'file' else 'local files'}"
            )
        return url
    profiles = file.tables.get("backends", {}) if file else {}
    if file is not None and word in profiles:
        from lockctl.profiles import profile_url  # most runs name a URL, or files are meant

        url = profile_url(file, word)
    elif ":" not in word:
        known = f"configured: {', '.join(sorted(profiles))}" if profiles else "none is configured"
        shown = printable(word.rpartition("@")[2])  # it may be a URL with a password, and a mistake in it
        meant = did_you_mean(shown, profiles)
        raise ConfigError(f"{named(backend)}: {shown!r} is neither a URL nor a backend profile ({known}){meant}")
    else:
        source = named(backend) + ": "
        try:
            url = parse_url(default_url(environ) if word in ("file:", "file://") else word)
        except ConfigError as wrong:
            raise ConfigError(source + str(wrong)) from None
        url = replace(url, source=source)
    if PASSWORD in environ:
        from lockctl.password import from_variable  # most runs need no password

        url = from_variable(url, environ)
    return url


def unknown_variables(environ: Mapping[str, str]) -> str | None:
    """What to tell a user who has set variables that look like ours and mean nothing; else ``None``."""
    unknown = [name for name in environ if name.startswith("LOCKCTL_") and name not in VARIABLES]
    if not unknown:
        return None
    names = ", ".join("$" + printable(name) for name in sorted(unknown))
    return f"{names}: no such setting of lockctl{did_you_mean(unknown[0], VARIABLES)}"


def apart_from_root(backend: Effective, lock: str) -> str | None:
    """What to tell a user whose lock is in a directory of their own, while root has one of that name; else ``None``."""
    if backend.content is not None or os.geteuid() == 0:
        return None
    try:
        os.stat(f"{SYSTEM_DIRECTORY}/{lock}")
    except OSError:
        return None
    return (
        f"this lock belongs to this user alone: root's lock {lock} in {SYSTEM_DIRECTORY} is a different one, and both"
        " can be held at once. To share a lock, give the same --backend to both"
    )


def _domain(url: Url) -> str:
    """What a run with its lock files at this URL tells its command as LOCKCTL_TOKEN_DOMAIN."""
    return token_domain(f"file:{os.uname().nodename}:{url.path.rstrip('/') or '/'}")


def default_url(environ: Mapping[str, str]) -> str:
    """The files of this user on this host."""
    if os.geteuid() == 0:
        return "file://" + SYSTEM_DIRECTORY
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise ConfigError(
                "neither HOME nor XDG_STATE_HOME is an absolute path: give the location of the locks with --backend"
            )
        state = home + "/.local/state"
    return "file://" + (state + "/lockctl").replace("%", "%25").replace("?", "%3f")


def is_output(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether, inside a job, it has what the outer run told its command, and not what the user asked for."""
    written = environ.get(variable)
    if written is None or "LOCKCTL_OWNER" not in environ:
        return False
    if variable == "LOCKCTL_TTL":
        return written.replace(".", "", 1).isdigit()
    return variable == "LOCKCTL_BACKEND" and written in SCHEMES


def _from_flag(name: str, written: str | bool) -> object:  # noqa: FBT001 - a flag as it was given
    if isinstance(written, bool):
        return written
    try:
        return check(BY_NAME[name], written)
    except ValueError as wrong:
        raise UsageError(f"{BY_NAME[name].flags[-1]}: {printable(str(wrong))}") from None


def _from_variable(name: str, written: str) -> object:
    try:
        return check(BY_NAME[name], written)
    except ValueError as wrong:
        raise ConfigError(f"${BY_NAME[name].variable}: {printable(str(wrong))}") from None


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
    return Effective(name, content, BUILT_IN)
