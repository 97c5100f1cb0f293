"""A semaphore with more contenders than slots: never too many inside, and no slot empty while somebody waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl import registry
from tests.faults.backends import PLACES, on_sample
from tests.fleet.hosts import inspect
from tests.fleet.visits import INSIDE, visits
from tests.jobs import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

# where looks cost money, waiters look less often
WITH_SLOTS = [
    name
    for name in PLACES
    if registry.load(name).capabilities.slots and registry.load(name).capabilities.waiter_cost is None
]
CONTENDERS = 12
SLOTS = 3


@pytest.mark.parametrize("backend_name", on_sample(*WITH_SLOTS))
def test_contenders_never_overbook_three_slots_and_leave_none_idle(lockctl: Lockctl, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    words = ("run", "-l", "a", "--slots", str(SLOTS), "--wait", "120s", "--", "sh", "-c")
    until = 'while ! test -e "$0"; do sleep 0.1; done'
    before = [lockctl.start(*words, until, str(gate)) for _ in range(SLOTS)]
    eventually(lambda: len(inspect(lockctl, "a")["holders"]) == SLOTS, 60)
    jobs = [lockctl.start(*words, INSIDE, str(log), str(number)) for number in range(CONTENDERS)]
    eventually(lambda: len(inspect(lockctl, "a")["waiters"]) == CONTENDERS, 60)
    gate.touch()
    assert [job.wait(120) for job in (*before, *jobs)] == [0] * (SLOTS + CONTENDERS)
    inside, most, full, began = 0, 0, 0.0, 0.0
    events = visits(log)
    last_entry = max(moment for moment, sign, _ in events if sign == "+")
    for moment, sign, _ in events:
        if inside == SLOTS:
            full += min(moment, last_entry) - began
        inside += 1 if sign == "+" else -1
        most, began = max(most, inside), min(moment, last_entry)
    assert most == SLOTS
    work = last_entry - events[0][0]
    assert full > 0.5 * work, f"{full:.1f} of {work:.1f} s all slots were taken; the rest is the start of commands"
    assert inspect(lockctl, "a")["state"] == "free"
