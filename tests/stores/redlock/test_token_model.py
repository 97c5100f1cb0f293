"""Why Redlock's tokens are unique and rise: a model of its nodes, and every order of events that Hypothesis finds.

The adversary delays and orders requests as it likes, lets any key expire at any moment, and has a request that
was given up executed later. Only one thing is assumed: the counter of a node never falls. The same model finds
the mistakes in the simpler schemes, so it has teeth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

NODES = 3
QUORUM = 2
CLIENTS = 3  # that may be under way at the same time
INDEX = st.integers(0, 11)
SOME = st.sets(st.integers(0, NODES - 1), min_size=1)


class Key(NamedTuple):
    """What a node has under the key of the lock."""

    owner: int
    counter: int  # that the node gave, or the token once it took it over


class Attempt:
    """One client on its way to a lock."""

    def __init__(self, owner: int, began: int) -> None:
        self.owner = owner
        self.began = began
        self.given: dict[int, int] = {}
        self.token: int | None = None
        self.taken_over: set[int] = set()

    def is_ready(self) -> bool:
        """Whether a majority gave it the lock, and the token is still to be computed."""
        return self.token is None and len(self.given) >= QUORUM


class Redlock(RuleBasedStateMachine):
    """The scheme of ``lockctl.stores.redlock.lock``."""

    writes_back = True
    compares: str | None = "value"

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0
        self.keys: list[Key | None] = [None] * NODES
        self.counters = [0] * NODES
        self.attempts: list[Attempt] = []
        self.asked: list[tuple[int, int]] = []  # first requests: they may be executed once more
        self.grants: list[tuple[int, int, int]] = []  # began, ended, token
        self.holders: list[Key] = []  # owner and token of each grant

    @initialize(counters=st.tuples(*[st.integers(0, 4)] * NODES))
    def begin(self, counters: tuple[int, ...]) -> None:
        self.counters = list(counters)

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _give(self, owner: int, node: int) -> int | None:
        key = self.keys[node]
        if key is not None:
            return key.counter if key.owner == owner else None
        self.counters[node] += 1
        self.keys[node] = Key(owner, self.counters[node])
        return self.counters[node]

    @rule(which=INDEX, nodes=SOME)
    def ask(self, which: int, nodes: set[int]) -> None:
        """The first request of an attempt, new or not, reaches some nodes, perhaps for the second time."""
        which %= CLIENTS
        if which >= len(self.attempts):
            now = self._tick()
            self.attempts.append(Attempt(now, now))
        attempt = self.attempts[min(which, len(self.attempts) - 1)]
        if attempt.token is not None:
            return
        for node in nodes:
            self.asked.append((attempt.owner, node))
            given = self._give(attempt.owner, node)
            if given is not None:
                attempt.given[node] = given

    @precondition(lambda self: any(each.is_ready() for each in self.attempts))
    @rule(which=INDEX)
    def decide(self, which: int) -> None:
        """A majority gave the lock: the token is the largest counter."""
        ready = [each for each in self.attempts if each.is_ready()]
        attempt = ready[which % len(ready)]
        attempt.token = max(attempt.given.values())
        if not self.writes_back:
            self._grant(attempt)

    @precondition(lambda self: any(each.token is not None for each in self.attempts))
    @rule(which=INDEX, nodes=SOME)
    def take_over(self, which: int, nodes: set[int]) -> None:
        """The second request: some nodes are to take the token over."""
        decided = [each for each in self.attempts if each.token is not None]
        attempt = decided[which % len(decided)]
        assert attempt.token is not None
        for node in nodes:
            if self.compares is not None:
                key, given = self.keys[node], attempt.given.get(node)
                if given is None or key is None or key.owner != attempt.owner:
                    continue
                if self.compares == "value" and key.counter != given:
                    continue
                self.keys[node] = Key(attempt.owner, attempt.token)
                attempt.given[node] = attempt.token
            self.counters[node] = max(self.counters[node], attempt.token)
            attempt.taken_over.add(node)
        if len(attempt.taken_over) >= QUORUM:
            self._grant(attempt)

    def _grant(self, attempt: Attempt) -> None:
        assert attempt.token is not None
        now = self._tick()
        for began, ended, token in self.grants:
            assert token != attempt.token, "two grants have the same token"
            assert not (ended < attempt.began and token > attempt.token), "a later grant has a smaller token"
            assert not (now < began and attempt.token > token), "a later grant has a smaller token"
        self.grants.append((attempt.began, now, attempt.token))
        self.holders.append(Key(attempt.owner, attempt.token))
        self.attempts.remove(attempt)

    @rule(nodes=SOME)
    def expire(self, nodes: set[int]) -> None:
        """Any key may end at any moment: by its ttl, a clock that jumps, a release, or an operator."""
        for node in nodes:
            self.keys[node] = None

    @precondition(lambda self: bool(self.holders))
    @rule(which=INDEX, nodes=SOME)
    def join(self, which: int, nodes: set[int]) -> None:
        """Some nodes have the lock of a holder put back, perhaps after it has ended."""
        holder = self.holders[which % len(self.holders)]
        for node in nodes:
            key = self.keys[node]
            if key is None or key.owner == holder.owner:
                self.keys[node] = holder
                self.counters[node] = max(self.counters[node], holder.counter)

    @precondition(lambda self: bool(self.asked))
    @rule(which=INDEX)
    def execute_late(self, which: int) -> None:
        """A request whose sender has given it up, or got its answer long ago, is executed (again)."""
        owner, node = self.asked[which % len(self.asked)]
        self._give(owner, node)

    @precondition(lambda self: len(self.attempts) == CLIENTS)
    @rule(which=INDEX)
    def give_up(self, which: int) -> None:
        del self.attempts[which % CLIENTS]


class WithoutTakingOver(Redlock):
    """What one would write first: the largest counter of a majority, and that is it."""

    writes_back = False


class TakingOverAnyway(Redlock):
    """Every node takes the token over, whoever has the lock by then."""

    compares = None


class ComparingTheOwner(Redlock):
    """A node takes the token over if it has a lock of the same owner, which may be one that came late."""

    compares = "owner"


def check(machine: type[Redlock], *, examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_no_two_grants_have_the_same_token_and_later_ones_have_larger_ones() -> None:
    check(Redlock, examples=200)


def test_the_model_finds_what_is_wrong_without_taking_over() -> None:
    with pytest.raises(AssertionError, match="token"):
        check(WithoutTakingOver, examples=20_000)


def equal_tokens(machine: Redlock) -> None:
    """Two clients on overlapping majorities, the second after a key of the first has expired."""
    machine.begin((4, 0, 4))
    machine.ask(0, {0, 1})  # gets 5 and 1
    machine.expire({1})
    machine.ask(1, {1, 2})  # gets 2 and 5
    machine.decide(0)
    machine.decide(0)
    machine.take_over(0, {0, 1})
    machine.take_over(len(machine.attempts) - 1, {1, 2})


def equal_tokens_by_a_late_request(machine: Redlock) -> None:
    """The same, and a request of the first client that comes late puts its lock back."""
    machine.begin((4, 0, 4))
    machine.ask(0, {0, 1})  # gets 5 and 1
    machine.expire({1})
    machine.ask(1, {1, 2})  # gets 2 and 5
    machine.decide(0)
    machine.decide(0)
    machine.take_over(1, {1, 2})
    machine.expire({1})
    machine.execute_late(1)  # of the first client, to node 1
    machine.take_over(0, {0, 1})


@pytest.mark.parametrize("history", [equal_tokens, equal_tokens_by_a_late_request])
@pytest.mark.parametrize("kind", [TakingOverAnyway, ComparingTheOwner, Redlock])
def test_the_comparison_of_the_whole_value_is_what_keeps_tokens_unique(
    kind: type[Redlock], history: Callable[[Redlock], None]
) -> None:
    machine = kind()
    if kind is Redlock or (kind is ComparingTheOwner and history is equal_tokens):
        history(machine)
        assert len(machine.grants) == 1
    else:
        with pytest.raises(AssertionError, match="two grants have the same token"):
            history(machine)
