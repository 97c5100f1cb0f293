"""Redlock: one lock over several independent Redis servers, held by a majority of them.

The recipe is that of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, and other libraries
that follow it contend under the same key. Two things are added. The fencing token: each node gives its own
counter, the largest of a majority is the token, and a majority must take it over while it still has the lock
as it gave it, so that no two grants have the same token and later ones have larger ones. And the set
of nodes is written into the lock, because clients that name different sets do not exclude each other.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import boottime, wall
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.locks.native import NativeBackend
from lockctl.model import Capabilities, Claim, Grant, Run
from lockctl.stores.redis.address import TCP_PARAMETERS
from lockctl.stores.redis.lock import milliseconds
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.nodes import Attempt, Members, Node, from_url, join
from lockctl.stores.redlock.rounds import Patience, ask_all
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import ClassVar, TypeVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.redis.session import Command
    from lockctl.stores.redlock import inspect, prune, records, revoke
    from lockctl.stores.redlock.wait import Waiting
    from lockctl.url import Url
    from lockctl.wire.deadline import Steps

    T = TypeVar("T")
    FILES: Files[tally.Majority] = (inspect, revoke, records, prune)

GIVE_BACK = 0.5  # seconds for giving back what a lost attempt was granted


class RedlockBackend(NativeBackend):
    """A ``Backend``: one client of all nodes."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="redlock",
        fencing="durable-storage",
        fair=False,
        lists_waiters=False,
        rate_error=0.01,
        heartbeat=5.0,
        freed_when="its ttl has run out on the clocks of a majority",
        token_from="the largest counter of a majority of nodes, taken over by a majority:"  # noqa: S106 - no password
        " counters lost on nodes whose clocks are also behind break it",
        survives="the failure of a minority of the nodes",
        clocks="the wall clocks of a majority must not jump: they end the leases",
        period_clock="the middle one of the servers that granted",
        slots=False,
        shared=False,
        usual_latency=(0.005, 0.010),
        keeps_place=False,
    )
    parameters: ClassVar[dict[str, str]] = TCP_PARAMETERS

    def __init__(self, members: Members) -> None:
        """Nothing is opened yet."""
        self._prefix = members.prefix
        self._identity = members.identity
        self._domain = f"redlock:{members.identity}/{members.login.db}"
        self._nodes = [Node(place, members.login, members.prefix) for place in members.places]
        self._quorum = len(self._nodes) // 2 + 1
        self._wanted: dict[str, bytes] = {}  # owner of a claim that is tried or held -> its document in the lock
        self._waiting: Waiting | None = None
        self._draws: dict[str, int] = {}  # name of a lock -> attempts in a row in which nobody got a majority

    @classmethod
    def from_url(cls, url: Url) -> RedlockBackend:
        """A client for a ``redlock`` or ``redlocks`` URL; raises ``ConfigError``."""
        return cls(from_url(url))

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        """One attempt. Who loses it gives back at once what it got."""
        started = boottime()
        document = documents.describe(claim, {"acquired_at": wall(), "nodes": self._identity})
        self._wanted[claim.owner] = document
        answers = self._ask(claim, document, deadline)
        said = {node: answer for node, answer in zip(self._nodes, answers, strict=True) if isinstance(answer, Attempt)}
        given = {node: answer.token for node, answer in said.items() if answer.token is not None}
        if len(given) < self._quorum:
            self._lose(claim, answers, any_given=bool(given))
            return None
        token = max(given.values())
        has_it = self._confirm(claim, given, token, deadline)
        if has_it is None or boottime() - started >= claim.ttl * (1 - self.capabilities.rate_error):
            self._give_back(claim)
            return None
        self._draws.pop(claim.name, None)
        if self._waiting is not None:
            self._waiting.close()
        at = tally.middle([said[node].at for node in given])
        grant = Grant(claim, token, self._domain, self._prefix + claim.name, claim.ttl, at)
        self._join(grant, [node for node in self._nodes if node not in has_it and (node in given or node not in said)])
        return grant

    def _ask(self, claim: Claim, document: bytes, deadline: Deadline) -> list[Attempt | LockctlError | None]:
        """What each node says to a claim."""
        ttl, spare = milliseconds(claim.ttl), len(self._nodes) - self._quorum
        patience = Patience(claim.ttl)

        def ask(node: Node, until: Deadline) -> Steps[Attempt | None]:
            # a thread may get its turn when the claim was given back already
            return (yield from node.acquire(claim, document, ttl, until)) if claim.owner in self._wanted else None

        def settled(so_far: list[Attempt]) -> float | None:
            given = sum(answer.token is not None for answer in so_far)
            return 0.0 if len(so_far) - given > spare else patience.until(settled=given >= self._quorum)

        return ask_all(self._nodes, ask, deadline.sooner(tally.longest_round(claim.ttl)), settled)

    def _confirm(self, claim: Claim, given: dict[Node, int], token: int, deadline: Deadline) -> list[Node] | None:
        """The nodes that took over *token*; ``None``: no majority did, as others took the lock on some.

        Raises for another reason, and gives the lock back before.
        """
        patience = Patience(claim.ttl)
        confirmed = ask_all(
            list(given),
            lambda node, until: node.confirm(claim, given[node], token, until),
            deadline.sooner(tally.longest_round(claim.ttl)),
            lambda so_far: patience.until(settled=sum(so_far) >= self._quorum),
        )
        if sum(tally.usable(confirmed)) >= self._quorum:
            return [node for node, answer in zip(given, confirmed, strict=True) if answer is True]
        if None in confirmed or any(isinstance(answer, LockctlError) for answer in confirmed):
            self._give_back(claim)
            said = tally.refusals(confirmed, bool, "another has taken the lock there")
            raise tally.too_few(said, "took over the token", self._quorum)
        return None

    def _join(self, grant: Grant, nodes: list[Node]) -> None:
        join(nodes, grant, self._wanted, Deadline(tally.longest_round(grant.ttl)))

    def _lose(self, claim: Claim, answers: list[Attempt | LockctlError | None], *, any_given: bool) -> None:
        self._wanted.pop(claim.owner, None)
        has_position = self._waiting is not None and self._waiting.has_position(claim)
        if any_given or has_position or len(tally.usable(answers)) < len(answers):
            self._give_back(claim)
        tally.check_same_nodes(answers, claim, self._identity)
        if len(tally.usable(answers)) < self._quorum:
            raise tally.too_few(answers, "answered", self._quorum)
        self._draws[claim.name] = self._draws.get(claim.name, 0) + 1 if any_given else 0

    def _give_back(self, claim: Claim) -> None:
        try:
            self._leave(claim, GIVE_BACK)
        except (BackendUnavailable, ConfigError):
            return  # what is left on a node ends with its ttl there

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. A node that lost the lock has it again after a majority has confirmed it, not before."""
        ttl = milliseconds(grant.ttl)
        answers = ask_all(
            self._nodes,
            lambda node, until: node.renew(grant.claim, grant.token, ttl, until),
            Deadline(timeout),
            lambda so_far: 0.0 if sum(kept for kept, _ in so_far) >= self._quorum else None,
        )
        tally.check_renewed(answers, grant, self._quorum)
        self._join(grant, [node for node in self._nodes if node.lacks == grant.claim.owner])
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        if hold:
            from lockctl.stores.redlock.hold import begin

            self._wanted.pop(grant.claim.owner, None)
            begin(self._majority(), self._identity, grant, hold, Deadline(timeout))
        else:
            self._leave(grant.claim, timeout)

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        """See ``Backend.remember``: whether a majority added it."""
        from lockctl.stores.redis.records import adding

        return self._leave(grant.claim, timeout, adding(self._nodes[0].session, grant.claim.name, run))

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self._draws.pop(claim.name, None)
        self._leave(claim, timeout)

    def _leave(self, claim: Claim, timeout: float, then: Sequence[Command] = ()) -> bool:
        """Raises when less than a majority answered; each of the others is told before it is asked again.

        What is asked *then* takes no further round trip; whether a majority did it.
        """
        self._wanted.pop(claim.owner, None)
        for node in self._nodes:
            node.owe(claim, milliseconds(claim.ttl))
        patience = Patience(claim.ttl)
        answers = ask_all(
            self._nodes,
            lambda node, until: node.settle(until, then),
            Deadline(timeout),
            lambda so_far: patience.until(settled=len(so_far) >= self._quorum),
        )
        said = tally.usable(answers)
        if len(said) < self._quorum:
            raise tally.too_few(answers, "gave the lock back", self._quorum)
        return sum(said) >= self._quorum

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        from lockctl.stores.redlock.wait import Waiting

        if self._waiting is None:
            self._waiting = Waiting(self._majority())
        longest_look, draws = tally.longest_round(claim.ttl), self._draws.get(claim.name, 0)
        self._waiting.wait(claim, longest_look, draws, self._has_lined_up, deadline)

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        return operation(self._majority(), *arguments, Deadline(timeout))

    def _majority(self) -> tally.Majority:
        return tally.Majority(self._nodes, self._prefix, self._quorum)

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
        for node in self._nodes:
            node.close()
