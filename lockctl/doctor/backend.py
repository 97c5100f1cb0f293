"""Looking at the backend of a URL: what its technology looks for, and what counts for all of them."""

from __future__ import annotations

from contextlib import suppress

from lockctl import registry, secret
from lockctl.durations import format_duration
from lockctl.errors import STRANGE, LockctlError
from lockctl.extras import LibraryMissing
from lockctl.finding import LIBRARY, Check, Examination, Finding
from lockctl.names import printable
from lockctl.wire.deadline import Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.lease.schedule import Schedule
    from lockctl.url import Url

LIMIT = 30.0  # seconds for everything that is asked of one backend
MOST_OFFSET = 1.0  # seconds between two clocks that are kept by NTP, with much to spare

REACHABLE = Check(
    "backend.reachable",
    "A job that cannot reach its lock does not start, and one that runs is stopped before its lease ends.",
    "start the server, correct the URL (lockctl config show), or open the network to it",
)
ROUND_TRIP = Check(
    "backend.round_trip",
    "Renewals that take long leave no time for another one before the command must be stopped.",
    "choose a longer --ttl, at least {least}, or a backend that is nearer",
)
CLOCK = Check(
    "backend.clock",
    "Times in lists, --once-per and --min-hold come from the server's clock, and one that is corrected later jumps.",
    "timedatectl set-ntp true, on this host and on the server",
)
CHECKS = (REACHABLE, LIBRARY, ROUND_TRIP, CLOCK)
# not among CHECKS: no store that is delivered lacks them
NO_CHECKS = Check(
    "backend.checks",
    "Nobody has looked for what would break a lock there.",
    "write a doctor.py for this store: step 10 in CONTRIBUTING.md",
)


def examine(url: Url, schedule: Schedule) -> list[Finding]:
    """What is found at the backend of a URL, for runs with this *schedule*. Raises ``ConfigError`` for the URL."""
    module = registry.load_doctor(url.scheme)
    if url.params:
        url = secret.resolve(url)
    with suppress(LibraryMissing):  # that is a finding
        registry.open_backend(url).close()  # what is wrong with the URL itself nobody mends at the server
    found = Examination(printable(str(url)), schedule.ttl)
    if module is None:
        found.judge(NO_CHECKS, f"there are no checks for this store ({url.scheme}:)", warns=True)
        return found.findings
    deadline = Deadline(LIMIT)
    try:
        # some libraries obey no deadline
        bounded(lambda: module.examine(url, found, deadline), deadline, str(url))
    except LockctlError as problem:
        found.judge(REACHABLE, str(problem), fails=True)
    except STRANGE:
        found.judge(REACHABLE, "it gave an answer that no such server gives", fails=True)
    else:
        if found.spans:
            found.judge(REACHABLE, "it answers")
    found.where = printable(str(url))
    judge_times(schedule, found)
    return found.findings


def checks() -> Iterator[Check]:
    """All that is looked for in backends, those of all technologies."""
    yield from CHECKS
    for module in dict.fromkeys(registry.load_doctor(scheme) for scheme in registry.SCHEMES):
        yield from module.CHECKS if module else ()


def judge_times(schedule: Schedule, found: Examination) -> None:
    """Whether requests are quick enough for the leases, and the clocks agree."""
    if not found.spans:
        return
    longest, usual = max(found.spans), sorted(found.spans)[len(found.spans) // 2]
    # the last renewals of a lease get no more time than this
    limit = schedule.request_timeout
    seen = f"{usual * 1000:.1f} ms, at most {longest * 1000:.1f} ms in {len(found.spans)} requests;"
    seen += f" the ttl is {format_duration(found.ttl)}"
    found.words["least"] = format_duration(round(longest * 20) + 1)
    found.judge(
        ROUND_TRIP,
        seen,
        fails=limit > 0 and usual > limit,
        warns=limit > 0 and longest > limit / 2,
    )
    if found.offsets:
        # of the answer that leaves the least room for a mistake
        offset, error = min(found.offsets, key=lambda each: each[1])
        side = "ahead" if offset > 0 else "behind"
        seen = f"the server's is {abs(offset):.3f} s {side}, give or take {error:.3f} s"
        found.judge(CLOCK, seen, warns=abs(offset) - error > MOST_OFFSET)
