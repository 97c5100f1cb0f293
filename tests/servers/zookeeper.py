"""ZooKeeper: one server, or an ensemble.

python -m tests.servers.zookeeper    have the next ones start sooner
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import kazoo.retry

from tests.servers import programs
from tests.servers.process import ASK_LIMIT, Group, Server, ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.certificates import Certificates

# the threads of a client draw their pauses: not from the generator that Hypothesis watches in another test
kazoo.retry.random = random.SystemRandom()

# A small heap, the quick compiler only, and no thread of the garbage collector: it starts in half the time.
JAVA_OPTIONS = ("-Xmx128m", "-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
ARCHIVE = programs.UNPACKED.with_name("zookeeper.jsa")  # the classes that a server loads, ready to be mapped
SETTINGS = ("zookeeper.preAllocSize=1024", "org.slf4j.simpleLogger.defaultLogLevel=warn")  # KiB of a log file: 64 MiB
LONGEST_SESSION = 80_000  # milliseconds; 20 ticks by default: a busy machine would outlast leases of half of that
NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "snappy-java", "metrics-core", "commons-cli")
NETTY = ("netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport")
NETTY_NATIVE = ("netty-transport-native-epoll", "netty-transport-native-unix-common")


def _java(main: str, *words: str, settings: Sequence[str] = ()) -> list[str]:
    beside = Path(programs.find("zookeeper.jar")).parent
    jars = [beside / f"{name}.jar" for name in (*NEEDED, *NETTY, *NETTY_NATIVE)]
    path = ":".join(str(jar) for jar in jars if jar.exists())
    defined = [f"-D{setting}" for setting in (*SETTINGS, *settings)]
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
    return [programs.find("java"), *JAVA_OPTIONS, *archive, *defined, "-cp", path, main, *words]


class ZooKeeper(Server):
    """One ZooKeeper server: alone, or a member of a ``ZooKeeperEnsemble``."""

    programs: ClassVar[tuple[str, ...]] = ("java", "zookeeper.jar")

    def __init__(
        self,
        directory: Path,
        *,
        tick: int = 500,
        tls: Certificates | None = None,
        member: int = 1,
        extra: Sequence[str] = (),
    ) -> None:
        """See the options.

        *tick* in milliseconds: sessions last two of them at least, and ``LONGEST_SESSION`` at most. With *tls* it listens on ``tls_port``, too,
        and asks nobody for a certificate but with ``ssl.clientAuth=need`` in *extra*, which are lines of zoo.cfg.
        """
        super().__init__(directory)
        self.tick = tick
        self.tls = tls
        self.tls_port = free_port() if tls else 0
        self.member = member
        self.peers = (free_port(), free_port())  # for the followers, and for elections
        self.ensemble: list[ZooKeeper] = []
        self._extra = list(extra)

    def _configure(self) -> None:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.member}\n")
        lines = [f"tickTime={self.tick}", "initLimit=40", "syncLimit=10", f"dataDir={data}"]
        lines += [f"clientPort={self.port}", f"clientPortAddress={self.host}", "maxClientCnxns=0"]
        lines += [f"maxSessionTimeout={LONGEST_SESSION}", "admin.enableServer=false", "4lw.commands.whitelist=*"]
        if self.tls is not None:
            lines += [f"secureClientPort={self.tls_port}", f"secureClientPortAddress={self.host}"]
            lines += ["serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth=none"]
            both = self.directory / "server.pem"
            both.write_text("".join(Path(part).read_text() for part in (self.tls.server_key, self.tls.server_cert)))
            lines += [f"ssl.keyStore.location={both}", "ssl.keyStore.type=PEM"]
            lines += [f"ssl.trustStore.location={self.tls.ca}", "ssl.trustStore.type=PEM"]
        for other in self.ensemble:
            follow, elect = other.peers
            lines.append(f"server.{other.member}={other.host}:{follow}:{elect}")
        (self.directory / "zoo.cfg").write_text("\n".join([*lines, *self._extra, ""]))

    def _words(self) -> Sequence[str]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return _java(main, str(self.directory / "zoo.cfg"))

    def save(self) -> None:
        """Stop it, copy its data directory, and start it again."""
        self.stop()
        shutil.copytree(self.directory / "data", self.directory / "saved", dirs_exist_ok=True)
        self.start()

    def put_back(self) -> None:
        """Stop it, and start it with the copy of :meth:`save` in the place of its data directory."""
        self.stop()
        shutil.rmtree(self.directory / "data")
        shutil.copytree(self.directory / "saved", self.directory / "data")
        self.start()

    def _answers(self) -> bool:
        if self.tls is not None:
            socket.create_connection((self.host, self.tls_port), ASK_LIMIT).close()  # it listens there last
        # "ruok" is answered also by one that has no quorum
        return "Mode: " in self.four_letters("srvr")

    def four_letters(self, word: str, timeout: float = ASK_LIMIT) -> str:
        """The answer to a four letter word such as ``srvr``, ``cons`` or ``dump``. Raises ``OSError``."""
        with socket.create_connection((self.host, self.port), timeout) as connection:
            connection.sendall(word.encode())
            with connection.makefile("rb") as stream:
                return stream.read().decode()

    def mode(self) -> str:
        """``standalone``, ``leader``, ``follower``, or nothing while it has no quorum or does not answer."""
        try:
            answer = self.four_letters("srvr")
        except OSError:
            return ""
        return next((line[6:] for line in answer.splitlines() if line.startswith("Mode: ")), "")

    def command(self, *words: str, timeout: float = 30.0) -> str:
        """The output of the Java client for one command, which takes a second. Raises ``RuntimeError``."""
        line = _java("org.apache.zookeeper.ZooKeeperMain", "-server", self.address, *words)
        return programs.run(line, timeout=timeout)


class ZooKeeperEnsemble(Group):
    """Servers that elect a leader. Without a majority they serve nobody."""

    def __init__(self, directory: Path, *, members: int = 3, tick: int = 500, extra: Sequence[str] = ()) -> None:
        """*tick* and *extra* as of ``ZooKeeper``."""
        self.members: list[ZooKeeper] = [
            ZooKeeper(directory / f"m{number}", tick=tick, member=number, extra=extra)
            for number in range(1, members + 1)
        ]
        for member in self.members:
            member.ensemble = self.members

    @property
    def hosts(self) -> str:
        """``HOST:PORT,HOST:PORT,...`` as clients want it."""
        return ",".join(self.addresses)

    def leader(self) -> ZooKeeper:
        """The member that leads now. Raises ``ServerError`` when none does."""
        for member in self.members:
            if member.mode() == "leader":
                return member
        raise ServerError("no member leads")

    def followers(self) -> list[ZooKeeper]:
        """The members that follow now."""
        return [member for member in self.members if member.mode() == "follower"]


class _Archivist(ZooKeeper):
    """One that writes the archive when it ends."""

    def _words(self) -> Sequence[str]:
        java, *words = super()._words()
        return [java, f"-XX:ArchiveClassesAtExit={ARCHIVE}", *words]


if __name__ == "__main__":
    ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as made, contextlib.suppress(programs.ProgramMissing):
        _Archivist(Path(made)).start().stop()
