"""``lockctl run`` once its guard is forked: from settings to a request, from an outcome to messages and a status."""

from __future__ import annotations

import os

from lockctl import config, registry, runner
from lockctl.errors import ConfigError, LockctlError, limit_reached
from lockctl.model import EXCLUSIVE, SHARED, SLOT, Outcome
from lockctl.request import Request, user_name
from lockctl.settings import NO_FENCE
from lockctl.settings_values import CONTRADICTIONS, asks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from lockctl.backend import Backend
    from lockctl.cli.campaign import Campaign
    from lockctl.cli.messages import Talk
    from lockctl.config import Effective
    from lockctl.lease.schedule import Schedule
    from lockctl.supervise.fork import GuardProcess
    from lockctl.supervise.signals import Signals
    from lockctl.url import Url

# without one of these in its words a command has no secret in its usual place
HINTS = (
    *("pass", "pwd", "secret", "token", "key", "cred", "sig", "auth", "bearer", "://"),
    *("mysql", "mariadb", "redis-cli", "curl", "glpat-", "xox", "eyj"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
QUIET = ("exited", "signaled")  # outcomes of which nothing is said


def configured(
    given: Mapping[str, str | bool],
    locks: tuple[str, ...],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    signals: Signals,
    guard: GuardProcess,
    talk: Talk,
    ends: tuple[tuple[int, str], ...],
) -> tuple[int, Campaign | None]:
    """The exit status, and for a standby, which is to decide whether to try again, its campaign."""
    file = config.read_config(config.config_path(given.get("config"), environ))
    settings = config.resolve(given, environ, file, locks[0])
    _begin_messages(settings, talk, guard)
    url = config.backend_url(settings["backend"], environ, file)
    if settings["restart"].content:
        from lockctl.cli import campaign

        campaign.check_readable_again(url, file)
    request = request_of(locks, words, settings, url, environ, ends)
    check_places(settings)
    for warning in (config.unknown_variables(environ), config.apart_from_root(settings["backend"], locks[0])):
        if warning is not None:
            talk("warning", warning)

    outcome = _run(request, guard, signals, talk, environ, settings)
    from lockctl.cli import exit_status  # if a command ran, loaded meanwhile

    conflict = 0 if settings["skip_ok"].content else settings["conflict_exit_code"].content
    status = exit_status.of_outcome(outcome, conflict=conflict)
    try:
        if outcome.kind not in QUIET or outcome.leftovers:
            from lockctl.cli import outcome_messages

            outcome_messages.tell(outcome, settings, where=given, talk=talk)
        _note_outcome(settings, locks, outcome, talk)
    except OSError as failure:
        if limit_reached(failure) is None:
            raise
        talk("error", f"the outcome cannot be told: {outcome.kind}, status {status}: {failure.strerror}")
    return status, _campaign(settings, locks, outcome, talk) if settings["restart"].content else None


def _campaign(settings: Mapping[str, Effective], locks: tuple[str, ...], outcome: Outcome, talk: Talk) -> Campaign:
    from lockctl.cli.campaign import Campaign

    return Campaign(outcome, lambda later: _note_outcome(settings, locks, later, talk))


def _run(
    request: Request,
    guard: GuardProcess,
    signals: Signals,
    talk: Talk,
    environ: Mapping[str, str],
    settings: Mapping[str, Effective],
) -> Outcome:
    """What becomes of the request. Raises ``ConfigError``, ``UsageError``: nothing ran."""
    waits: list[Backend] = []

    def begin_wait(backend: Backend) -> Callable[[], None]:
        from lockctl.cli import nested, waiting

        nested.refuse(backend, request, environ)
        waits.append(backend)
        return waiting.begin(request, backend, talk)

    try:
        return runner.run(request, guard, signals, talk, begin_wait)
    except LockctlError as wrong:
        fence = settings["fence"]
        if wrong.of_fence and not fence.source.startswith("-"):
            raise ConfigError(f"{config.named(fence)}: {wrong}") from None
        if isinstance(wrong, ConfigError):
            wrong.while_waiting = bool(settings["restart"].content and waits)
        raise


def _begin_messages(settings: Mapping[str, Effective], talk: Talk, guard: GuardProcess) -> None:
    """Have keeper and guard say as much, and there, as the configuration wants it."""
    verbose, quiet, place = (settings[name].content for name in ("verbose", "quiet", "log"))
    talk.configure(as_json=settings["log_format"].content == "json", verbose=verbose, quiet=quiet)
    if place is not None:
        from lockctl.cli import log

        use(settings["log"], lambda place: log.begin(place, talk))
    if verbose or quiet or place or talk.as_json:
        log_there = place if talk.log is not None else None
        guard.tell_manner(as_json=talk.as_json, verbose=verbose, quiet=quiet, log=log_there)


def check_places(settings: Mapping[str, Effective]) -> None:
    """Refuse, before anything runs, places where the outcome could not be noted."""
    report, metrics = settings["report"], settings["metrics_dir"]
    if report.content is not None:
        from lockctl.cli.report import check_place

        use(report, check_place)
    if metrics.content is not None:
        from lockctl.cli.metrics import check_directory

        use(metrics, check_directory)


def use(setting: Effective, call: Callable[[str], None]) -> None:
    """Call with the content of *setting*; what is wrong with that says where it came from."""
    try:
        call(setting.content)
    except ValueError as wrong:
        raise config.refusal(f"{config.named(setting)}: {wrong}", setting) from None


def _note_outcome(settings: Mapping[str, Effective], locks: tuple[str, ...], outcome: Outcome, talk: Talk) -> None:
    report, metrics = settings["report"].content, settings["metrics_dir"].content
    if report is not None:
        from lockctl.cli.report import write_report

        write_report(report, outcome, talk)
    if metrics is not None:
        from lockctl.cli.metrics import write_metrics

        write_metrics(metrics, locks, outcome, talk)


def request_of(
    locks: tuple[str, ...],
    words: tuple[str, ...],
    settings: Mapping[str, Effective],
    url: Url,
    environ: Mapping[str, str],
    ends: tuple[tuple[int, str], ...] = (),
) -> Request:
    """The request that these settings make. Raises ``UsageError`` for what a flag said, else ``ConfigError``."""
    check_pairs(settings)
    content: dict[str, Any] = {name: setting.content for name, setting in settings.items()}
    request = Request(
        locks=locks,
        words=_for_others(words, settings["redact"]),
        url=url,
        host=os.uname().nodename,
        user=user_name(environ),
        schedule=schedule_of(settings["ttl"], settings["kill_after"], url),
        wait=content["wait"],
        splay=content["splay"],
        first_signal=content["signal"],
        leftover=content["leftover"],
        kill_on_loss=content["on_lost"] == "kill",
        contain=content["contain"],
        max_runtime=content["max_runtime"] or None,
        correctness=content["guarantee"] == "correctness",
        run_unlocked=content["on_unavailable"] == "run",
        mode=SHARED if content["shared"] else SLOT if content["slots"] > 1 else EXCLUSIVE,
        slots=content["slots"],
        min_hold=content["min_hold"],
        once_per=content["once_per"],
        fence=content["fence"] if asks("fence", content["fence"]) else None,
        labels=content["label"] or (),
        says_holder=not content["skip_ok"] or content["report"] is not None or bool(content["restart"]),
        pgoptions=environ.get("PGOPTIONS", ""),
        ends=ends,
        unfenced=content["fence"] == NO_FENCE,
    )
    _check_request(request, settings)
    return request


def _check_request(request: Request, settings: Mapping[str, Effective]) -> None:
    why, names = request.refusal(registry.capabilities_of(request.url)) or ("", ())
    if why:  # an option is in the words already
        said = [settings[name] for name in names if not settings[name].source.startswith(("-", config.BUILT_IN))]
        raise ConfigError(f"{why} ({'; '.join(map(config.named, said))})" if said else why)


def _for_others(words: tuple[str, ...], patterns: Effective) -> tuple[str, ...]:
    """The words of the command as holders, histories and reports show them."""
    text = " ".join(words).lower()
    if not patterns.content and not any(hint in text for hint in HINTS):
        return words
    from lockctl.cli import redact

    return redact.hide_as(words, patterns)


def check_pairs(settings: Mapping[str, Effective]) -> None:
    """Refuse settings that contradict each other: wrong usage if a flag said one of them, else wrong configuration."""
    for first, second, why in CONTRADICTIONS:
        one, other = settings[first], settings[second]
        if asks(first, one.content) and asks(second, other.content):
            raise config.refusal(f"{_named(one)} and {_named(other)} contradict each other: {why}", one, other)


def _named(setting: Effective) -> str:
    flag = "--" + setting.name.replace("_", "-")
    return flag if setting.source.startswith("-") else f"{flag} ({setting.source})"


def schedule_of(ttl: Effective, grace: Effective | None, url: Url) -> Schedule:
    """The spans of a run, with *grace* ``None`` the usual one, whatever is configured.

    Raises ``UsageError`` for what does not fit if a flag said it, else ``ConfigError``.
    """
    from lockctl.lease.schedule import plan

    named = (ttl,) if grace is None else (ttl, grace)
    try:
        return plan(ttl.content, None if grace is None else grace.content, registry.capabilities_of(url))
    except ValueError as wrong:
        sources = "; ".join([f"{setting.name.replace('_', '-')}: {setting.source}" for setting in named])
        told = [setting for setting in named if setting.content is not None]
        raise config.refusal(f"{wrong} ({sources})", *told) from None
