"""CONTRIBUTING says how to add a store: its code passes the whole contract, from a directory that is not ours."""

from __future__ import annotations

import fcntl
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lockctl import registry
from lockctl.cli.commands import cli
from lockctl.url import parse_url
from tests.contract.cells import CellHarness
from tests.contract.suite import BackendContract
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
MOST_LINES = 60  # of the driver, without the words of its capabilities


def code() -> str:
    """What the page has in Python."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package of the page, in a temporary directory, with its line in the registry."""
    directory = tmp_path_factory.mktemp("stores")
    (directory / "toystore").mkdir()
    (directory / "toystore/__init__.py").write_text('"""A toy."""\n')
    (directory / "toystore/cell.py").write_text(code())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        patch.setitem(registry.SCHEMES, "toy", "toystore.cell:ToyBackend")
        yield importlib.import_module("toystore.cell")
    for name in [name for name in sys.modules if name.partition(".")[0] == "toystore"]:
        del sys.modules[name]


class ToyHarness(CellHarness):
    """A file of its own. Who is cut off finds it locked."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.capabilities = module.ToyBackend.capabilities
        self.directory = tempfile.mkdtemp(prefix="lockctl-test-", dir=local_directory())
        self.path = f"{self.directory}/cells"

    def client(self) -> Backend:
        return registry.open_backend(parse_url(f"toy://{self.path}"))

    def cells(self) -> Any:
        return self.module.ToyCells(self.path)

    def sever(self, client: Backend) -> None:
        self.lock = open(self.path + ".lock", "a")  # noqa: SIM115
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def heal(self, client: Backend) -> None:
        self.lock.close()

    def close(self) -> None:
        shutil.rmtree(self.directory)


@pytest.fixture
def harness(toy: Any) -> Iterator[ToyHarness]:
    made = ToyHarness(toy)
    yield made
    made.close()


class TestToy(BackendContract):
    """Every promise."""


@pytest.mark.usefixtures("toy")
def test_doctor_of_a_store_without_checks_says_so_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["doctor", "-b", f"toy://{tmp_path}/cells", "--ttl", "30s"])
    (line,) = [line for line in done.stdout.splitlines() if "backend." in line]
    assert line.strip() == f"warn  {'backend.checks':25}there are no checks for this store (toy:)"


def test_a_fault_in_a_doctor_is_not_taken_for_a_missing_one(toy: Any) -> None:
    doctor = Path(toy.__file__).with_name("doctor.py")
    doctor.write_text("import no_such_library\n")
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            registry.load_doctor("toy")
    finally:
        doctor.unlink()


@pytest.mark.parametrize("words", [("check",), ("format", "--check")], ids=["check", "format"])
def test_the_code_passes_the_lint_of_the_product(words: tuple[str, ...]) -> None:
    ruff = [sys.executable, "-m", "ruff", *words, "--stdin-filename", "lockctl/stores/memory/toy.py", "-"]
    done = subprocess.run(ruff, input=code(), cwd=PAGE.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_driver_is_as_short_as_the_page_says() -> None:
    driver = code().partition("class ToyBackend")[0].partition("class ToyCells")[2]
    assert len([line for line in driver.splitlines() if line.strip()]) <= MOST_LINES
