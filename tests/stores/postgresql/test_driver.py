"""The driver's module in C is loaded alone where it is as expected; else the package is, and nothing stays hidden."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from lockctl.stores.postgresql.session import Session
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

PACKAGE = "from psycopg2 import _psycopg\nconnect = 'of the package'\nError = ProgrammingError = OSError\n"
OTHER_INSIDE = {"another one": "encodings = {}\n", "one that does not load": "import not_to_be_found\n"}
PROGRAM = """
import sys
from lockctl import loading
from lockctl.errors import ConfigError
try:
    from lockctl.stores.postgresql import driver
    print(driver.connect)
except ConfigError as error:
    print(error)
import psycopg2, ssl
print(psycopg2.connect)
"""


def told(*path: str) -> str:
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = {list(path)!r}\n{PROGRAM}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_the_package_can_be_loaded_beside_its_module_in_c() -> None:
    alone, package = told().splitlines()
    assert "_connect" in alone
    assert package.startswith("<function connect")


@pytest.mark.parametrize("inside", OTHER_INSIDE)
def test_with_another_module_inside_the_package_is_loaded_as_usual(tmp_path: Path, inside: str) -> None:
    package = tmp_path / "psycopg2"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "extensions.py").write_text("")
    (package / "_psycopg.py").write_text(OTHER_INSIDE[inside])
    expected = "of the package\nof the package\n" if inside == "another one" else "needs psycopg2"
    assert expected in told(str(tmp_path))


class Watched:
    """A connection that notes the limits of memory under which it is driven."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.limits: set[tuple[int, int]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def poll(self) -> int:
        self.limits.add(resource.getrlimit(resource.RLIMIT_DATA))
        return int(self._connection.poll())


def test_beside_other_threads_the_memory_of_the_process_is_not_limited(postgres_server: Postgres) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    connection = Watched(psycopg2.connect(postgres_server.url, async_=True))
    session = Session(connection, postgres_server.address)

    def use() -> None:
        session.drive(Deadline(LIMIT))
        assert session.ask("select 1", Deadline(LIMIT)) == [(1,)]

    Background(use).result()
    session.close()
    assert connection.limits == {before}
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
