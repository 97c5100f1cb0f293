"""Every setting of ``run``: one table from which flags, variables, config keys, help and man pages come."""

from __future__ import annotations

from lockctl.value import Value

DURATION, SPAN, WAIT, NUMBER, COUNT, FLAG, CHOICE, TEXT, SIGNAL, NAME, FILE, LABELS, PATTERNS = (
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
    "labels",
    "patterns",
)
REPEATED = (LABELS, PATTERNS)  # kinds of which there may be several: as text, one on each line

MOST_SLOTS = 1000
NO_FENCE = "none"  # in place of a resource: the token is registered nowhere, whatever else names one
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
        "Length of the lease, which lockctl renews all the time: how long the lock of a host that vanishes stays taken,"
        " and how long a job survives a store that does not answer. At least 1s.",
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
        "contain",
        ("--contain",),
        CHOICE,
        "no",
        "Have the kernel kill every process of the job, daemons too, even if both processes of lockctl are killed at"
        " once: the job runs in a pid namespace and sees only its own processes. 'auto': only where lockctl is root"
        " and the system allows it; 'require': where that is impossible, nothing runs. See CONTAINED JOBS in"
        " lockctl-run(1).",
        metavar="no|auto|require",
        choices=("no", "auto", "require"),
    ),
    Setting(
        "max_runtime",
        ("--max-runtime",),
        DURATION,
        "",
        "Stop the command after this long and exit 124; 0: never.",
        metavar="DURATION",
    ),
    Setting(
        "min_hold",
        ("--min-hold",),
        DURATION,
        "0",
        "Keep the lock at least this long after it was acquired, even if the command ends earlier; lockctl does not"
        " wait for that, but exits.",
        metavar="DURATION",
    ),
    Setting(
        "once_per",
        ("--once-per",),
        SPAN,
        "0",
        "Skip the command, as if the lock were held, if it already succeeded under this lock in the current period of"
        " this length. Periods are counted from 1970 in UTC: those of 1h begin at each full hour.",
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
        "shared",
        ("--shared",),
        FLAG,
        "",
        "Acquire a shared (read) lock: all who use --shared may hold it at once, and exclude others.",
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
        "First sleep a random time up to this, so that many hosts do not ask for the lock in the same second.",
        metavar="DURATION",
    ),
    Setting(
        "guarantee",
        ("--guarantee",),
        CHOICE,
        "efficiency",
        "Purpose of the lock: to avoid double work, or to avoid corruption. With 'correctness' nothing runs if this"
        " backend or a setting cannot promise that fencing tokens only grow.",
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
        "Register the fencing token at RESOURCE, a path or a URL of lockctl-fence(1), before starting the command: from"
        " then on it refuses earlier holders. If that fails, nothing runs (69, 77 or 78). none: do not, although a"
        " resource is configured.",
        metavar="RESOURCE|none",
    ),
    Setting(
        "label",
        ("--label",),
        LABELS,
        "",
        "Show this with the holder and in the history, such as the URL of a CI job; may be given several times.",
        metavar="KEY=VALUE",
    ),
    Setting(
        "redact",
        ("--redact",),
        PATTERNS,
        "",
        "Hide what matches this regular expression where others see the command; if it has groups, only what these"
        " match. May be given several times. Passwords and tokens in their usual places are always hidden.",
        metavar="PATTERN",
    ),
    Setting(
        "report",
        ("--report",),
        FILE,
        "",
        "At the end, replace this file by the result as JSON: whether the command ran, or why not, its exit status, how"
        " long it took, and more.",
        metavar="FILE",
    ),
    Setting(
        "metrics_dir",
        ("--metrics-dir",),
        FILE,
        "",
        "Count the run in a file of this directory, for the textfile collector of Prometheus; one file for each lock.",
        metavar="DIR",
    ),
    Setting(
        "log",
        ("--log",),
        FILE,
        "",
        "Write the messages not only to stderr, but also to syslog, to the journal of systemd, or to the end of this"
        " file.",
        metavar="syslog|journald|FILE",
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
    Setting("verbose", ("-v", "--verbose"), FLAG, "", "Print each step, not only what went wrong."),
    Setting(
        "quiet",
        ("-q", "--quiet"),
        FLAG,
        "",
        "Print only errors because of which nothing ran. That the lock is held, or that a command was stopped, is told"
        " by the exit status alone.",
    ),
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
