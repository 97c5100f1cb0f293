"""Programs that are not lockctl, and want the records of its locks: leaders, the lock client of AWS, clients of Redis.

They take a record that nobody has, or that stood still for the length of its lease, and renew it while they have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from tests.simulation.dynamodb import DynamoServer
    from tests.simulation.kubernetes import KubernetesServer
    from tests.simulation.network import Server
    from tests.simulation.redis import RedisServer

OBJECT = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
LEASE = 5  # seconds
RETRY = 1.0  # seconds between two looks, or renewals
LONGEST = 60.0  # seconds in which it wants the lock
TEXTS = 0.5  # of the clients of Redis: those that write strings
VANISHES = 0.5  # of those who have it: they give nothing back, and have it for as long as their last lease


class Other:
    """It has the lock for some *seconds*, and then ends. It runs on the machine of the server."""

    def __init__(self, server: Server, name: str, seconds: float, *, by_force: bool) -> None:
        """*by_force*: it takes what another has, as somebody does by hand."""
        self.by_force = by_force
        self.span: tuple[float, float] | None = None  # when it had the lock
        self.name = name
        self._me = f"another program of {Here.world.now:.3f}"
        self._server = server
        self._seconds = seconds
        self._record: Any = None  # as it was seen last, and since when it is so
        self._since = 0.0
        self._renewed: float | None = None  # when its lease began
        self._until = Here.world.now + LONGEST

    def start(self) -> None:
        """Ask for the lock, or renew it."""
        now = Here.world.now
        if self._server.up:
            record, holder, lease = self.look()
            if record != self._record:
                self._record, self._since = record, now
            takes = self.by_force and self.span is None
            if takes or holder in (None, self._me) or now >= self._since + lease:
                self._have(now)
            elif self.span is not None:
                self.span = self.span[0], min(self.span[1], self._since)
        if (self.span is None and now < self._until) or (self.span is not None and self.span[1] == INFINITE):
            Here.world.at(now + RETRY, self.start)

    def _have(self, now: float) -> None:
        if self.span is None:
            Here.world.tell(self._me, f"has the lock for {self._seconds:.3f} s")
            self.span = now, INFINITE
        is_over = now >= self.span[0] + self._seconds
        if is_over and self._renewed is not None and Here.world.chance() < VANISHES:
            Here.world.tell(self._me, "is not heard of any more, and goes on to the end of its lease")
            self.span = self.span[0], self._renewed + LEASE
            return
        if is_over:
            Here.world.tell(self._me, "ends")
            self.span = self.span[0], now
        self._renewed = now
        self.write(now, has_it=not is_over)

    def look(self) -> tuple[Any, str | None, float]:
        """The record, who has it, and for how many seconds it may stand still."""
        raise NotImplementedError

    def write(self, now: float, *, has_it: bool) -> None:
        """Take or renew the record, or give it back."""
        raise NotImplementedError


class Elector(Other):
    """It leads by the Lease, as client-go has it: what else is in the object stays there."""

    _server: KubernetesServer

    def look(self) -> tuple[Any, str | None, float]:
        spec = self._server.objects.get(self.name, {}).get("spec", {})
        return dict(spec), spec.get("holderIdentity") or None, spec.get("leaseDurationSeconds", 0)

    def write(self, now: float, *, has_it: bool) -> None:
        there = self._server.objects.get(self.name, {})
        spec = {"holderIdentity": self._me if has_it else "", "leaseDurationSeconds": LEASE if has_it else 1}
        made = {
            **OBJECT,
            **there,
            "metadata": there.get("metadata", {"name": self.name}),
            "spec": {**spec, "renewTime": f"{now}"},
        }
        self._server.put(200, self.name, made, made["metadata"].get("uid", "another"))


class LockClient(Other):
    """It has the item, as the lock client of AWS has it: one that it takes is written anew."""

    _server: DynamoServer

    def look(self) -> tuple[Any, str | None, float]:
        item = self._server.items.get(self.name, {})
        owner = None if "isReleased" in item else item.get("ownerName", {}).get("S")
        return dict(item), owner, float(item.get("leaseDuration", {}).get("S", 0)) / 1000

    def write(self, now: float, *, has_it: bool) -> None:
        record = {
            "recordVersionNumber": f"{now}",
            "leaseDuration": f"{1000 * LEASE}",
            "ownerName": self._me,
            "key": self.name,
        }
        record.update({} if has_it else {"isReleased": "1"})
        self._server.put(self.name, {name: {"S": content} for name, content in record.items()})


class RedisClient(Other):
    """It has the key, of the type that its library writes: a string, or a hash."""

    _server: RedisServer

    def __init__(self, server: Server, name: str, seconds: float, *, by_force: bool) -> None:
        super().__init__(server, name, seconds, by_force=by_force)
        self._key = f"lockctl:{name}".encode()
        me = self._me.encode()
        self._content: Any = me if Here.world.chance() < TEXTS else {me: b"1"}

    def look(self) -> tuple[Any, str | None, float]:
        content = self._server.data.get(self._key)
        owner = None if content is None else self._me if content == self._content else "another"
        return content, owner, INFINITE  # the server ends what nobody renews

    def write(self, now: float, *, has_it: bool) -> None:
        if has_it:
            self._server.data.keys[self._key] = (self._content, 1000 * (self._server.clock.wall() + LEASE))
        else:
            self._server.data.keys.pop(self._key, None)  # it may have ended
