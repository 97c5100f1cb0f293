"""Every setting of ``run``: one table from which flags, variables, config keys, help and man pages come."""

from __future__ import annotations

from lockctl.durations import format_duration, parse_duration, parse_wait
from lockctl.names import check_name
from lockctl.supervise.signals import NAMES, parse_signal
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DURATION, SPAN, WAIT, NUMBER, COUNT, FLAG, CHOICE, TEXT, SIGNAL, NAME, FILE = (
    "duration",
    "span",
    "wait",
    "number",
    "count",
    "flag",
    "choice",
    "text",
    "signal",
    "name",
    "file",
)

MOST_SLOTS = 1000
PASSWORD = "LOCKCTL_PASSWORD"  # noqa: S105 - the variable's name


class Setting(Value):
    """One setting. *default* is written as a user would write it; empty means none."""

    name: str
    flags: tuple[str, ...]
    kind: str
    default: str
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    in_config: bool = True  # may stand in the config file, and be set by LOCKCTL_<NAME>

    @property
    def takes_value(self) -> bool:
        """Whether a word follows the flag."""
        return self.kind != FLAG

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "LOCKCTL_" + self.name.upper()


SETTINGS = (
    Setting(
        "lock",
        ("-l", "--lock"),
        NAME,
        "",
        "Lock to acquire; may be given several times: all are acquired, or none. Without it: the command's base name"
        " and a short hash of the whole command line.",
        metavar="NAME",
        in_config=False,
    ),
    Setting(
        "backend",
        ("-b", "--backend"),
        TEXT,
        "",
        "Where the lock is kept: a URL, or a profile of the configuration. Without it: files on this host.",
        metavar="URL|PROFILE",
    ),
    Setting(
        "ttl",
        ("-t", "--ttl"),
        DURATION,
        "30s",
        "Length of the lease: how long it lasts without a renewal; at least 1s.",
        metavar="DURATION",
    ),
    Setting(
        "wait",
        ("-w", "--wait"),
        WAIT,
        "0",
        "How long to wait for the lock; 0: do not wait.",
        metavar="DURATION|forever",
    ),
    Setting("no_wait", ("-n", "--no-wait"), FLAG, "", "Same as --wait 0.", in_config=False),
    Setting(
        "conflict_exit_code",
        ("-E", "--conflict-exit-code"),
        NUMBER,
        "75",
        "Exit status when the lock is held by another (0 to 255).",
        metavar="N",
    ),
    Setting("skip_ok", ("--skip-ok",), FLAG, "", "If another holds the lock, print nothing and exit 0."),
    Setting(
        "kill_after",
        ("-k", "--kill-after"),
        DURATION,
        "",
        "Grace period between the first signal and SIGKILL, when lockctl itself stops the command."
        " Without it: 5s, or a quarter of a ttl under 20s.",
        metavar="DURATION",
    ),
    Setting(
        "leftover",
        ("--leftover",),
        CHOICE,
        "kill",
        "Processes of the job that outlive the command: stop them and print a message, wait for them, or leave"
        " them running without the lock.",
        metavar="kill|wait|leave",
        choices=("kill", "wait", "leave"),
    ),
    Setting(
        "signal", ("--signal",), SIGNAL, "TERM", "The first signal when lockctl stops the command.", metavar="NAME"
    ),
    Setting(
        "on_lost",
        ("--on-lost",),
        CHOICE,
        "kill",
        "When the lease is definitely lost, and another may already hold the lock: kill at once, or terminate with"
        " the usual grace period.",
        metavar="kill|term",
        choices=("kill", "term"),
    ),
    Setting(
        "max_runtime",
        ("--max-runtime",),
        DURATION,
        "",
        "Stop the command after this long and exit 124.",
        metavar="DURATION",
    ),
    Setting(
        "min_hold",
        ("--min-hold",),
        DURATION,
        "0",
        "Keep the lock at least this long after it was acquired, even if the command ends earlier; no process"
        " stays behind.",
        metavar="DURATION",
    ),
    Setting(
        "once_per",
        ("--once-per",),
        SPAN,
        "0",
        "Skip the command, as if the lock were held, if it already succeeded under this lock in the current period of"
        " this length. Periods are counted from the epoch.",
        metavar="DURATION",
    ),
    Setting(
        "slots",
        ("--slots",),
        COUNT,
        "1",
        "Use the lock as a semaphore: up to N holders at once. All users of the lock must give the same N.",
        metavar="N",
    ),
    Setting(
        "shared", ("--shared",), FLAG, "", "Acquire a shared (read) lock, which excludes only claims without --shared."
    ),
    Setting(
        "restart",
        ("--restart",),
        FLAG,
        "",
        "Run as a standby: wait for the lock forever; after the command has ended or the lease was lost, wait again.",
    ),
    Setting(
        "splay",
        ("--splay",),
        DURATION,
        "0",
        "Sleep a random time up to this before acquiring.",
        metavar="DURATION",
    ),
    Setting(
        "guarantee",
        ("--guarantee",),
        CHOICE,
        "efficiency",
        "Purpose of the lock: to avoid double work, or to avoid corruption. 'correctness' refuses, before"
        " anything runs, a backend or setting that cannot fence.",
        metavar="efficiency|correctness",
        choices=("efficiency", "correctness"),
    ),
    Setting(
        "on_unavailable",
        ("--on-unavailable",),
        CHOICE,
        "fail",
        "If the backend is not reachable: run nothing, or run the command without a lock and print a warning.",
        metavar="fail|run",
        choices=("fail", "run"),
    ),
    Setting(
        "shell",
        ("-c", "--shell"),
        FLAG,
        "",
        "Run the one argument as a shell command, with $SHELL -c (/bin/sh if unset).",
        in_config=False,
    ),
    Setting(
        "fence",
        ("--fence",),
        FILE,
        "",
        "Register the fencing token at RESOURCE before starting the command, so that it refuses older tokens: a path,"
        " or a URL of lockctl-fence(1). If that fails, nothing runs (69, 77 or 78).",
        metavar="RESOURCE",
    ),
    Setting(
        "report",
        ("--report",),
        FILE,
        "",
        "Write the outcome to this file as JSON, atomically, even if nothing ran.",
        metavar="FILE",
    ),
    Setting(
        "log_format",
        ("--log-format",),
        CHOICE,
        "text",
        "Format of the messages on stderr.",
        metavar="text|json",
        choices=("text", "json"),
    ),
    Setting("verbose", ("-v", "--verbose"), FLAG, "", "Print what lockctl does."),
    Setting("quiet", ("-q", "--quiet"), FLAG, "", "Print only errors that kept the command from running."),
    Setting(
        "config",
        ("--config",),
        FILE,
        "",
        "Read this configuration file and no other.",
        metavar="FILE",
        in_config=False,
    ),
)

BY_NAME = {setting.name: setting for setting in SETTINGS}

# two settings that cannot both ask for something, and why
CONTRADICTIONS = (
    ("shared", "slots", "the number of shared holders is not limited"),
    ("min_hold", "shared", "only an exclusive lock can be held after its job"),
    ("min_hold", "slots", "only an exclusive lock can be held after its job"),
    ("once_per", "shared", "several holders could run at once in the same period"),
    ("once_per", "slots", "several holders could run at once in the same period"),
    ("restart", "once_per", "a standby runs its command whenever it acquires the lock"),
    ("fence", "on_unavailable", "without a lock there is no fencing token"),
    ("fence", "shared", "each reader would make the resource refuse the tokens of earlier readers"),
    ("fence", "slots", "each holder would make the resource refuse the tokens of earlier holders"),
    ("restart", "on_unavailable", "if the backend is not reachable, two standbys would both run"),
)
NEUTRAL = {"slots": 1, "on_unavailable": "fail"}  # values that ask for nothing


def asks(name: str, content: object) -> bool:
    """Whether this value of a setting of ``CONTRADICTIONS`` asks for anything."""
    return bool(content) and content != NEUTRAL.get(name)


def check(setting: Setting, text: str) -> object:
    """The value that *text* means for this setting; raises ``ValueError`` with one line."""
    checks: dict[str, Callable[[str], object]] = {
        DURATION: parse_duration,
        SPAN: parse_span,
        COUNT: parse_slots,
        WAIT: parse_wait,
        SIGNAL: parse_signal,
        NAME: check_name,
        FLAG: parse_flag,
        TEXT: _not_empty,
        FILE: _not_empty,
    }
    if setting.kind == CHOICE:
        if text not in setting.choices:
            message = f"{text!r} is not one of {', '.join(setting.choices)}"
            raise ValueError(message)
        return text
    if setting.kind == NUMBER:
        return parse_exit_code(text)
    return checks[setting.kind](text)


def parse_exit_code(text: str) -> int:
    """An exit status; raises ``ValueError`` for one that a shell would not see as it is."""
    if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > 255:
        message = f"{text[:30]!r} is not an exit status: 0 to 255"
        raise ValueError(message)
    return int(text)


def parse_span(text: str) -> float | None:
    """A span of at least a second, which the coarsest clock of a store can tell apart; 0 is none at all.

    Raises ``ValueError``.
    """
    span = parse_duration(text)
    if 0 < span < 1:
        message = f"{text!r} is too short: at least 1s"
        raise ValueError(message)
    return span or None


def parse_slots(text: str) -> int:
    """How many may hold a lock at once; raises ``ValueError``."""
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= MOST_SLOTS:
        message = f"{text[:30]!r} is not a number of slots: 1 to {MOST_SLOTS}"
        raise ValueError(message)
    return int(text)


def parse_flag(text: str) -> bool:
    """A yes or no, as a variable or a config file has it."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        message = f"{text!r} is not one of true, false"
        raise ValueError(message)
    return words[text.lower()]


def shown(setting: Setting, content: object) -> str:
    """A value as a user would write it."""
    if content is None:
        return "0" if setting.kind == SPAN else ""
    if isinstance(content, bool):
        return "true" if content else "false"
    if setting.kind in (DURATION, SPAN, WAIT) and isinstance(content, float):
        return format_duration(content)
    if setting.kind == SIGNAL:
        for name, number in NAMES.items():
            if number == content:
                return name
    return str(content)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text
