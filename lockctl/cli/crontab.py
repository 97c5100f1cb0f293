"""A line for a crontab: with absolute paths, checked as cron will run it, which knows nothing of this shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from lockctl import config, runner
from lockctl.cli import campaign, here, log
from lockctl.cli.run import check_places, request_of, use
from lockctl.cli.start import lock_names
from lockctl.doctor import installation
from lockctl.errors import ConfigError, UsageError
from lockctl.names import derived_name, printable
from lockctl.settings import BY_NAME, FILE
from lockctl.settings_values import asks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lockctl.config import Effective
    from lockctl.config_file import ConfigFile

FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))  # minute, hour, day of the month, month, day of the week
WORDS = ("jan feb mar apr may jun jul aug sep oct nov dec", "sun mon tue wed thu fri sat")
NICKNAMES = ("@reboot", "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
PART = re.compile(r"(?:\*|([0-9a-z]{1,9})-([0-9a-z]{1,9}))(?:/[1-9]\d?)?|([0-9a-z]{1,9})")  # a step needs a range
STABLE = ("/usr/local/bin", "/usr/bin")  # where a link to an environment is: it outlives the environment's next one


def line(
    schedule: str, given: Mapping[str, str | bool], words: Sequence[str], locks: Sequence[str], options: Sequence[str]
) -> str:
    """*schedule*, this program, *options* as they were typed, the command. Raises ``UsageError``, ``ConfigError``."""
    when = " ".join(schedule.split())
    if not _is_schedule(when):
        raise UsageError(f"{printable(schedule)!r} is not a time of crontab(5), such as '*/5 * * * *' or @hourly")
    _check_paths(given)
    command = tuple(words) if given.get("shell") else (_program(words[0]), *words[1:])
    _check_settings(given, lock_names(str(given.get("lock") or derived_name(command)), tuple(locks)))
    text = shlex.join([own_path(), "run", *options, "--", *command])
    if "\n" in text:
        raise UsageError("a line of a crontab cannot have a line break: put the command into a script")
    return f"{when}  {_escaped(text)}"


def _escaped(text: str) -> str:
    r"""The words of a shell as cron must read them: it takes ``%`` for their end, and ``\%`` for a percent sign.

    A backslash before that, or before another one, would be taken for a part of it by one cron or another. All of them
    are within single quotes, which are ended after such a one and begun anew.
    """
    return re.sub(r"\\(?=[\\%])", r"\\''", text).replace("%", r"\%")


def own_path() -> str:
    """Where this program is: as a link that an upgrade leaves alone, if there is one. Raises ``ConfigError``."""
    script = installation.own_path(sys.argv[0])
    if script is None or not os.access(script, os.X_OK):
        what = printable(script or installation.DIRECTORY)
        raise ConfigError(f"{what} is not a program that cron can start: install lockctl")
    home = os.path.expanduser("~/.local/bin")
    candidates = [os.path.join(directory, installation.NAME) for directory in (*STABLE, home)]
    return next((path for path in candidates if os.path.realpath(path) == os.path.realpath(script)), script)


def unseen(environ: Mapping[str, str], given: Mapping[str, str | bool]) -> list[str]:
    """Variables of this shell that mean something for a run with these options: cron does not have them."""
    known = {setting.variable for setting in BY_NAME.values() if setting.in_config and setting.name not in given}
    known |= {"LOCKCTL_PASSWORD", "XDG_CONFIG_HOME", "XDG_STATE_HOME"}
    known |= set() if "config" in given else {"LOCKCTL_CONFIG"}
    return sorted(name for name in known if environ.get(name))


def check_effective(
    locks: tuple[str, ...], settings: Mapping[str, Effective], file: ConfigFile | None, environ: Mapping[str, str]
) -> None:
    """Whether a run under *locks* with these settings could begin. Raises ``ConfigError``, ``UsageError``."""
    url = config.backend_url(settings["backend"], environ, file)
    if settings["restart"].content:
        campaign.check_readable_again(url, file)
    with contextlib.closing(runner.open_backend(request_of(locks, (), settings, url, environ))) as backend:
        here.check_backend(url, backend, locks[0])
    check_places(settings)
    if settings["log"].content is not None:
        use(settings["log"], log.check_place)
    fence = settings["fence"]
    if asks("fence", fence.content):
        try:
            here.check_resource(fence.content)
        except UsageError as wrong:
            raise config.refusal(f"{config.named(fence)}: {wrong}", fence) from None
        except ConfigError as wrong:  # 78 in a run, too, whoever says it
            raise ConfigError(f"{config.named(fence)}: {wrong}") from None


def _check_paths(given: Mapping[str, str | bool]) -> None:
    """Refuse what this shell finds from its working directory: cron has another one. Raises ``UsageError``."""
    for name, content in given.items():
        path = str(content)
        elsewhere = path.startswith("/") or "://" in path or path in log.DAEMONS
        if BY_NAME[name].kind == FILE and asks(name, path) and not elsewhere:
            flag = BY_NAME[name].flags[-1]
            raise UsageError(f"{flag}: {printable(path)}: cron looks for it in another directory: give the whole path")


def _check_settings(given: Mapping[str, str | bool], locks: tuple[str, ...]) -> None:
    """With what cron sets: HOME and nothing of ours."""
    environ = {"HOME": os.path.expanduser("~")}
    file = config.read_config(config.config_path(given.get("config"), environ))
    check_effective(locks, config.resolve(given, environ, file, locks[0]), file, environ)


def _program(word: str) -> str:
    found = shutil.which(word)
    if found is None:
        why = "a line for a shell needs -c" if " " in word else "it is not in the PATH of this shell"
        raise UsageError(f"no command {printable(word)!r}: {why}")
    return os.path.abspath(found)


def _is_schedule(text: str) -> bool:
    fields = text.split() if text.isascii() else []
    if len(fields) == 1:
        return fields[0] in NICKNAMES
    return len(fields) == len(FIELDS) and all(map(_is_field, fields, FIELDS))


def _is_field(text: str, bounds: tuple[int, int]) -> bool:
    low, high = bounds
    names = {12: WORDS[0].split(), 7: WORDS[1].split()}.get(high, [])
    for part in text.lower().split(","):
        found = PART.fullmatch(part)
        if not found:
            return False
        ends = [names.index(end) + low if end in names else end for end in found.groups() if end]
        if not all(str(end).isdecimal() and low <= int(end) <= high for end in ends):
            return False
        if len(ends) == 2 and int(ends[0]) > int(ends[1]):  # cron takes it, and never runs it; sun is 0
            return False
    return True
