"""What `pip install` puts onto a machine: the command, and everything that goes with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from lockctl import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

SHARED = {
    "man/man1": "share/man/man1",
    "man/man5": "share/man/man5",
    "man/man7": "share/man/man7",
    "configs": "share/doc/lockctl/configs",
    "completions/lockctl.bash": "share/bash-completion/completions/lockctl",
    "completions/lockctl.zsh": "share/zsh/site-functions/_lockctl",
    "completions/lockctl.fish": "share/fish/vendor_completions.d/lockctl.fish",
}

IN_SHELL = {
    "bash": "source /usr/share/bash-completion/bash_completion;"
    " { _completion_loader lockctl || _comp_load lockctl; } 2>/dev/null; complete -p lockctl",
    "zsh": 'autoload -Uz compinit; compinit -D -u; print "$_comps[lockctl]"',
    "fish": "complete -C 'lockctl fo'",
}
SAID = {"bash": "-F _lockctl_completion lockctl", "zsh": "_lockctl", "fish": "force-release"}


def _run(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints, which must succeed."""
    usual = {name: content for name, content in os.environ.items() if not name.startswith(("LOCKCTL_", "PIP_"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=usual if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as an index has it: built from the archive of the sources, and nothing is written into the tree."""
    copy = tmp_path_factory.mktemp("tree") / "lockctl"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "dist", "tests")
    shutil.copytree(root, copy, ignore=unwanted)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", copy / "dist", cwd=copy)
    (sources,) = (copy / "dist").iterdir()
    _run("tar", "-xf", sources, "-C", copy / "dist")
    unpacked = copy / "dist" / f"lockctl-{__version__}"
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", unpacked / "dist", cwd=unpacked)
    (built,) = (unpacked / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and, from the present one, click and rich with what they need."""
    prefix = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(prefix, with_pip=False)
    _run(sys.executable, "-m", "pip", "--python", prefix, "install", "-q", "--no-index", "--no-deps", wheel)
    (packages,) = prefix.glob("lib/python*/site-packages")
    # what it needs and nothing else: no library of an extra
    for name in ("click", "rich", "markdown_it", "mdurl", "pygments", "tomli"):
        found = Path(click.__file__).parents[1] / name
        if found.exists():
            (packages / name).symlink_to(found)
    return prefix


def test_the_wheel_has_the_package_its_types_and_nothing_else(wheel: Path, root: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(root)) for path in (root / "lockctl").rglob("*.py")}
    assert sources | {"lockctl/py.typed"} == {name for name in names if name.startswith("lockctl/")}
    assert {name.split("/")[0] for name in names} == {
        "lockctl",
        f"lockctl-{__version__}.dist-info",
        f"lockctl-{__version__}.data",
    }


@pytest.mark.parametrize("source", SHARED)
def test_pages_scripts_and_samples_are_where_others_look_for_them(source: str, root: Path, installed: Path) -> None:
    there, here = installed / SHARED[source], root / source
    if here.is_file():
        assert there.read_bytes() == here.read_bytes()
        return
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        path.name: path.read_bytes() for path in here.iterdir()
    }


@pytest.mark.parametrize("shell", IN_SHELL)
def test_a_shell_finds_the_installed_completion_by_itself(
    shell: str, installed: Path, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": []}[shell]
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{installed}/bin:{os.environ['PATH']}",
        "XDG_DATA_DIRS": f"{installed}/share:/usr/local/share:/usr/share",
        "FPATH": f"{installed}/share/zsh/site-functions:" + _zsh_functions(shell),
    }
    assert SAID[shell] in _run(need_tool(shell), *options, "-c", IN_SHELL[shell], env=environment)


def test_pages_scripts_and_samples_are_installed_for_a_user_and_removed_again(installed: Path, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = (installed / "bin/lockctl", "install-docs", "--user")
    said = _run(*command, "--dry-run", env=environment)
    assert "this was a dry run" in said
    assert list(tmp_path.iterdir()) == []
    _run(*command, env=environment)
    there, here = tmp_path / ".local/share", installed / "share"
    names = {path.relative_to(here) for path in here.rglob("*") if path.is_file()}
    assert {path.relative_to(there) for path in there.rglob("*") if path.is_file()} == names
    assert all((there / name).read_bytes() == (here / name).read_bytes() for name in names)
    _run(*command, "--uninstall", env=environment)
    assert [path for path in there.rglob("*") if path.is_file()] == []


def _zsh_functions(shell: str) -> str:
    return _run("zsh", "-f", "-c", "print ${(j.:.)fpath}").strip() if shell == "zsh" and shutil.which("zsh") else ""


def test_the_installed_command_runs_a_job(installed: Path, locks: Path) -> None:
    command = installed / "bin/lockctl"
    assert _run(command, "--version", cwd=locks) == f"lockctl {__version__}\n"
    url = f"file://{locks}/new"
    assert _run(command, "run", "-b", url, "-l", "a", "--", "sh", "-c", "echo $LOCKCTL_LOCK", cwd=locks) == "a\n"
    (lock,) = json.loads(_run(command, "list", "--all", "-b", url, "--json", cwd=locks))
    assert (lock["name"], lock["state"]) == ("a", "free")


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("zookeeper://127.0.0.1:1/locks", "zookeeper"),
        ("postgresql://u@127.0.0.1:1/db", "postgresql"),
        ("s3://bucket/locks?region=eu-central-1", "s3"),
        ("gcs://bucket/locks", "gcs"),
        ("azblob://container/locks?account=a", "azure"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_what_to_install(url: str, extra: str, installed: Path) -> None:
    for words in (["run", "-b", url, "-l", "a", "--", "true"], ["list", "-b", url]):
        done = subprocess.run(
            [installed / "bin/lockctl", *words], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 78, done.stderr
        assert done.stderr.count("\n") == 1
        assert f": pip --python {installed} install 'lockctl[{extra}]'\n" in done.stderr


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("mysql://u:p@127.0.0.1:1/db", "mysql"),
        ("dynamodb://locks/x?region=eu-central-1", "dynamodb"),
        ("s3://bucket/key", "s3"),
        ("gcs://bucket/key", "gcs"),
        ("azblob://container/key?account=a", "azure"),
        ("postgresql://u@127.0.0.1:1/db", "postgresql"),
        ("zookeeper://127.0.0.1:1/marks", "zookeeper"),
    ],
)
def test_a_library_that_is_not_there_for_marks_is_named_with_what_to_install(
    url: str, extra: str, installed: Path, locks: Path
) -> None:
    words = ["run", "-b", f"file://{locks}", "-l", "a", "--fence", url, "--", "echo", "ran"]
    for command in (["fence", "show", url], words):
        done = subprocess.run(
            [installed / "bin/lockctl", *command], capture_output=True, text=True, timeout=30, check=False
        )
        assert (done.returncode, done.stdout) == (78, ""), done.stderr
        assert done.stderr.count("\n") == 1
        assert f": pip --python {installed} install 'lockctl[{extra}]'\n" in done.stderr


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel", "redlock", "etcd", "consul", "nats"])
def test_these_backends_need_no_library(scheme: str, installed: Path) -> None:
    several = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    address = {"redlock": several, "redis+sentinel": f"{several}/main", "nats": "127.0.0.1:1/locks"}.get(
        scheme, "127.0.0.1:1"
    )
    done = subprocess.run(
        [installed / "bin/lockctl", "run", "-b", f"{scheme}://{address}", "-l", "a", "--", "true"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 69, done.stderr
    assert "Connection refused" in done.stderr


def test_it_is_installed_with_compiled_bytecode(installed: Path) -> None:
    assert list(installed.glob("lib/python*/site-packages/lockctl/__pycache__/runner.*.pyc"))


def test_the_metadata_names_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(f"lockctl-{__version__}.dist-info/METADATA").decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert {line.split()[1].partition(">")[0].partition("<")[0] for line in needed} == {"click", "rich", "tomli"}
    assert "Requires-Python: >=3.10\n" in metadata


def test_no_installer_writes_a_command_of_its_own_which_may_start_slowly(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    assert f"lockctl-{__version__}.dist-info/entry_points.txt" not in archive.namelist()
    script = archive.read(f"lockctl-{__version__}.data/scripts/lockctl").decode()
    assert script.startswith("#!python\n")
