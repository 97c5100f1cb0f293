"""In the process that was forked for it: become a daemon, apart from the session that started it, and hold the lock."""

from __future__ import annotations

import _signal
import os
from typing import TYPE_CHECKING

from lockctl import kernel, secret, url
from lockctl.cli import exit_status, waiting
from lockctl.cli.daemon.command import PLANNED, Task
from lockctl.cli.main import tell_failure
from lockctl.cli.messages import Talk
from lockctl.commanding import DESCRIPTORS
from lockctl.config import config_path, read_config
from lockctl.durations import format_duration
from lockctl.errors import EXHAUSTED, ConfigError, LockctlError
from lockctl.supervise.signals import Signals
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from lockctl.cli.daemon.remains import Remains

# whatever the configuration says of `run`: this run is only the lock, and without the lock there is none
FIXED: dict[str, str | bool] = {
    "skip_ok": False,
    "on_unavailable": "fail",
    "leftover": "kill",
    "signal": "TERM",
    "on_lost": "kill",
    "contain": "no",
    "max_runtime": "0",
    "once_per": "0",
    "restart": False,
}


class Wanted(Value):
    """What the command line of ``acquire`` says beside the settings of ``run``."""

    name: str
    span: float  # seconds
    bound_pid: int  # 0: none
    bound: int  # its descriptor, -1: none
    file: str | None  # where the handle goes
    for_shell: bool


def become_daemon(
    acquirer: int,
    order: Wanted,
    remains: Remains,
    descriptors: tuple[int, int],
    given: Mapping[str, str | bool],
    environ: Mapping[str, str],
) -> NoReturn:
    """In the child: take the lock and hold it. *descriptors*: of the log, and of the way back to *acquirer*."""
    status = exit_status.BUG
    log, link = descriptors
    try:
        os.setsid()
        _signal.signal(_signal.SIGHUP, _signal.SIG_DFL)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        kernel.set_death_signal(_signal.SIGHUP)  # ends it while it waits for the lock; later its command ignores it
        if os.getppid() != acquirer:
            os._exit(status)
        status = _hold(order, remains, log, link, given, environ)
    except BaseException as failure:  # noqa: BLE001 - nothing may go back into the caller's half of the program
        talk = Talk()
        status = tell_failure(failure, talk)
        talk.finish()
    finally:
        os._exit(status)


def _hold(
    order: Wanted,
    remains: Remains,
    log: int,
    link: int,
    given: Mapping[str, str | bool],
    environ: Mapping[str, str],
) -> int:
    settings, variables = dict(given), dict(environ)
    for mapping, name in ((settings, "config"), (variables, "LOCKCTL_CONFIG")):
        if mapping.get(name):
            mapping[name] = url.whole_path(str(mapping[name]), ConfigError)
    _read_configuration(config_path(str(settings.get("config", "")), variables))
    url.started_in = _directory()
    waiting.columns_of_reader = waiting.screen_columns()
    os.chdir("/")
    _read_passwords(str(settings.get("backend", "")), variables.get("LOCKCTL_BACKEND", ""))
    _keep_only(log, [descriptor for descriptor in (link, order.bound) if descriptor >= 0])
    task = Task(remains.stem, order.span, order.bound, link)
    binding = ("--bind-pid", str(order.bound_pid)) if order.bound_pid else ()
    shown = ("lockctl", "acquire", order.name, "--for", format_duration(order.span), *binding)
    kernel.set_process_name("lockctl", " ".join(shown))  # the words of `acquire` may have a URL with a password
    settings.update(FIXED, lock=order.name, report=remains.path(".end"))
    from lockctl.cli.start import execute
    from lockctl.supervise import guard, starting  # noqa: F401 - what is wrong with one, this process can tell

    return execute(settings, task.words(), variables, Signals(), shown=shown, ends=PLANNED)


def _read_passwords(*backends: str) -> None:
    """Read what these URLs have read from a descriptor, which is closed next (``password_file=/dev/fd/3``).

    Raises ``ConfigError``.
    """
    for text in backends:
        try:
            params = url.parse_url(text).params
        except LockctlError:
            continue  # the name of a profile, or what is refused when it is used
        for name, content in params:
            if name.endswith("_file") and content.startswith(DESCRIPTORS):
                secret.from_file(content, name)


def _read_configuration(path: str | None) -> None:
    """Read a configuration that is on a descriptor, which is closed next. Raises ``ConfigError``."""
    if path is not None and path.startswith(DESCRIPTORS):
        read_config(path)


def _keep_only(log: int, inherited: list[int]) -> None:
    """Keep *log* as stdout and stderr, what the command inherits, and nothing else of who started us."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
    except OSError as failure:
        if failure.errno in EXHAUSTED:
            raise
        raise ConfigError(f"cannot open {os.devnull}: {failure.strerror}") from None
    for number, descriptor in enumerate((nothing, nothing, log)):
        os.dup2(descriptor, number)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) not in inherited:
            _close(int(entry))
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return ""


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return
