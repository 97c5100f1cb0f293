"""The faults: what happens, what is put right afterwards, and what cannot be promised then."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.supervise import tree
from tests.faults.backends import PLACES
from tests.jobs import stop
from tests.promises.harms import HARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.faults.matrix.stage import Stage

CLUSTERS = {"etcd": "etcd_three", "zookeeper": "zookeeper_three"}  # servers that elect a leader
EVERYWHERE = tuple(PLACES)
DELETIONS = (
    "without the lock",
    "without the holder",
    "without sessions",
    "without rows",
    "without its keys",
)  # of those in HARMS


def nothing(_: Stage) -> None:
    """There is nothing to put right."""


def to(number: int, *whom: str) -> Callable[[Stage], None]:
    """Send a signal to the keeper, the guard, and the job."""

    def happen(stage: Stage) -> None:
        pids = {"keeper": [stage.scene.first.pid], "guard": [stage.scene.guard], "job": stage.job}
        for each in whom:
            for pid in pids[each]:
                if number == STOPPED:
                    stop(pid)
                else:
                    tree.send(pid, number)

    return happen


def network(mode: str) -> Callable[[Stage], None]:
    """Break the network between the first run and the servers."""

    def happen(stage: Stage) -> None:
        if stage.network is not None:
            stage.network.fail(mode)

    return happen


def everyone(servers: Any) -> Sequence[Any]:
    """All servers of a store."""
    return servers if isinstance(servers, list) else getattr(servers, "members", [servers])


def leader(servers: Any) -> Sequence[Any]:
    """The member that leads."""
    return [servers.leader()]


def two_of_three(servers: Any) -> Sequence[Any]:
    """A majority."""
    return list(servers.members[:2])


def do(verb: str, whom: Callable[[Any], Sequence[Any]] = everyone) -> Callable[[Stage], None]:
    """Do that to the servers, or to a part of a cluster."""

    def happen(stage: Stage) -> None:
        for server in whom(stage.servers):
            getattr(server, verb)()

    return happen


def start_again(stage: Stage) -> None:
    """The servers that were killed: all at once, for each waits for the others."""
    dead = [server for server in everyone(stage.servers) if not server.running]
    for server in dead:
        server.launch()
    for server in dead:
        server.await_answer()


def revoke(stage: Stage) -> None:
    """As an operator asks for it."""
    answer = stage.lockctl("force-release", stage.scene.name, "--yes")
    assert answer.returncode == 0, answer.stderr


def delete(stage: Stage) -> None:
    """As an operator deletes what is kept of a lock, with the tools of the store."""
    harm = next(harm for name, harm in HARMS[stage.store][1].items() if name.startswith(DELETIONS))
    harm(stage.servers, stage.word, int(stage.token("first")[1]))


def can_delete(store: str) -> bool:
    """Whether :func:`delete` knows how."""
    return store in HARMS and any(name.startswith(DELETIONS) for name in HARMS[store][1])


class Fault(NamedTuple):
    """One kind of accident, in the words of the manual."""

    said: str
    happen: Callable[[Stage], None]
    mend: Callable[[Stage], None] = nothing
    stores: Callable[[str], bool] = lambda _: True
    traits: tuple[str, ...] = ("daemon",)
    options: tuple[str, ...] = ()
    cut_off: bool = False  # nobody is served until it is mended, when the job has ended or outlived its lease
    alone: bool = False  # the servers are those of one pair
    three: bool = False  # there are three servers
    admitted: tuple[str, ...] = ()  # stores where the job may be alive beside the next one: the token is what protects


def served(store: str) -> bool:
    """Whether there is a network between."""
    return bool(PLACES[store].servers)


def restarts(store: str) -> bool:
    """Whether a server keeps its data when it is started again: the models keep them in memory."""
    return served(store) and store not in {"s3", "dynamodb", "gcs", "kubernetes"}


def wipes(store: str) -> bool:
    """Whether it can lose them while somebody waits: new databases do not know our user, which ends a wait."""
    return restarts(store) and store not in {"mysql", "postgresql", "redlock"}


STOPPED, GOES_ON = signal.SIGSTOP, signal.SIGCONT
BOTH = ("keeper", "guard")
FAULTS = {
    "keeper killed": Fault("The process that was started, `lockctl run`, gets KILL.", to(signal.SIGKILL, "keeper")),
    "guard killed": Fault("Its second process gets KILL.", to(signal.SIGKILL, "guard")),
    "both killed": Fault(
        "Both get KILL at the same moment; the job has no daemon.", to(signal.SIGKILL, *BOTH), traits=()
    ),
    "both killed, --contain": Fault(
        "The same with `--contain require`, and the job has a daemon of its own session.",
        to(signal.SIGKILL, *BOTH),
        options=("--contain", "require"),
        stores=lambda _: os.geteuid() == 0,
    ),
    "keeper stopped": Fault(
        "The first process gets STOP, and CONT when the next command has run.",
        to(STOPPED, "keeper"),
        to(GOES_ON, "keeper"),
    ),
    "guard stopped": Fault("The second one.", to(STOPPED, "guard"), to(GOES_ON, "guard")),
    "both stopped": Fault(
        "Both. Nobody is left to end the job, which goes on beside the next one.",
        to(STOPPED, *BOTH),
        to(GOES_ON, *BOTH),
        PLACES.__contains__,
        (),
        admitted=EVERYWHERE,
    ),
    "all stopped": Fault(
        "Both and the job, as when a machine is paused. When it continues, the job lives for a moment.",
        to(STOPPED, "job", *BOTH),
        to(GOES_ON, "job", *BOTH),
        PLACES.__contains__,
        (),
        admitted=EVERYWHERE,
    ),
    "revoked": Fault("`lockctl force-release` asks for the lock.", revoke),
    "lock deleted": Fault(
        "An operator deletes what the store keeps of the lock, with the tools of the store.",
        delete,
        stores=can_delete,
        alone=True,  # on PostgreSQL it ends all sessions with a lock
        admitted=EVERYWHERE,
    ),
    "answers lost": Fault(
        "Requests of the holder arrive, and answers do not.", network("drop_replies"), network("pass"), served
    ),
    "cut off": Fault(
        "Nothing of the holder arrives any more, and nothing is closed.", network("blackhole"), network("pass"), served
    ),
    "refused": Fault("Its connections are reset, and new ones refused.", network("refuse"), network("pass"), served),
    "reset": Fault("Its connections are reset, and each new one.", network("reset"), network("pass"), served),
    "trickle": Fault("Answers to it come one byte in 0.3 s.", network("trickle"), network("pass"), served),
    "200 ms late": Fault(
        "Each round trip of the holder takes 200 ms more.", network("delay=0.1"), network("pass"), served
    ),
    "servers stopped": Fault(
        "All servers get STOP, and CONT when the job has ended, or its lease should be over.",
        do("pause"),
        do("resume"),
        served,
        cut_off=True,
        alone=True,
    ),
    "servers killed": Fault(
        "All get KILL, and are started again then, with their data.",
        do("kill"),
        start_again,
        restarts,
        cut_off=True,
        alone=True,
    ),
    "servers restarted": Fault(
        "All are stopped as an operator does it, and started at once.",
        do("restart"),
        stores=restarts,
        alone=True,
        admitted=EVERYWHERE,
    ),
    "servers wiped": Fault(
        "All get KILL, lose their data, and are started at once.",
        do("wipe"),
        stores=wipes,
        alone=True,
        admitted=EVERYWHERE,
    ),
    "leader killed": Fault(
        "Of three members, the leader gets KILL.",
        do("kill", leader),
        start_again,
        CLUSTERS.__contains__,
        alone=True,
        three=True,
    ),
    "leader stopped": Fault(
        "It gets STOP, and CONT later. An etcd before 3.4.31 or 3.5.13 can end leases then: see lockctl-backends(7).",
        do("pause", leader),
        do("resume"),
        CLUSTERS.__contains__,
        alone=True,
        three=True,
        admitted=("etcd",),
    ),
    "majority killed": Fault(
        "Two of three members get KILL, and are started again when the job has ended.",
        do("kill", two_of_three),
        start_again,
        CLUSTERS.__contains__,
        cut_off=True,
        alone=True,
        three=True,
    ),
}
