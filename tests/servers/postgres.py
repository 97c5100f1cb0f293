"""PostgreSQL: one server with a database and a user for locks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.servers import programs
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.certificates import Certificates

SETTINGS = ("shared_buffers = 16MB", "max_connections = 120", "jit = off", "timezone = 'GMT'", "log_timezone = 'GMT'")


def _printed(field: object) -> str:
    """As psql prints it."""
    if isinstance(field, bool):
        return "t" if field else "f"
    return "" if field is None else str(field)


class Postgres(Server):
    """``postgres`` on a cluster of its own; an ordinary user runs it, as it wants."""

    programs: ClassVar[tuple[str, ...]] = ("postgres", "initdb", "psql")
    refuses_root: ClassVar[bool] = True
    stop_signal: ClassVar[int] = signal.SIGINT  # "fast": SIGTERM would wait until every client has gone
    superuser = "postgres"
    user, password, database = "lockctl", "s3cret", "lockctl"

    def __init__(
        self,
        directory: Path,
        *,
        auth: str = "trust",
        tls: Certificates | None = None,
        tls_only: bool = False,
        fsync: bool = True,
        extra: Sequence[str] = (),
    ) -> None:
        """See the options.

        *auth* is the method of pg_hba.conf by which ``user`` shows who it is. With *tls* both kinds of connection
        are served, with *tls_only* the other kind is refused. *extra* are lines of postgresql.conf.
        """
        super().__init__(directory)
        self.auth = auth
        self.tls = tls
        self.socket_directory = self.directory
        self._tls_only = tls_only
        self._extra = [f"fsync = {'on' if fsync else 'off'}", *extra]
        # where psql is psql: that on the PATH is a script of Debian that chooses among several versions
        self.bin = Path(programs.find("initdb")).resolve().parent

    @property
    def url(self) -> str:
        """``postgresql://`` of ``user`` and ``database``, with the password when it is asked for."""
        login = self.user if self.auth == "trust" else f"{self.user}:{self.password}"
        return f"postgresql://{login}@{self.address}/{self.database}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _configure(self) -> None:
        programs.run([*programs.as_ordinary_user(), "cp", "-a", str(self._fresh()), str(self._data)], timeout=120)
        lines = [f"port = {self.port}", f"listen_addresses = '{self.host}'", *SETTINGS]
        lines += [f"unix_socket_directories = '{self.socket_directory}'", "max_wal_size = 64MB", "min_wal_size = 2MB"]
        lines.append("dynamic_shared_memory_type = mmap")  # files of its own directory, which do not outlive it
        if self.auth == "md5":
            lines.append("password_encryption = 'md5'")
        if self.tls is not None:
            # its own copies: a key that others might read is refused
            for name, source in (("server.crt", self.tls.server_cert), ("server.key", self.tls.server_key)):
                shutil.copyfile(source, self._data / name)
                (self._data / name).chmod(0o600)
                if os.geteuid() == 0:
                    owner = self._data.stat()
                    os.chown(self._data / name, owner.st_uid, owner.st_gid)
            lines += ["ssl = on", f"ssl_ca_file = '{self.tls.ca}'"]
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write("\n".join([*lines, *self._extra, ""]))
        kind = "hostssl" if self._tls_only else "host"
        access = ["local all all trust", f"host all {self.superuser} 127.0.0.1/32 trust"]
        access.append(f"{kind} all all 127.0.0.1/32 {self.auth}")
        (self._data / "pg_hba.conf").write_text("\n".join([*access, ""]))

    def _fresh(self) -> Path:
        """A cluster that no server has run on: made once for all, as that takes ten times as long as a copy."""
        place = programs.UNPACKED.parent / f"postgresql-{self.bin.parent.name}"
        fresh = place / "data"
        if not fresh.exists():
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o777)  # an ordinary user writes there
            made = place / f"made-{os.getpid()}-{self.port}"
            # with --no-sync only the making is not flushed, which is nothing that a test relies on
            words = [str(self.bin / "initdb"), "-D", str(made), "-U", self.superuser, "-A", "trust", "-E", "UTF8"]
            words += ["--no-locale", "--no-sync", "--wal-segsize=1"]
            programs.run([*programs.as_ordinary_user(), *words], timeout=120)
            try:
                made.rename(fresh)
            except OSError:
                shutil.rmtree(made)  # another process was faster
        return fresh

    def _words(self) -> Sequence[str]:
        return [str(self.bin / "postgres"), "-D", str(self._data)]

    def _answers(self) -> bool:
        return self.command("select 1", database="postgres").strip() == "1"

    def _initialise(self) -> None:
        self.command(f"create role {self.user} login password '{self.password}'", database="postgres")
        self.command(f"create database {self.database} owner {self.user}", database="postgres")

    def command(self, statement: str, *, database: str | None = None, timeout: float = 10.0) -> str:
        """What psql would print for a statement of the superuser, fields divided by ``|``. Raises ``RuntimeError``."""
        import psycopg2  # not for those who start no such server

        place: dict[str, Any] = {"host": str(self.socket_directory), "port": self.port, "user": self.superuser}
        place |= {"dbname": database or self.database, "connect_timeout": round(timeout)}
        place["options"] = f"-c statement_timeout={timeout:g}s"  # and no statement more: some count what is done here
        try:
            with contextlib.closing(psycopg2.connect(**place)) as connection, connection.cursor() as cursor:
                connection.autocommit = True
                cursor.execute(statement)
                rows = [] if cursor.description is None else cursor.fetchall()
        except psycopg2.Error as error:
            raise RuntimeError(f"{self}: {statement}: {error}") from error
        return "".join(f"{'|'.join(map(_printed, row))}\n" for row in rows)

    def discard(self) -> None:
        """See ``Server``; what it shared in memory would outlive it when it is killed and not started again."""
        self.stop()
        left = self._data / "postmaster.pid"
        if left.exists():
            segment = left.read_text().splitlines()[6].split()[1]
            programs.run(["ipcrm", "--shmem-id", segment])
        super().discard()

    def wipe(self) -> None:
        """End every other connection, which frees its locks, and make the database anew."""
        name = self.database
        self.command(f"drop database {name} with (force)", database="postgres")
        self.command(f"create database {name} owner {self.user}", database="postgres")
