"""What happens in one history from outside: who runs what, how the network and the clocks are, and every fault.

A plan is plain data, drawn from one seed (see ``situations``), so that parts of it can be left out and the rest stays as
it was.
"""

from __future__ import annotations

from typing import NamedTuple

INFINITE = float("inf")
ENDS_A_PROGRAM = (15, 2, 3)  # signals, as the manual has it: TERM, INT and QUIT
ENDS_A_WAIT = (*ENDS_A_PROGRAM, 1)  # and HUP
LOCK = "nightly"
KEEPER, GUARD, HELPER, PARKED = 0, 1, 2, 3  # a helper waits for a file, who is parked is to become the command
REQUEST, ANSWER, BOTH = 0, 1, 2
DISK = 1
DENIED = 1
SENTINELS = 1
DESCRIPTORS = 1
BY_SIGNAL = 1
KEPT, LOST, OLD = 0, 1, 2  # what a server that restarts still knows
NEAR = 0.05  # seconds: with slower messages a run gives up adding itself to a history
OLDER = 5.0  # seconds: how old the data is of a server that comes back with old data
NODES = 5  # of a store with several
JOINED = 0.5  # of a ttl: until one of them that was away has a lock again


class RunPlan(NamedTuple):
    """One `lockctl run`. Times in seconds."""

    host: int
    start: float
    ttl: float
    wait: float
    length: float  # of the job
    stubborn: float = 0.05  # how long it lives on after TERM; infinite: it does not heed it
    outlived: float = 0.0  # how long another process of the job outlives the command, if nobody stops it
    succeeds: bool = True
    once_per: float | None = None
    min_hold: float = 0.0
    mode: str = "exclusive"
    slots: int = 1
    locks: tuple[str, ...] = (LOCK,)
    max_runtime: float | None = None
    waits_for_rest: bool = False  # whether what outlives the command is waited for, and not stopped
    executable: bool = True
    dying: float = 0.0  # seconds from KILL until it is gone: the kernel waits for a device
    forks: bool = False  # another process of it appears while it is killed
    kill_after: float | None = None  # seconds from the first signal to KILL, if somebody says so
    kills_on_loss: bool = True  # at once, without the first signal
    fence: bool = False  # whether its token is registered at a resource before the command starts
    leaves_rest: bool = False  # whether what outlives the command is let alone, and goes on without the lock
    first_signal: int = 15  # what the job gets that is to end

    @property
    def margin(self) -> float:
        """Seconds from KILL to the end of the lease, as the manual has it."""
        return min(max(self.ttl / 20, 0.25), 2.0)

    @property
    def grace(self) -> float:
        """Seconds from the first signal to KILL, as the manual has it."""
        return min(5.0, self.ttl / 4) if self.kill_after is None else self.kill_after

    @property
    def grace_at_loss(self) -> float:
        """The same when it is known that another may have the lock."""
        return 0.0 if self.kills_on_loss else self.grace


class Fault(NamedTuple):
    """Something that goes wrong, or that somebody does.

    ======== =================== ============================== ==============================================
    kind     whom                at                             value, more
    ======== =================== ============================== ==============================================
    stop     number of a run     step of its keeper or guard    seconds (infinite: killed), KEEPER or GUARD
    pause    number of a run     time                           the same; PARKED: killed, unless it is the command by then
    sleep    number of a host    time                           seconds, -
    lose     number of a host    number of its message          -, REQUEST or ANSWER
    late     number of a host    number of its message          seconds, REQUEST or ANSWER
    twice    number of a host    number of its message          seconds between the two, REQUEST or ANSWER
    cut      number of a host    time                           seconds, REQUEST, ANSWER or BOTH
    parted   number of a host    number of its request to give  seconds for which it is cut off when it sends that, or
                                 something back                 soon after, REQUEST, ANSWER or BOTH
    slow     number of a host    time                           seconds more for all of 3 s, REQUEST or ANSWER
    deposed  number of a host    time                           seconds for which it talks to a leader that is none,
                                                                or of MySQL to a replica that hears nothing any more
    busy     number of a server  time                           seconds for which it refuses most of what
                                                                it is asked, and may have done it; DENIED: it does not
                                                                do it, as a right is missing
    failover -                   time                           seconds until others are led to the new primary of Redis:
                                                                who is connected stays at the old one, which is a
                                                                replica now, 1: sentinels say where the primary is
    expired  -                   time                           seconds until there are other credentials than those that
                                                                the first server does not accept any more, -
    renamed  number of a host    -                              -, its URL names the nodes of Redlock otherwise
    removed  number of a host    time                           -, its server is deregistered in its cluster
    ended    number of a host    time                           -, an administrator ends its sessions
    down     number of a server  time                           seconds, KEPT, LOST or OLD
    jump     number of a server  time                           seconds by which its wall clock moves, -
    winter   -                   time                           -, the hour is over that the zone of the server
                                                                has twice when summer time ends
    wrong    number of a host    time                           seconds by which its wall clock moves, -
    signal   number of a run     time                           number of the signal, -
    halt     number of a run     time                           seconds until somebody continues its command, which was
                                                                stopped on its terminal, and its keeper, BY_SIGNAL:
                                                                only the keeper, and from elsewhere
    revoke   number of a host    time                           seconds between looking and asking, 1: free it now
    other    -                   time                           seconds for which another program has the lock, or
                                                                all rows of its table, 1: it takes it by force
    replaced -                   time                           -, a new database of SQLite is in the place of the old one
    table    -                   time                           seconds for which another program locks the tables
    forget   number of a host    time                           for how long it was not used, 1: the other names
    emptied  -                   time                           -, somebody removes what there is of a lock that nobody
                                                                has or waits for
    look     number of a host    time                           0: an operator looks at the lock, 1: at all locks,
                                                                and which are not used, -
    threads  number of a run     time                           seconds for which its keeper can start no thread,
                                                                DESCRIPTORS: and has no descriptor free for a pipe
    power    -                   time                           seconds by which the wall clock of the only host moves
                                                                when its power fails and it starts again, DISK: that
                                                                of its disk alone
    marks    -                   time                           seconds for which the resources are out of reach, -
    ======== =================== ============================== ==============================================
    """

    kind: str
    whom: int
    at: float
    value: float = 0.0
    more: int = 0

    @property
    def is_outage(self) -> bool:
        """Whether something is only out of reach, from ``at`` on for ``value`` seconds."""
        return self.kind in ("cut", "busy", "expired", "failover") or (self.kind, self.more) == ("down", KEPT)


class Plan(NamedTuple):
    """One history."""

    seed: int  # of all small chances: latencies, jitter, who gets a processor first
    store: str
    fastest: float  # seconds of one message
    slowest: float
    rates: tuple[float, ...]  # of the hosts' clocks, and the last one of the servers'
    runs: tuple[RunPlan, ...]
    faults: tuple[Fault, ...]
    lock_delay: float | None = None  # seconds, of Consul; ``None``: as long as a lease

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of all locks."""
        return tuple(sorted({name for run in self.runs for name in run.locks}))

    @property
    def has_several(self) -> bool:
        """Whether a run takes more than one lock."""
        return any(len(run.locks) > 1 for run in self.runs)
