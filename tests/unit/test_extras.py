"""lockctl.extras: a missing library is named with the command that fits this installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockctl import extras, toml
from lockctl.errors import ConfigError


@pytest.mark.parametrize(
    ("there", "command"),
    [
        ("pipx_metadata.json", "pipx inject lockctl kazoo"),
        ("uv-receipt.toml", "uv tool install 'lockctl[zookeeper]'"),
        ("bin/pip", "{prefix}/bin/pip install 'lockctl[zookeeper]'"),
        ("pyvenv.cfg", "pip --python {prefix} install 'lockctl[zookeeper]'"),
        ("uv/pyvenv.cfg", "uv pip install --python {prefix} 'lockctl[zookeeper]'"),
        ("nothing", "pip install 'lockctl[zookeeper]'"),
    ],
)
def test_the_remedy_is_that_of_the_installer(there: str, command: str, tmp_path: Path) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("uv = 0.9.2\n" if there.startswith("uv/") else "")
    prefix = tmp_path / "uv" if there.startswith("uv/") else tmp_path
    assert extras.remedy("zookeeper", str(prefix)) == command.format(prefix=prefix)


def test_a_library_that_is_there_and_cannot_be_loaded_is_not_to_be_installed_again() -> None:
    why = "libpq.so.5: cannot open shared object file: No such file or directory"
    with pytest.raises(ConfigError) as loaded, extras.Needed("the postgresql backend", "postgresql"):
        raise ImportError(why)
    assert str(loaded.value) == f"the postgresql backend cannot load psycopg2: {why}"
    with pytest.raises(ConfigError) as missing, extras.Needed("the postgresql backend", "postgresql"):
        raise ModuleNotFoundError("No module named 'psycopg2'")
    assert str(missing.value).startswith("the postgresql backend needs psycopg2: ")


def test_a_package_of_the_distribution_gets_another_package_of_it() -> None:
    said = extras.remedy("mysql", "/nowhere", "/usr/lib/python3/dist-packages/lockctl/extras.py")
    assert said == "install the package of your distribution that has the Python module of PyMySQL"


def test_every_extra_of_the_package_that_installs_something_has_its_library_here(project: dict[str, list[str]]) -> None:
    declared = {extra: needed for extra, needed in project.items() if needed and extra != "all"}
    assert {
        extra: " ".join(each.partition(">")[0] for each in needed) for extra, needed in declared.items()
    } == extras.LIBRARIES


@pytest.fixture
def project() -> dict[str, list[str]]:
    """The extras that pyproject.toml declares."""
    file = Path(extras.__file__).parents[1] / "pyproject.toml"
    declared = toml.parse(str(file), file.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = declared["project"]["optional-dependencies"]
    return found
