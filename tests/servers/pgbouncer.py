"""PgBouncer before a PostgreSQL server, in each of its modes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, ClassVar

from tests.servers import programs
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.servers.postgres import Postgres


class PgBouncer(Server):
    """``pgbouncer`` with its own configuration file; an ordinary user runs it, as it wants."""

    programs: ClassVar[tuple[str, ...]] = ("pgbouncer",)
    refuses_root: ClassVar[bool] = True
    stop_signal: ClassVar[int] = signal.SIGTERM  # "at once"; SIGINT waits for the clients in newer versions

    def __init__(
        self,
        directory: Path,
        postgres: Postgres,
        *,
        mode: str = "session",
        auth: str = "trust",
        pool_size: int = 2,
        extra: Sequence[str] = (),
    ) -> None:
        """See the options.

        *mode*: session, transaction or statement. *auth*: how users show who they are, as PgBouncer names it.
        *extra* are lines of its section of pgbouncer.ini.
        """
        super().__init__(directory)
        self.postgres = postgres
        self.mode = mode
        self.auth = auth
        self._pool_size = pool_size
        self._extra = list(extra)

    @property
    def url(self) -> str:
        """``postgresql://`` of the user and the database of the server behind it."""
        behind = self.postgres
        return f"postgresql://{behind.user}:{behind.password}@{self.address}/{behind.database}"

    def _configure(self) -> None:
        behind = self.postgres
        users = self.directory / "users.txt"
        users.write_text(f'"{behind.user}" "{behind.password}"\n')
        lines = ["[databases]"]
        lines.append(f"{behind.database} = host={behind.host} port={behind.port} dbname={behind.database}")
        lines += ["[pgbouncer]", f"listen_addr = {self.host}", f"listen_port = {self.port}", "unix_socket_dir ="]
        lines += [f"auth_type = {self.auth}", f"auth_file = {users}", f"pool_mode = {self.mode}"]
        lines += [f"default_pool_size = {self._pool_size}", "max_client_conn = 200"]
        (self.directory / "pgbouncer.ini").write_text("\n".join([*lines, *self._extra, ""]))

    def _words(self) -> Sequence[str]:
        return [programs.find("pgbouncer"), str(self.directory / "pgbouncer.ini")]

    def _answers(self) -> bool:
        return self.command("select 1").strip() == "1"

    def command(self, statement: str, timeout: float = 10.0) -> str:
        """What psql prints for a statement of the user that came through. Raises ``RuntimeError``."""
        words = [str(self.postgres.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement]
        return programs.run(words, timeout=timeout, PGCONNECT_TIMEOUT=f"{timeout:.0f}")

    def wipe(self) -> None:
        """Forget its connections. What is in the database is the server's: wipe that."""
        self.restart()
