"""Why no two have a majority of Redlock's nodes at once, also when nodes join late: a model, and orders of events.

Requests are executed when and as often as the adversary likes, also after their sender has given up. Assumed is
that a node keeps a key for its ttl, and that who holds a lock counts from the sending of the last round that a
majority confirmed. The same model finds what is wrong in schemes that look alike, so it has teeth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

if TYPE_CHECKING:
    from collections.abc import Callable

NODES, QUORUM, CLIENTS = 3, 2, 2
TTL = 6
INDEX = st.integers(0, 30)
TAKE, RENEW, JOIN, LEAVE = "take", "renew", "join", "leave"


class Message(NamedTuple):
    """A request on its way to one node."""

    kind: str
    client: int
    owner: int
    round: int
    node: int


class Key(NamedTuple):
    """What a node has under the key of the lock."""

    owner: int
    ends: int


class Client:
    """One that wants the lock, with a new owner for each attempt."""

    def __init__(self) -> None:
        self.owner = 0
        self.round = 0  # the last one that began; answers to others do not count
        self.kind = ""
        self.sent = 0
        self.confirmed: set[int] = set()
        self.holds = False
        self.valid_until = 0


class Redlock(RuleBasedStateMachine):
    """The scheme of ``lockctl.stores.redlock.lock``."""

    counts_from_arrival = False
    takes_from_others = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.count = 0
        self.keys: list[Key | None] = [None] * NODES
        self.gone: set[tuple[int, int]] = set()  # owner and node: a late request is refused
        self.clients = [Client() for _ in range(CLIENTS)]
        self.messages: list[Message] = []

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _send(self, kind: str, which: int, nodes: set[int]) -> None:
        client = self.clients[which]
        self.messages += [Message(kind, which, client.owner, client.round, node) for node in sorted(nodes)]

    def _begin(self, which: int, kind: str) -> None:
        client = self.clients[which]
        client.round, client.kind, client.sent, client.confirmed = self._next(), kind, self.now, set()
        self._send(kind, which, set(range(NODES)))

    def _is_valid(self, client: Client) -> bool:
        return client.holds and self.now < client.valid_until

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        self.keys = [None if key is None or key.ends <= self.now else key for key in self.keys]

    @rule(which=st.integers(0, CLIENTS - 1))
    def go_on(self, which: int) -> None:
        """A client begins an attempt, or renews what it has."""
        client = self.clients[which]
        if self._is_valid(client):
            self._begin(which, RENEW)
            return
        client.holds, client.owner = False, self._next()
        self._begin(which, TAKE)

    @rule(which=st.integers(0, CLIENTS - 1))
    def give_back(self, which: int) -> None:
        client = self.clients[which]
        self._send(LEAVE, which, set(range(NODES)))
        client.holds, client.round, client.confirmed = False, self._next(), set()

    @rule(which=INDEX, again=st.booleans())
    def execute(self, which: int, *, again: bool) -> None:
        """A request arrives, perhaps once more later."""
        if not self.messages:
            return
        which %= len(self.messages)
        message = self.messages[which] if again else self.messages.pop(which)
        done = self._at_node(message)
        client = self.clients[message.client]
        in_time = message.round == client.round and (client.kind == TAKE or self._is_valid(client))
        if done and in_time and message.kind == client.kind:
            client.confirmed.add(message.node)
            self._count(message.client)

    def _at_node(self, message: Message) -> bool:
        key, node = self.keys[message.node], message.node
        own = key is not None and key.owner == message.owner
        if message.kind == LEAVE:
            self.gone.add((message.owner, node))
            if own:
                self.keys[node] = None
            return False
        if (message.owner, node) in self.gone:
            return False
        free = key is None or (message.kind == JOIN and self.takes_from_others)
        if own or (free and message.kind != RENEW):
            self.keys[node] = Key(message.owner, self.now + TTL)
            return True
        return False

    def _count(self, which: int) -> None:
        client = self.clients[which]
        if len(client.confirmed) < QUORUM:
            return
        valid_until = (self.now if self.counts_from_arrival else client.sent) + TTL
        if valid_until <= self.now:
            return
        client.holds, client.valid_until = True, max(valid_until, client.valid_until if client.holds else 0)
        self._send(JOIN, which, set(range(NODES)) - client.confirmed)
        assert sum(map(self._is_valid, self.clients)) <= 1, "two hold the lock"

    @rule(nodes=st.sets(st.integers(0, NODES - 1), min_size=1))
    def lose_the_keys_of_nobody(self, nodes: set[int]) -> None:
        """What belongs to nobody who holds the lock, or who may still get it, may end earlier: an operator, a restart.

        What a node confirmed to an attempt must stay for its ttl: else the attempt counts a node that another has.
        """
        wanted = {client.owner for client in self.clients if self._is_valid(client) or client.confirmed}
        for node in nodes:
            key = self.keys[node]
            if key is not None and key.owner not in wanted:
                self.keys[node] = None


class LosingWhatWasConfirmed(Redlock):
    """A node comes back empty before the ttl of what it had is over."""

    @rule(node=st.integers(0, NODES - 1))
    def lose_a_key(self, node: int) -> None:
        self.keys[node] = None


class CountingFromTheArrival(Redlock):
    """What most libraries do: the lease begins when the answers have come."""

    counts_from_arrival = True


class TakingFromOthers(Redlock):
    """A node joins a holder whoever has the lock there."""

    takes_from_others = True


def check(machine: type[Redlock], *, examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_no_two_hold_the_lock_at_once() -> None:
    check(Redlock, examples=200)


def a_slow_answer(machine: Redlock) -> None:
    """The second node of a majority answers when half of the lease on the first is over."""
    machine.go_on(0)
    machine.execute(0, again=False)
    machine.pass_time(3)
    machine.execute(0, again=False)
    machine.pass_time(3)  # the first node has freed it
    machine.go_on(1)
    machine.execute(2, again=False)
    machine.execute(3, again=False)


def a_node_that_forgets(machine: Redlock) -> None:
    """A node confirms, forgets and gives the lock to another, before the first one has its majority."""
    machine.go_on(0)
    machine.execute(0, again=False)
    if isinstance(machine, LosingWhatWasConfirmed):
        machine.lose_a_key(0)
    else:
        machine.lose_the_keys_of_nobody({0})
    machine.go_on(1)
    machine.execute(2, again=False)
    machine.execute(2, again=False)
    machine.execute(1, again=False)
    machine.execute(1, again=False)


def a_late_join(machine: Redlock) -> None:
    """The request that joins a node to a lock arrives when another has the lock there."""
    machine.go_on(0)
    for _ in range(2):
        machine.execute(0, again=False)
    for _ in range(2):
        machine.pass_time(3)
    machine.go_on(1)
    machine.execute(2, again=False)
    machine.execute(3, again=False)  # the second client has it on the first and the last node
    machine.execute(1, again=False)  # the first one's join, to the last node
    machine.give_back(0)
    machine.execute(5, again=False)  # there, too
    machine.go_on(0)
    for _ in range(2):
        machine.execute(6, again=False)


@pytest.mark.parametrize(
    ("wrong", "history"),
    [
        (CountingFromTheArrival, a_slow_answer),
        (TakingFromOthers, a_late_join),
        (LosingWhatWasConfirmed, a_node_that_forgets),
    ],
)
def test_what_the_scheme_rests_on_is_what_keeps_two_out(
    wrong: type[Redlock], history: Callable[[Redlock], None]
) -> None:
    machine = Redlock()
    history(machine)
    assert sum(map(machine._is_valid, machine.clients)) == 1
    with pytest.raises(AssertionError, match="two hold the lock"):
        history(wrong())
