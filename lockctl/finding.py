"""What ``lockctl doctor`` looks for, as data, and what an examination has found."""

from __future__ import annotations

from lockctl import clock, extras
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

OK, WARN, FAIL = "ok", "warn", "fail"
LEVELS = (OK, WARN, FAIL)  # the worst last
REQUESTS = 5  # that are measured
WHOLE_SECONDS = 0.5  # seconds that a clock may be off which tells whole ones, taken for their middle


class Finding(Value):
    """One line of the result."""

    id: str
    level: str
    where: str  # the host or the server
    seen: str  # what it is like there
    why: str
    remedy: str  # empty where nothing is to be mended


class Check(Value):
    """One thing that is looked at: why it matters, and the command or setting that mends it.

    Words in braces in the *remedy* are filled in from ``Examination.words``.
    """

    id: str
    why: str
    remedy: str


LIBRARY = Check(
    "backend.library", "doctor looks into a backend with its library; without that the rest is not known.", "{install}"
)


class Examination:
    """What is known so far of one host or server."""

    def __init__(self, where: str, ttl: float) -> None:
        """*ttl* is that of the leases, in seconds."""
        self.where = where
        self.ttl = ttl
        self.findings: list[Finding] = []
        self.words: dict[str, str] = {}  # for the remedies
        self.spans: list[float] = []  # seconds that requests took
        self.offsets: list[tuple[float, float]] = []  # server's clock minus ours, and how far that may be wrong

    def judge(self, check: Check, seen: str, *, fails: bool = False, warns: bool = False) -> None:
        """What was *seen*, as bad as the worst of what is true says.

        A failure: the promise of lockctl does not hold, or no lock can be had. A warning: it is worse than it could
        be, or could not be looked at.
        """
        level = FAIL if fails else WARN if warns else OK
        remedy = "" if level == OK else check.remedy.format(**self.words)
        self.findings.append(Finding(check.id, level, self.where, seen, check.why, remedy))

    def lacks(self, module: str, extra: str, *, needed: bool = False) -> bool:
        """Whether the library of *extra* is missing, which has this *module*; *needed*: locks need it, too."""
        try:
            __import__(module)
        except ImportError:
            pass
        else:
            return False
        self.words["install"] = extras.remedy(extra)
        self.judge(LIBRARY, f"{extras.LIBRARIES[extra]} is not installed", fails=needed, warns=True)
        return True

    def measure(self, ask: Callable[[], float | None], resolution: float = 0.0) -> None:
        """Send some requests; *ask* sends one and gives the server's clock, ``None`` if it does not tell.

        *resolution*: how far that clock may be off, in seconds, because it tells whole ones.
        """
        ask()  # connects, and perhaps logs in: a renewal finds that done
        for _ in range(REQUESTS):
            sent, sent_wall = clock.boottime(), clock.wall()
            theirs = ask()
            span = clock.boottime() - sent
            self.spans.append(span)
            if theirs is not None:
                self.offsets.append((theirs + resolution - sent_wall - span / 2, span / 2 + resolution))

    def join(self, other: Examination) -> None:
        """Add what was found of a part, such as one of several servers."""
        self.findings += other.findings
        self.spans += other.spans
        self.offsets += other.offsets
