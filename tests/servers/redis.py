"""Redis: one server, several that know nothing of each other (as Redlock needs), and a primary under Sentinel."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, ClassVar

from tests.servers import programs, resp
from tests.servers.process import ASK_LIMIT, Group, Server, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.servers.certificates import Certificates


class Redis(Server):
    """``redis-server`` with its own configuration file."""

    programs: ClassVar[tuple[str, ...]] = ("redis-server",)

    def __init__(
        self,
        directory: Path,
        *,
        password: str | None = None,
        user: str | None = None,
        tls: Certificates | None = None,
        fsync: bool = False,
        replica_of: Redis | None = None,
        unix: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        """See the options.

        *password* is that of everybody, and also of the ACL user *user*. With *tls* the port speaks TLS only.
        With *fsync* every write is on the disk before its reply. *unix*: it listens at ``socket``, too.
        *extra* are lines of redis.conf.
        """
        super().__init__(directory)
        self.password = password
        self.user = user
        self.tls = tls
        self.socket = self.directory / "redis.sock"
        self._replica_of = replica_of
        self._lines = list(extra)
        if unix:
            self._lines.insert(0, f"unixsocket {self.socket}")
        if fsync:
            self._lines[:0] = ["appendonly yes", "appendfsync always"]

    @property
    def url(self) -> str:
        """``redis://`` or ``rediss://``, with what is needed to log in."""
        login = "" if self.password is None else f"{self.user or ''}:{self.password}@"
        return f"{'rediss' if self.tls else 'redis'}://{login}{self.address}"

    def _configure(self) -> None:
        lines = ["bind 127.0.0.1", f'dir "{self.directory}"', 'save ""', "databases 16", "repl-diskless-sync-delay 0"]
        lines += ["daemonize no", "protected-mode yes"]
        lines += self._listen()
        if self.password is not None:
            lines += [f"requirepass {self.password}", f"masterauth {self.password}"]
            if self.user is not None:
                lines.append(f"user {self.user} on >{self.password} ~* &* +@all")
        if self._replica_of is not None:
            lines.append(f"replicaof {self._replica_of.host} {self._replica_of.port}")
        (self.directory / "redis.conf").write_text("\n".join([*lines, *self._lines, ""]))

    def _listen(self) -> list[str]:
        if self.tls is None:
            return [f"port {self.port}"]
        # tls-replication: also to a primary, and of a sentinel to all others
        lines = ["port 0", f"tls-port {self.port}", "tls-auth-clients no", "tls-replication yes"]
        lines += [f'tls-ca-cert-file "{self.tls.ca}"', f'tls-cert-file "{self.tls.server_cert}"']
        return [*lines, f'tls-key-file "{self.tls.server_key}"']

    def _words(self) -> Sequence[str]:
        return [programs.find("redis-server"), str(self.directory / "redis.conf")]

    def _answers(self) -> bool:
        try:
            if self._replica_of is not None:
                return b"master_link_status:up" in self.ask("INFO", "replication")
            return bool(self.ask("PING") == b"PONG")
        except resp.RedisRefused:
            return False  # it is loading its data

    def connect(self, timeout: float = ASK_LIMIT) -> socket.socket:
        """A connection, with TLS if the server wants it, not logged in."""
        connection = socket.create_connection((self.host, self.port), timeout)
        try:
            return (
                connection
                if self.tls is None
                else self.tls.context().wrap_socket(connection, server_hostname=self.host)
            )
        except BaseException:
            connection.close()
            raise

    def ask(self, *words: str | bytes | float, timeout: float = ASK_LIMIT) -> Any:
        """The reply to a command: bytes, int, list or ``None``. Raises ``resp.RedisRefused`` with its error."""
        login = [("AUTH", self.password)] if self.password is not None else []
        with self.connect(timeout) as connection:
            return resp.ask(connection, *login, words)

    def command(self, *words: str | bytes | float, timeout: float = 10.0) -> str:
        """The reply as text; nothing is an empty text."""
        answer = self.ask(*words, timeout=timeout)
        return answer.decode() if isinstance(answer, bytes) else "" if answer is None else str(answer)

    def wipe(self) -> None:
        """Forget every key."""
        self.ask("FLUSHALL", timeout=10.0)


class Sentinel(Redis):
    """One sentinel of a ``RedisSentinel``."""

    def __init__(self, directory: Path, *, primary: Redis, name: str, quorum: int, password: str | None) -> None:
        """*password* is that of the sentinel itself; that of the primary and its TLS come from the primary."""
        super().__init__(directory, password=password, tls=primary.tls)
        self._primary = primary
        self._name = name
        self._quorum = quorum

    def _configure(self) -> None:
        name, primary = self._name, self._primary
        lines = [*self._listen(), "bind 127.0.0.1", f'dir "{self.directory}"']
        lines += [f"sentinel monitor {name} {primary.host} {primary.port} {self._quorum}"]
        lines += [f"sentinel down-after-milliseconds {name} 500", f"sentinel failover-timeout {name} 3000"]
        if primary.password is not None:
            lines.append(f"sentinel auth-pass {name} {primary.password}")
        if self.password is not None:
            lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
        (self.directory / "redis.conf").write_text("\n".join([*lines, ""]))

    def _words(self) -> Sequence[str]:
        return [*super()._words(), "--sentinel"]

    def knows(self, replicas: int, sentinels: int) -> bool:
        """Whether it has found that many replicas and other sentinels."""
        flat = self.ask("SENTINEL", "MASTER", self._name)
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        return (int(found[b"num-slaves"]), int(found[b"num-other-sentinels"])) == (replicas, sentinels)


class RedisSentinel(Group):
    """A primary, a replica of it, and sentinels that replace the one by the other within two seconds."""

    def __init__(
        self,
        directory: Path,
        *,
        sentinels: int = 3,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: Certificates | None = None,
    ) -> None:
        """A majority of the *sentinels* must agree that the primary is down."""
        self.name = "main"
        self.primary = Redis(directory / "primary", password=password, tls=tls)
        self.replica = Redis(directory / "replica", password=password, tls=tls, replica_of=self.primary)
        self.sentinels = [
            Sentinel(
                directory / f"sentinel{number}",
                primary=self.primary,
                name=self.name,
                quorum=sentinels // 2 + 1,
                password=sentinel_password,
            )
            for number in range(sentinels)
        ]
        self.members: list[Redis] = [self.primary, self.replica, *self.sentinels]

    @property
    def sentinel_addresses(self) -> list[str]:
        """``HOST:PORT`` of each sentinel."""
        return [each.address for each in self.sentinels]

    def _launch(self) -> None:
        # the sentinels look for replicas at once, and then only every ten seconds
        for each in (self.primary, self.replica):
            if not each.running:
                each.launch()
        self.primary.await_answer()
        self.replica.await_answer()
        super()._launch()

    def _await_agreement(self) -> None:
        for each in self.sentinels:
            wait_until(lambda: each.knows(1, len(self.sentinels) - 1), f"{each} knows the others")  # noqa: B023
