"""What would break locks on a majority of Redis servers: what breaks each of them, and what they have in common."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.finding import Check, Examination
from lockctl.stores.redis import doctor as of_redis
from lockctl.stores.redlock.nodes import from_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

LONGEST_TURN = 5.0  # seconds for one node, so that there is time for all

NODES = Check(
    "redlock.nodes",
    "Without a majority of its servers no lock can be acquired or renewed.",
    "start the servers that are missing; one that comes back empty must stay away for the longest ttl",
)
NUMBER = Check(
    "redlock.number",
    "An even number of servers may lose no more of them than the odd number before it.",
    "add a server to the URL of all users, or remove one",
)
INDEPENDENT = Check(
    "redlock.independent",
    "Servers that are one, or copies of each other, fail together, and a majority of them means nothing.",
    "name independent primaries, without replication between them",
)
CHECKS = (NODES, NUMBER, INDEPENDENT)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at all servers of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    members = from_url(url)
    identities: list[str] = []
    missing: list[str] = []
    for place in members.places:
        part = Examination(place.where, found.ttl)
        try:
            facts = of_redis.examine_server(place, members.login, members.prefix, part, deadline.sooner(LONGEST_TURN))
        except LockctlError as problem:
            missing.append(str(problem))
        else:
            found.join(part)
            identities += [str(facts["run_id"])] if facts else []
    count, there = len(members.places), len(members.places) - len(missing)
    if not there:
        raise BackendUnavailable("; ".join(missing))
    seen = "; ".join([f"{there} of {count} answer", *missing])
    found.judge(NODES, seen, fails=there <= count // 2, warns=bool(missing))
    found.judge(NUMBER, str(count), warns=count % 2 == 0)
    same = len(identities) - len(set(identities))
    copies = sum(finding.id == of_redis.ROLE.id and finding.level != "ok" for finding in found.findings)
    seen = f"{same} are another name of one server, {copies} are replicas" if same or copies else "no two are the same"
    found.judge(INDEPENDENT, seen, fails=bool(same or copies))
