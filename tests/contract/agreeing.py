"""What every backend grants and refuses is what the pure machine of a lock does, on random histories."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from lockctl.errors import ConfigError
from lockctl.locks.machine import Lock
from lockctl.model import EXCLUSIVE, SHARED, SLOT
from tests.contract.harness import LIMIT, queue_up
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Claim, Grant
    from tests.contract.harness import Harness

CLIENTS = 4
STEPS = 24
SLOTS = 2
REFUSED, WRONG = "refused", "wrong number of slots"


class Participant:
    """One client and what it has: a claim that holds or waits, or nothing."""

    def __init__(self, client: Backend) -> None:
        self.client = client
        self.claim: Claim | None = None
        self.grant: Grant | None = None


class History:
    """The same steps, made by a backend and by the machine."""

    def __init__(self, harness: Harness, clients: list[Backend], name: str, seed: str) -> None:
        self.harness = harness
        self.name = name
        self.random = random.Random(seed)
        self.machine = Lock()
        self.at = 1.0  # nothing ends by itself here
        self.observer, *others = clients
        self.participants = [Participant(client) for client in others]

    def run(self) -> Iterator[str]:
        """Make all steps; gives what each of them was. Raises ``AssertionError`` where the two do not agree."""
        promised = self.harness.capabilities
        modes = [EXCLUSIVE] + [SHARED] * promised.shared + [SLOT] * promised.slots
        for _ in range(STEPS):
            one = self.random.choice(self.participants)
            mode = self.random.choice(modes)
            step = self.random.choice(["take", "take", "leave", "renew", "queue up", "queue up"])
            yield f"{self.participants.index(one)} {step} {mode}"
            if step == "take":
                self.take(one, mode)
            elif step == "leave":
                self.leave(one)
            elif step == "renew" and one.grant is not None:
                assert one.client.renew(one.grant, timeout=LIMIT).token == one.grant.token
            elif step == "queue up" and one.claim is None and promised.fair and promised.lists_waiters:
                self.queue_up(one, mode)

    def new_claim(self, mode: str) -> Claim:
        return self.harness.claim(self.name, mode=mode, slots=SLOTS if mode == SLOT else 1)

    def take(self, one: Participant, mode: str) -> None:
        claim = one.claim or self.new_claim(mode)
        before = None if one.grant is None else one.grant.token
        # of those who wait, some have not taken yet what is theirs: a newcomer may be refused until they have
        owed = one.claim is None and any(
            each.claim is not None and each.grant is None and self.machine.is_open_to(each.claim)
            for each in self.participants
        )
        try:
            holder = self.machine.take(claim, self.at)
            expected = REFUSED if holder is None else "granted"
        except ConfigError:
            expected = WRONG
        try:
            grant = one.client.try_acquire(claim, timeout=LIMIT)
            got = REFUSED if grant is None else "granted"
        except ConfigError:
            grant, got = None, WRONG
        if got == WRONG and expected == REFUSED:  # some tell it already to those who come after who waits
            assert any(each.get("slots", 1) != claim.slots for each in self.machine.queue.values())
            expected = WRONG
        if got == REFUSED and expected == "granted" and not owed and self.harness.capabilities.connection_held:
            # behind a pooler the end of a connection that held or waited is seen a moment later
            grant = eventually(lambda: one.client.try_acquire(claim, timeout=LIMIT))
            got = "granted"
        if got == REFUSED and expected == "granted" and owed:
            self.machine.leave(claim.owner, self.at)
            expected = REFUSED
        assert got == expected, f"{got}, the machine says {expected}"
        if grant is not None:
            assert before in {None, grant.token}
            one.claim, one.grant = claim, grant
        elif one.claim is None:
            one.client.withdraw(claim, timeout=LIMIT)

    def leave(self, one: Participant) -> None:
        if one.claim is not None:
            self.machine.leave(one.claim.owner, self.at)
            if one.grant is not None:
                one.client.release(one.grant, timeout=LIMIT)
            else:
                one.client.withdraw(one.claim, timeout=LIMIT)
        one.claim = one.grant = None

    def queue_up(self, one: Participant, mode: str) -> None:
        """Take a place where there is a queue: who can enter has none, and who says another number waits for nobody."""
        claim = self.new_claim(mode)
        others = {each.get("slots", 1) for each in (*self.machine.holders.values(), *self.machine.queue.values())}
        if self.machine.is_open_to(claim) or others != {claim.slots}:
            return
        queue_up(one.client, claim, self.observer)
        self.machine.line_up(claim, self.at)
        one.claim = claim

    def close(self) -> None:
        for one in self.participants:
            self.leave(one)


class Agreeing:
    """The machine is the oracle for every lock that a server keeps in its own way."""

    def test_a_random_history_goes_as_in_the_machine(self, harness: Harness) -> None:
        clients = [harness.client() for _ in range(CLIENTS + 1)]
        for number in range(harness.histories):
            seed = os.environ.get("HISTORY_SEED") or os.urandom(4).hex()
            history = History(harness, clients, f"history-{number}", seed)
            made: list[str] = []
            try:
                made.extend(history.run())
            except AssertionError as wrong:
                raise AssertionError(f"seed {seed}, after {made}: {wrong}") from wrong
            history.close()
            assert clients[0].inspect(history.name, timeout=LIMIT).state == "free"
