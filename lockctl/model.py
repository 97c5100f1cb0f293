"""The words of the trade: what is asked for, what is granted, what is seen. Frozen, no I/O."""

from __future__ import annotations

from lockctl.value import Value


class Capabilities(Value):
    """What a backend promises, as data: printed, checked before a run, and asserted by the contract suite."""

    scheme: str
    fencing: str  # "strict": the order of tokens is a promise; "durable-storage": while no write is lost
    many_hosts: bool  # excludes holders on other hosts
    kernel_held: bool  # the kernel frees it with the last process that has the lock's descriptor
    leased: bool  # a holder that does not renew loses it at the server after the ttl
    fair: bool  # waiters are served in the order they came
    lists_waiters: bool
    revocable: bool  # a holder can be told to give the lock back
    rate_error: float  # rho: how far the server's clock may run faster than ours, as a fraction
    heartbeat: float  # longest time between two renewals, in seconds: how fast a loss or revocation is seen
    freed_when: str  # what frees the lock of an abandoned holder, and when, for people
    token_from: str  # where the fencing token comes from and what breaks it, for people
    survives: str  # which failures of servers leave locks as they are, for people
    clocks: str  # whose clocks must run how well, for people
    connection_held: bool = False  # the server frees it when the holder's connection ends, at once


class Claim(Value):
    """One attempt to hold one lock. *owner* is unguessable, and new for every attempt."""

    name: str
    owner: str
    ttl: float
    host: str
    pid: int
    user: str
    command: tuple[str, ...]
    mode: str = "exclusive"


class Grant(Value):
    """A lock that was granted to a claim."""

    claim: Claim
    token: int  # greater than that of every earlier grant of this lock in this domain
    domain: str  # which counter the token comes from
    key: str  # the path, key or number that another program must be given to contend
    ttl: float  # seconds, as the server confirmed it
    descriptor: int | None = None  # a lock that lives in a descriptor: of a file, or of a connection


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


class Waiter(Value):
    """Who waits for a lock."""

    host: str | None
    pid: int | None
    user: str | None
    since: float | None  # wall clock, seconds since the epoch


class LastRun(Value):
    """How the last run under a lock ended."""

    host: str | None
    command: tuple[str, ...] | None
    token: int | None
    started_at: float | None
    duration: float | None
    outcome: str
    exit_code: int | None


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
    last_run: LastRun | None
