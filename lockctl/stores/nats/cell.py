"""Cells in the keys of a JetStream bucket: a write names the last message of the key that it is to follow.

The clock is that of the leader of the stream. A subscription tells of changes, and looks now and then see to those
that it missed.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen, jittered, sleep
from lockctl.model import Capabilities
from lockctl.names import printable
from lockctl.stores.nats.address import LOGINS, PARAMETERS, read_url
from lockctl.stores.nats.protocol import Bucket
from lockctl.stores.nats.session import Connection, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

CONFIRM = "confirm"  # a key that is written so that the leader shows that it is one
LOOK = 5.0  # seconds between looks without a message
STORED = 0.5  # seconds after its message in which a write is seen by a look
AGAIN = 0.01  # seconds between the looks of that time
KEEP_ALL = "--max-age=0 --max-bytes=-1 --max-msgs=-1 --max-msg-size=-1 --discard=new"  # of `nats stream edit`


class NatsCells(Cells):
    """The keys of one bucket."""

    clock_error = 1.0  # how far the clocks of the servers of a cluster may differ

    def __init__(self, bucket: Bucket) -> None:
        """Connects when it is first used."""
        self._bucket = bucket
        self.where = bucket.where
        self._watching: tuple[str, Connection] | None = None  # a key, and the connection that tells of its changes

    def read(self, key: str, deadline: Deadline) -> Seen:
        entry = self._bucket.get(key, deadline)
        return Seen(entry.data, entry.number, entry.at)

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        if data is None and seen.data is None:
            return self.read(key, deadline).version == seen.version
        assert isinstance(seen.version, int)
        return self._bucket.put(key, seen.version, data, deadline)

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        for key, entry in self._bucket.scan(prefix, deadline):
            yield key, Seen(entry.data, entry.number, entry.at)

    def confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        """See ``Cells``: a leader that has been replaced may not know that yet, but it cannot write."""
        self._bucket.put(CONFIRM, None, b"", deadline)
        return self.read(key, deadline).version == seen.version

    def refuse_forgetting(self) -> None:
        removing = forgets(self._bucket.config)
        if removing:
            raise ConfigError(
                f"{self.where}: it may remove keys by itself ({removing}), and old tokens would pass:"
                f" nats stream edit KV_{self._bucket.name} {KEEP_ALL}"
            )

    def watch(self, key: str, seen: Seen, deadline: Deadline, since: float | None = None) -> None:
        kept, self._watching = self._watching, None
        if kept is not None and kept[0] != key:
            kept[1].close()
            kept = None
        connection = kept[1] if kept else None
        try:
            if connection is None:
                connection = self._bucket.connect(deadline)
                connection.subscribe(self._bucket.subject(key), deadline)
            while deadline.left() > 0 and not self._changed(key, seen, deadline, connection):
                pass
        except BackendUnavailable:
            if connection is not None:
                connection.close()
            if deadline.left() > 0:
                raise
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        else:
            self._watching = (key, connection)

    def _changed(self, key: str, seen: Seen, deadline: Deadline, connection: Connection) -> bool:
        """Whether a cell has changed, after the next message about it or some seconds."""
        if self.read(key, deadline).version != seen.version:
            return True
        step = deadline.sooner(jittered(LOOK))
        try:
            message = connection.next(step)
        except BackendUnavailable:
            if step.left() > 0:
                raise
            return False
        if message.payload == seen.data:
            return False  # it tells what was seen already, such as our own write
        # the server passes a message on before the stream has it
        stored = deadline.sooner(STORED)
        while stored.left() > 0:
            if self.read(key, deadline).version != seen.version:
                return True
            sleep(AGAIN, deadline.interrupt, self.where)
        return False

    def close(self) -> None:
        self._bucket.close()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching[1].close()


def forgets(config: dict[str, Any]) -> str:
    """What in the configuration of a stream has the server remove keys by itself; empty: nothing does."""
    if is_set(config, "max_age"):
        return "max_age is set"
    limits = [name for name in ("max_bytes", "max_msgs") if is_set(config, name)]
    return f"discard is old, with {' and '.join(limits)}" if limits and config.get("discard") == "old" else ""


def storage(config: dict[str, Any]) -> tuple[str, bool]:
    """Where the messages of a stream are, as the server says it, and whether they survive a restart there."""
    where = config.get("storage")
    return printable(str(where)[:20]), where == "file"


def is_set(config: dict[str, Any], name: str) -> bool:
    """Whether there is such a limit."""
    most = config.get(name)
    return isinstance(most, int) and most > 0


class NatsBackend(CellBackend):
    """Locks in one bucket."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="nats",
        rate_error=0.01,
        heartbeat=2.0,
        freed_when="its lease has run out, and a second more, on the clock of the stream's leader",
        token_from="a counter in the key of the lock, never below that clock in microseconds; breaks if writes are"  # noqa: S106
        " lost, or the bucket is removed or put back, while that clock goes back",
        survives="restarts; with 3 replicas a minority of the servers, and another leader; a loss of power of all"
        " servers only with sync_interval: always",
        clocks="the servers' clocks agree within a second, and do not jump: the leader's ends the leases",
        period_clock="the leader's",
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        return not any(content and name in LOGINS for name, content in url.params)

    @classmethod
    def from_url(cls, url: Url) -> NatsBackend:
        """``nats://HOST,HOST/BUCKET/PREFIX``; raises ``ConfigError``."""
        address = read_url(url)
        load(address)
        return cls(NatsCells(Bucket(address)), address.prefix)
