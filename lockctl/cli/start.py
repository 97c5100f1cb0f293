"""The beginning of every run: what the guard needs to know, and the guard, before anything else is loaded.

The guard loads its own half of the program and forks the command's process while this one reads the
configuration and takes the lock, so the less there is before the fork, the sooner the command runs.
"""

from __future__ import annotations

import os

from lockctl import loading, names
from lockctl.cli.messages import LOST, NOT_EXECUTABLE, Talk, exhausted
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError, UsageError, limit_reached
from lockctl.settings import PASSWORD
from lockctl.supervise.fork import fork_guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lockctl.cli.campaign import Campaign
    from lockctl.supervise.signals import Signals

MOST_LOCKS = 100  # each is a connection, or a descriptor that is handed to the guard
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # what Python sets LC_CTYPE to in a C locale (PEP 538)


def execute(
    given: Mapping[str, str | bool],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    signals: Signals,
    *,
    shown: tuple[str, ...] | None = None,
    more_locks: tuple[str, ...] = (),
    failures: int | None = None,
    ends: tuple[tuple[int, str], ...] = (),
) -> int:
    """Run a command under a lock; the exit status. *shown*: what others see as the holder's command.

    *more_locks* are those that were named after the first. *failures*: how often a standby failed at once before,
    ``None`` for who is none yet. *ends*: see ``Request``.
    """
    talk = Talk(as_json=given.get("log_format") == "json", quiet=given.get("quiet") is True)
    try:
        return _execute(
            given, words, environ, signals, talk, shown=shown, more_locks=more_locks, failures=failures, ends=ends
        )
    finally:
        talk.finish()


def _execute(
    given: Mapping[str, str | bool],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    signals: Signals,
    talk: Talk,
    *,
    shown: tuple[str, ...] | None,
    more_locks: tuple[str, ...],
    failures: int | None,
    ends: tuple[tuple[int, str], ...],
) -> int:
    guard = last = None
    try:
        words = _command(words, shell=given.get("shell") is True, environ=environ)
        talk.lock = _lock_name(given, words)
        locks = lock_names(talk.lock, more_locks)
        guard = fork_guard(words, job_environment(environ), signals, talk, talk.finish, _manner_of(talk))
        loading.load(loading.TAKE)
        from lockctl.cli import run  # while the guard gets ready, on another processor

        status, last = run.configured(given, locks, shown or words, environ, signals, guard, talk, ends)
        if last is None:
            return status
    except LockctlError as error:
        status = _tell_error(error, given, shown or words, environ, talk)
        if not _is_late(error, failures):
            return status
    except Exception as failure:
        begun = guard is not None and guard.ordered
        if not _tell_failure(failure, given, shown or words, environ, talk, begun=begun):
            raise
        status = LOST if begun else NOT_EXECUTABLE
        if failures is None:
            return status
    finally:
        if guard is not None:
            guard.dismiss()
    return _again(status, last, failures or 0, environ, signals, talk)


def _again(
    status: int, last: Campaign | None, failures: int, environ: Mapping[str, str], signals: Signals, talk: Talk
) -> int:
    from lockctl.cli import campaign

    return campaign.again(status, last, failures, given_environment(environ), signals, talk)


def _is_late(error: LockctlError, failures: int | None) -> bool:
    """Whether a standby has begun well before, and a pause may mend this."""
    if failures is None:
        return isinstance(error, ConfigError) and error.while_waiting
    return isinstance(error, (ConfigError, BackendUnavailable))


def _manner_of(talk: Talk) -> Callable[[bool, bool, bool, str | None], None]:
    """What has *talk* go on in a manner in the guard, which was forked before the configuration was read."""

    def go_on(as_json: bool, verbose: bool, quiet: bool, place: str | None) -> None:  # noqa: FBT001 - from a frame
        talk.configure(as_json=as_json, verbose=verbose, quiet=quiet)
        if place is not None:
            from lockctl.cli import log  # before the job starts: an upgrade may replace it later

            try:
                log.begin(place, talk)
            except ValueError:
                return  # it was there a moment ago: stderr has it

    return go_on


def _tell_error(
    error: LockctlError, given: Mapping[str, str | bool], words: tuple[str, ...], environ: Mapping[str, str], talk: Talk
) -> int:
    from lockctl.cli import exit_status
    from lockctl.cli.report import Refusal, kind_of

    refusal = Refusal(given, environ, talk)
    refusal.tell(str(error))
    refusal.report(words, str(error), kind_of(error))
    return exit_status.of_error(error)


def _tell_failure(
    failure: Exception,
    given: Mapping[str, str | bool],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    talk: Talk,
    *,
    begun: bool,
) -> bool:
    """Write the report; whether a limit was reached, and was told of. If not, it is a bug, which others tell."""
    limit = limit_reached(failure)
    said = f"a bug in lockctl: {type(failure).__name__}: {failure}" if limit is None else exhausted(limit, begun=begun)
    try:
        from lockctl.cli.report import Refusal

        Refusal(given, environ, talk).report(words, said, "lost" if begun else "not_executed")
    except (OSError, MemoryError):
        if limit is None:
            raise  # others tell of both; with a limit it is that
    if limit is not None:
        talk("error", said)
    return limit is not None


def _command(words: tuple[str, ...], *, shell: bool, environ: Mapping[str, str]) -> tuple[str, ...]:
    if not words:
        raise UsageError("no command: lockctl run [OPTIONS] [--] COMMAND [ARG]...")
    if not shell:
        return words
    if len(words) != 1:
        raise UsageError("-c takes one argument: quote the shell command")
    return (environ.get("SHELL") or "/bin/sh", "-c", words[0])


def _lock_name(given: Mapping[str, str | bool], words: tuple[str, ...]) -> str:
    name = given.get("lock")
    if not isinstance(name, str):
        return names.derived_name(words[2:] if given.get("shell") is True else words)
    return _checked_name(name)


def lock_names(first: str, more: tuple[str, ...]) -> tuple[str, ...]:
    """All locks of the run; one that is named twice is one lock. Raises ``UsageError``."""
    locks = tuple(dict.fromkeys((first, *map(_checked_name, more))))
    if len(locks) > MOST_LOCKS:
        raise UsageError(f"--lock: {len(locks)} locks are too many for one run: at most {MOST_LOCKS}")
    return locks


def _checked_name(name: str) -> str:
    try:
        return names.check_name(name)
    except ValueError as wrong:
        message = f"--lock: {names.printable(str(wrong))}"
        raise UsageError(message) from None


def job_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the command of ``run`` and of ``fence exec``.

    It is what lockctl was given, without credentials and without what is lockctl's own. Nor does it name a resource:
    that belongs to the lock of this run, and the token of a nested one would make it refuse ours.
    """
    environment = given_environment(environ)
    for variable in (PASSWORD, "LOCKCTL_STANDBY", "LOCKCTL_FENCE"):
        environment.pop(variable, None)
    if "@" in environment.get("LOCKCTL_BACKEND", ""):
        del environment["LOCKCTL_BACKEND"]
    return environment


def given_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that lockctl was given, without what the interpreter added to it."""
    environment = dict(environ)
    if environment.get("LC_CTYPE") in COERCED:
        try:
            with open("/proc/self/environ", "rb", buffering=0) as file:
                given = b"\0" + file.read(1 << 22)
        except OSError:
            return environment
        _, was_given, rest = given.partition(b"\0LC_CTYPE=")
        if was_given:
            environment["LC_CTYPE"] = os.fsdecode(rest.partition(b"\0")[0])
        else:
            del environment["LC_CTYPE"]
    return environment
