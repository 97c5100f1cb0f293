"""The driver's module in C is loaded alone where it is as expected; else the package is, and nothing stays hidden."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = (
    "from psycopg2 import _psycopg\nconnect = 'of the package'\nError = InterfaceError = OperationalError = OSError\n"
)
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
