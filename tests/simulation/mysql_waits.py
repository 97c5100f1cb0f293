"""What must hold for those who wait at a server of MySQL: who can be told does not look, and nobody asks without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.mysql_server import MysqlServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History

MOST = 60  # statements of a run, or an operator, in a second: newcomers look often at first
SHOWN_AGAIN = 3.0  # seconds, after the end of a connection, until its owner is seen again: that of the next renewal
LONG = 5.0  # seconds of a wait of which can be said how much of it was spent with looks
PART = 0.75  # that is too much of it: between two seconds in which it is told, a waiter may look for one


def violations(history: History) -> Iterator[str]:
    """What is wrong, each in one line that begins with its kind."""
    server, runs = history.servers[0], history.plan.runs
    if not isinstance(server, MysqlServer):
        return
    for (host, second), count in server.asked.items():
        if count > MOST * (1 + sum(each.host == host for each in runs)):
            yield f"restless: {history.network.hosts[host].name} asks {count} times in second {second}"
    if history.plan.slowest > 0.05 or any(each.kind != "ended" for each in history.plan.faults):
        return
    for record in history.records:
        for owner in record.seen_after:
            yield f"untold: {record.name} has given back what {owner[:6]} has, and who is behind it is not told"
    alone = all(each.mode == "exclusive" and len(each.locks) == 1 and not each.min_hold for each in runs)
    if not alone:
        return
    ends = [each.at for each in history.plan.faults]
    for record in history.records:
        until = record.granted[0].known if record.granted else record.ended
        since = max([record.plan.start, *[at for at in ends if at < until]]) + SHOWN_AGAIN
        looked = sum(
            max(0.0, min(end, until) - max(begin, since)) for who, begin, end in server.looked if who is record.keeper
        )
        if until - since > LONG and looked > PART * (until - since):
            yield f"restless: {record.name} looks for {looked:.3f} s from {since:.3f} on, and is not told"
