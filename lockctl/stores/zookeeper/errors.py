"""What it means that servers refuse a connection or a request, and the words for it."""

from __future__ import annotations

import os

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.wire.stream import Closed, Nobody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.wire.deadline import Deadline

    Server = tuple[str, int]

FULL = "more connections from this host than maxClientCnxns in zoo.cfg (60 unless changed)"
CLOSES = f"it closes the connection: no quorum, {FULL}, not ZooKeeper, or a port for TLS (zookeepers://)"
CLOSES_KNOWN = f"it closes the connection: no quorum, {FULL}, or its data are older than what this session has seen"


class SessionLost(Exception):
    """The server has ended the session, and with it all its nodes."""


def refusal(place: Place, failure: Exception, path: str) -> BackendUnavailable:
    """The error that says how the server refused a request for a node, for no reason that has a remedy."""
    return BackendUnavailable(f"{place}: the server refuses {printable(path)}: {type(failure).__name__}")


def usable(place: Place, answer: Any, path: str) -> Any:
    """An answer about a node that is no refusal. Raises ``BackendUnavailable``."""
    if isinstance(answer, Exception):
        raise refusal(place, answer, path)
    return answer


def or_none(place: Place, answer: Any, path: str) -> Any:
    """As :func:`usable`, and ``None`` if there is no such node."""
    from kazoo.exceptions import NoNodeError

    return None if isinstance(answer, NoNodeError) else usable(place, answer, path)


def check_rights(place: Place, answers: Iterable[Any]) -> None:
    """Raise ``ConfigError`` if one of these answers says that the ACL of a node keeps us out."""
    from kazoo.exceptions import InvalidACLError, NoAuthError

    if any(isinstance(answer, (NoAuthError, InvalidACLError)) for answer in answers):
        raise ConfigError(
            f"{place}: no permission below {place.root}: check user and password, and the ACLs, which must give them"
            " create, read and delete there, and below also write"
        )


class NotAccepted(ConfigError):
    """The servers do not accept who we are."""

    def __init__(self, place: Place) -> None:
        """*place* says as whom we come."""
        wants = (
            "wants a user name and a password" if place.user is None else "does not accept the user name or password"
        )
        super().__init__(f"{place}: the server {wants}")


class Servers:
    """The servers of an ensemble, and how attempts to connect to them have failed."""

    def __init__(self, place: Place, last: Server | None) -> None:
        """Nothing has failed yet."""
        self.place = place
        self.failures: dict[Server, Exception] = {}  # of the last attempt at each server
        self.last = last  # the one that answered last
        self.avoided: Server | None = None  # the one that failed last

    @property
    def all_failed(self) -> bool:
        """Whether an attempt to connect to each of the servers was the last one, and failed."""
        return len(self.failures) == len(self.place.hosts)

    def in_turn(self) -> list[Server]:
        """All by chance, but first the one that answered last, and at the end the one that failed last."""
        chance = {server: os.urandom(4) for server in self.place.hosts}
        return sorted(chance, key=lambda each: (each == self.avoided, each != self.last, chance[each]))

    def note(self, server: Server, failure: Exception, deadline: Deadline) -> None:
        """An attempt has failed; if the time was too short for it, an earlier one tells more."""
        self.avoided = server
        if deadline.left() > 0 or server not in self.failures:
            self.failures[server] = failure

    def say_nothing(self) -> bool:
        """Whether at the last attempt each of them has closed the connection, and said nothing."""
        return self.all_failed and all(isinstance(failure, Closed) for failure in self.failures.values())

    def check(self, *, known: bool, begun: bool) -> None:
        """Raise if all servers refuse us for good, or if it has *begun* in vain: no server is there."""
        failures = self.failures.values()
        if self.all_failed and all(isinstance(failure, ConfigError) for failure in failures):
            raise ConfigError(f"{self.place}: {self.in_words(known=known)}")
        if self.all_failed and begun and all(isinstance(failure, Nobody) for failure in failures):
            raise BackendUnavailable(f"{self.place}: {self.in_words(known=known)}")

    def in_words(self, *, known: bool) -> str:
        """One reason of each server on one line, equal ones together; *known*: the session has seen data of theirs."""
        closes = CLOSES_KNOWN if known else CLOSES
        reasons: dict[str, list[str]] = {}
        for server, failure in sorted((self.place.shown(server), failure) for server, failure in self.failures.items()):
            reason = str(failure).removeprefix(f"{server}: ").removeprefix("cannot connect: ")
            reasons.setdefault(closes if isinstance(failure, Closed) else reason, []).append(server)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{', '.join(servers)}: {reason}" for reason, servers in reasons.items())
