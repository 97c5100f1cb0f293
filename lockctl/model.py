"""The values that all layers share: what is asked for, what is granted, what is seen. Frozen, no I/O."""

from __future__ import annotations

from lockctl.value import Value

MICROSECONDS = 1_000_000  # in a second: the unit of tokens that come from a clock


def next_token(last: int, at: float) -> int:
    """The token after *last*, the last one of a lock: never below the clock, *at* in seconds, in microseconds.

    So tokens rise by themselves as long as the store keeps its data, whatever clocks do; and by the clock after it has
    lost them, or was put back to an earlier state.
    """
    return max(last + 1, int(at * MICROSECONDS))


class Cost(Value):
    """What one program asks of a store with prices, with the defaults, once it has held or waited for a minute."""

    requests: int  # an hour
    dollars: float  # an hour, at the list prices of the store's cheapest usual region


class Capabilities(Value):
    """What a backend promises, as data: printed, checked before a run, and asserted by the contract suite."""

    scheme: str
    rate_error: float  # rho: how far the server's clock may run faster than ours, as a fraction
    heartbeat: float  # longest time between two renewals, in seconds: how fast a loss or revocation is seen
    freed_when: str  # what frees the lock of an abandoned holder, and when, for people
    token_from: str  # where the fencing token comes from and what breaks it, for people
    survives: str  # which failures of servers leave locks as they are, for people
    clocks: str  # whose clocks must run how well, for people
    period_clock: str  # whose clock says in which period of --once-per a run began, for people
    fencing: str = "strict"  # the order of tokens is a promise; "durable-storage": while no write is lost
    many_hosts: bool = True  # excludes holders on other hosts
    kernel_held: bool = False  # the kernel frees it with the last process that has the lock's descriptor
    leased: bool = True  # a holder that does not renew loses it at the server after the ttl
    fair: bool = True  # waiters are served in the order they came
    lists_waiters: bool = True
    revocable: bool = True  # a holder can be told to give the lock back
    slots: bool = True  # several holders at once, up to a number (--slots)
    shared: bool = True  # readers beside each other, writers alone (--shared)
    hold_by: str = "lease"  # what keeps a lock after its holder, for all programs; or a "record", for lockctl alone
    usual_latency: tuple[float, float] | None = None  # seconds for one lock, as comparisons of such stores name it
    connection_held: bool = False  # the server frees it when the holder's connection ends, at once
    one_lock: bool = False  # every name is the same lock, as its URL says
    holder_cost: Cost | None = None  # None: nobody is paid for requests
    waiter_cost: Cost | None = None
    keeps_place: bool = True  # a refused claim is tried again as it is; else nothing is left of it: the next one is new

    def refusal(self, mode: str) -> str | None:
        """What to say to a claim of this *mode*; ``None``: the backend has it."""
        if mode == SHARED and not self.shared:
            lacking = "--shared"
        elif mode == SLOT and not self.slots:
            lacking = "--slots"
        else:
            return None
        return f"the {self.scheme} backend does not have {lacking}: lockctl backends shows which ones do"


EXCLUSIVE, SHARED, SLOT = "exclusive", "shared", "slot"  # modes of a claim: alone, with other readers, one of N


class Claim(Value):
    """One attempt to hold one lock. *owner* is unguessable, and new for every attempt.

    *slots* is how many may hold the lock at once: 1 unless the *mode* is ``slot``.
    """

    name: str
    owner: str
    ttl: float
    host: str
    pid: int
    user: str
    command: tuple[str, ...]
    mode: str = EXCLUSIVE
    slots: int = 1
    labels: tuple[tuple[str, str], ...] = ()  # of --label


class Grant(Value):
    """A lock that was granted to a claim."""

    claim: Claim
    token: int  # greater than that of every earlier grant of this lock in this domain
    domain: str  # which counter the token comes from
    key: str  # the path, key or number that another program must be given to contend
    ttl: float  # seconds, as the server confirmed it
    at: float  # the store's clock when it granted: seconds since the epoch, perhaps whole ones
    descriptor: int | None = None  # a lock that lives in a descriptor: of a file, or of a connection
    parts: tuple[Grant, ...] = ()  # the grants of several locks that were taken as one
    age: float = 0.0  # seconds of *ttl* that were over when the lock was asked for: a wait had asked before


class Holder(Value):
    """Who holds a lock, as far as the backend knows; None is "not known"."""

    owner: str | None
    host: str | None
    pid: int | None
    user: str | None
    command: tuple[str, ...] | None
    token: int | None
    mode: str | None
    acquired_at: float | None  # wall clock, seconds since the epoch
    expires_in: float | None  # seconds
    ttl: float | None = None  # seconds: how long a holder that has gone silent can keep it
    ended_at: float | None = None  # wall clock: when its job ended, if only --min-hold still keeps the lock
    known_by: object = None  # of another program: tells it from one that comes later; not shown
    labels: tuple[tuple[str, str], ...] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """The same in two looks that saw the same holder, and in no others."""
        return self.owner, self.token, self.known_by


class Waiter(Value):
    """Who waits for a lock."""

    host: str | None
    pid: int | None
    user: str | None
    since: float | None  # wall clock, seconds since the epoch


class Run(Value):
    """One run under a lock, or one that was refused, as its history has it."""

    host: str | None
    user: str | None
    command: tuple[str, ...] | None
    token: int | None
    started_at: float | None  # wall clock of its host, seconds since the epoch; None: the command never started
    ended_at: float | None  # wall clock of its host: when the run ended or was refused
    duration: float | None  # seconds
    waited: float | None  # seconds before it started or was refused
    outcome: str
    exit_code: int | None
    detail: str | None = None  # why, in one line
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def started(self) -> bool:
        """Whether the command ran at all."""
        return self.started_at is not None


class Revocation(Value):
    """A holder is to give its lock back; with *now*, the lock is taken away at once. Who wants it, and why."""

    now: bool
    by: str
    reason: str


class LockInfo(Value):
    """One lock as an operator sees it. *state* is ``held``, ``free`` or ``foreign``."""

    name: str
    backend: str
    key: str
    state: str
    fencing: str
    slots: int
    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...] | None
    last_run: Run | None  # the newest one that started; a list leaves it out


OUTCOMES = ("exited", "signaled", "held", "lost", "revoked", "unavailable", "timed_out", "not_executed")


class Outcome(Value):
    """What became of a run. *kind* is one of ``OUTCOMES``."""

    kind: str
    name: str
    backend: str
    words: tuple[str, ...]
    host: str
    waited: float
    status: int | None = None  # of the command, as from waitpid
    error: int = 0  # errno of an exec that failed
    interrupted: int | None = None  # the signal that ended the wait
    token: int | None = None
    started_at: float | None = None  # wall clock
    duration: float | None = None
    seen: LockInfo | None = None  # who held it
    detail: str = ""
    leftovers: int = 0  # processes that outlived the command and were stopped
    left: str = ""  # which ones, for people
    fence: str = ""  # why --fence kept the command from starting: "stale", "unavailable" or "config"
    not_released: str = ""  # why the lock was not given back: it ends with its lease
    asked_to_end: bool = False  # somebody sent lockctl a signal that ends programs
    acquired_in: float | None = None  # seconds of the request that acquired the lock
    held: float | None = None  # seconds from then until it was released
    renewals: int = 0  # that succeeded
    renewal_failures: int = 0
    labels: tuple[tuple[str, str], ...] = ()
