"""MariaDB: one server with a database and a user for marks; it speaks the protocol of MySQL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.servers import programs
from tests.servers.process import Server, ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.certificates import Certificates

# small, quick, and nothing of what a test does not ask for
SETTINGS = (
    "skip-name-resolve",
    "skip-log-bin",
    "performance-schema=OFF",
    "innodb-buffer-pool-size=8M",
    "innodb-log-file-size=4M",
    "innodb-log-buffer-size=2M",
    "innodb-buffer-pool-dump-at-shutdown=OFF",
    "aria-log-file-size=8M",
    "aria-pagecache-buffer-size=1M",
    "key-buffer-size=64K",
    "max-connections=100",
    "character-set-server=utf8mb4",
)
BOOTSTRAP_LIMIT = 60.0  # seconds for the tables of the server itself


class MariaDb(Server):
    """``mariadbd`` on a directory of its own."""

    programs: ClassVar[tuple[str, ...]] = ("mariadbd", "mariadb")
    superuser = "root"
    user, password, database = "lockctl", "s3cret", "lockctl"

    def __init__(self, directory: Path, *, tls: Certificates | None = None, extra: Sequence[str] = ()) -> None:
        """With *tls* both kinds of connection are served. *extra* are lines of its configuration."""
        super().__init__(directory)
        self.tls = tls
        self.socket = self.directory / "socket"
        self._extra = list(extra)

    @property
    def url(self) -> str:
        """``mysql://`` of ``user`` and ``database``, with the password."""
        return f"mysql://{self.user}:{self.password}@{self.address}/{self.database}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _configure(self) -> None:
        (self.directory / "tmp").mkdir()
        self._data.mkdir()
        share = self._share()
        lines = ["[mariadbd]", f"datadir={self._data}", f"tmpdir={self.directory / 'tmp'}"]
        lines += [f"lc-messages-dir={share}", f"character-sets-dir={share / 'charsets'}", *SETTINGS]
        if os.geteuid() == 0:
            lines.append("user=root")
        bootstrap = self.directory / "bootstrap.cnf"
        bootstrap.write_text("\n".join([*lines, "innodb-flush-method=nosync", ""]))
        lines += [f"socket={self.socket}", f"pid-file={self.directory / 'pid'}"]
        lines += [f"bind-address={self.host}", f"port={self.port}"]
        if self.tls is not None:
            lines += [f"ssl-ca={self.tls.ca}", f"ssl-cert={self.tls.server_cert}", f"ssl-key={self.tls.server_key}"]
        (self.directory / "my.cnf").write_text("\n".join([*lines, *self._extra, ""]))
        # what mariadb-install-db feeds to it, without the texts of its help
        tables = [next(share.glob(f"*_system_tables{kind}.sql")).read_text() for kind in ("", "_data")]
        words = [programs.find("mariadbd"), f"--defaults-file={bootstrap}", "--bootstrap"]
        done = subprocess.run(
            words,
            input="\n".join(["create database mysql;", "use mysql;", *tables]),
            capture_output=True,
            text=True,
            check=False,
            timeout=BOOTSTRAP_LIMIT,
            env=programs.environment(),
        )
        if done.returncode != 0:
            raise ServerError(f"{self} has no tables: {done.stderr[-2000:]}")

    @staticmethod
    def _share() -> Path:
        """Where the messages and the first tables are: beside the program, wherever that was unpacked."""
        above = Path(programs.find("mariadbd")).resolve().parents[1]
        return next(path for path in (above / "share/mysql", above / "share/mariadb") if path.exists())

    def _words(self) -> Sequence[str]:
        return [programs.find("mariadbd"), f"--defaults-file={self.directory / 'my.cnf'}"]

    def _answers(self) -> bool:
        return self.command("select 1", database="").strip() == "1"

    def _initialise(self) -> None:
        self.command(
            f"create database {self.database}; create user {self.user} identified by '{self.password}';"
            f" grant all on {self.database}.* to {self.user}",
            database="",
        )

    def command(self, statements: str, *, database: str | None = None, timeout: float = 10.0) -> str:
        """What the client prints for statements of the superuser, fields divided by tabs. Raises ``RuntimeError``."""
        return self.client(["-e", statements], database=database, timeout=timeout)

    def client(
        self, words: Sequence[str], *, database: str | None = None, text: str | None = None, timeout: float = 10.0
    ) -> str:
        """What the ``mariadb`` client prints, as superuser, with *text* as its input. Raises ``RuntimeError``."""
        whole = [programs.find("mariadb"), "--no-defaults", "-BN", "--default-character-set=utf8mb4"]
        whole += [f"--socket={self.socket}", f"--user={self.superuser}", f"--connect-timeout={timeout:.0f}", *words]
        whole.append(self.database if database is None else database)
        done = subprocess.run(
            whole,
            input=text or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=programs.environment(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"mariadb ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def wipe(self) -> None:
        """Forget all data of the database."""
        self.command(f"drop database {self.database}; create database {self.database}", database="")
