"""What a configuration comes to: whether each profile can be opened, and a run under each lock begin."""

from __future__ import annotations

import contextlib
from functools import partial

from lockctl import config, registry
from lockctl.cli import here
from lockctl.cli.crontab import check_effective
from lockctl.cli.run import check_pairs
from lockctl.config_file import ConfigFile, at
from lockctl.errors import ConfigError, LockctlError
from lockctl.password import from_variable
from lockctl.profiles import profile_url
from lockctl.settings import PASSWORD
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lockctl.url import Url

    Variables = Mapping[str, str]
    Found = tuple[dict[str, LockctlError], list[str]]  # mistakes, and what is right where the password is

ANY = "-"  # in place of a password that is not known here; it is sent nowhere
ANY_LOCK = "any"  # one to which no table of [locks] belongs


def in_effect(file: ConfigFile | None, backend: str | None, environ: Variables) -> tuple[list[LockctlError], list[str]]:
    """What is wrong, each mistake once; and what lacks a password here, which the variable may have elsewhere.

    *backend* is what the option says.
    """
    profiles, doubts = _in_profiles(file, environ)
    given: dict[str, str | bool] = {} if backend is None else {"backend": backend}
    locks, more = _in_locks(file, given, environ, profiles)
    return [*locks.values(), *profiles.values()], [*more, *doubts]


def _in_profiles(file: ConfigFile | None, environ: Variables) -> Found:
    """By the names of profiles."""
    found: dict[str, LockctlError] = {}
    doubts = list[str]()
    if file is None:
        return found, doubts
    for name in file.tables.get("backends", {}):
        try:
            missing = _check_profile(file, name, environ)
        except LockctlError as wrong:
            found[name] = wrong
        else:
            if missing is not None:
                doubts.append(_doubt(str(missing)))
    return found, doubts


def _in_locks(
    file: ConfigFile | None, given: dict[str, str | bool], environ: Variables, wrong: Collection[str]
) -> Found:
    """With the settings as they count for each lock; not what is so with a profile, of which some are *wrong*."""
    patterns = [] if file is None else list(file.tables.get("locks", {}))
    profiles = {} if file is None else file.tables.get("backends", {})
    found: dict[str, LockctlError] = {}
    doubts = []
    for lock in (None, *patterns):  # a pattern stands for the locks that match it
        try:
            settings = config.resolve(given, environ, file, lock)
            if settings["backend"].content in wrong:  # which leases it allows is not known
                check_pairs(settings)
                continue
            missing = _tried(partial(check_effective, (lock or ANY_LOCK,), settings, file), environ)
        except LockctlError as mistake:
            found.setdefault(str(mistake), mistake)
        else:
            if missing is not None and settings["backend"].content not in profiles:
                doubts.append(_doubt(str(missing)))
    return found, list(dict.fromkeys(doubts))


def _check_profile(file: ConfigFile, name: str, environ: Variables) -> ConfigError | None:
    """What its password is missed for, if that is all. Raises ``ConfigError`` with file, key and line, as that is."""
    url = replace(profile_url(file, name), source="")  # the line is said here

    def placed(wrong: ConfigError) -> ConfigError:
        said = str(wrong)
        key = next((key for key in file.tables["backends"][name] if said.startswith((f"{key} ", f"{key}: "))), "url")
        return at(file, ("backends", name), key, said.removeprefix(key).removeprefix(":").lstrip())

    try:
        missing = _tried(lambda variables: _open(from_variable(url, variables)), environ)
    except ConfigError as wrong:
        raise placed(wrong) from None
    return missing and placed(missing)


def _open(url: Url) -> None:
    with contextlib.closing(registry.open_backend(url)) as backend:
        here.check_backend(url, backend)


def _tried(step: Callable[[Variables], None], environ: Variables) -> ConfigError | None:
    """Take a step with these variables, or with any password if all it lacks is one: then what was said of that.

    Raises as the step does.
    """
    try:
        step(environ)
    except ConfigError as wrong:
        if not wrong.wants_password or PASSWORD in environ:
            raise
        step({**environ, PASSWORD: ANY})
        return wrong
    return None


def _doubt(missing: str) -> str:
    return f"{missing}; this works only where ${PASSWORD} is set"
