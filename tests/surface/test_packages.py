"""What man/PACKAGING.md gives to packagers makes packages: a .deb and an .rpm, each with a command that runs a job."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from lockctl import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow
LIMIT = 300  # seconds, where everything else waits for the disk, too
# of the environment of the tests: what the packages of a distribution would bring, for any Python of this machine
LIBRARIES = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove_classifiers", "tomli")
LIBRARIES_OF_A_RUN = ("click", "rich", "markdown_it", "mdurl", "pygments")
WANTED = {  # pages may be compressed
    "/usr/bin/lockctl",
    "/usr/share/bash-completion/completions/lockctl",
    "/usr/share/doc/lockctl/configs/lockctl.toml",
    "/usr/share/fish/vendor_completions.d/lockctl.fish",
    "/usr/share/man/man1/lockctl-run.1",
    "/usr/share/man/man5/lockctl.toml.5",
    "/usr/share/man/man7/lockctl-backends.7",
}
# what those of pyproject-rpm-macros do that the page uses: Debian's rpm lacks them; nothing is stripped or compressed
MACROS = """\
%__os_install_post %{{nil}}
%_binary_payload w0.gzdio
%python3_sitelib {sitelib}
%py3_test_envvars PYTHONPATH=%{{buildroot}}%{{python3_sitelib}}:{libraries}
%pyproject_buildrequires echo 'python3dist(hatchling) >= 1.26'
%pyproject_wheel {python} -m pip wheel -q --no-index --no-deps --no-build-isolation -w wheel .
%pyproject_install {python} -m pip install -q --no-index --no-deps --no-compile --no-warn-script-location \
 --ignore-installed --root %{{buildroot}} --prefix %{{_prefix}} wheel/*.whl
%pyproject_files %{{_builddir}}/files
%pyproject_save_files(l) (cd %{{buildroot}} && find .%{{python3_sitelib}} -mindepth 1 -maxdepth 1 | cut -c2-) \
 >%{{pyproject_files}}
"""


@pytest.fixture(scope="module")
def blocks(root: Path) -> list[str]:
    """The files that the page shows."""
    text = (root / "man/PACKAGING.md").read_text(encoding="utf-8")
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, flags=re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).lstrip("\n") for block in found]


@pytest.fixture
def source(root: Path, tmp_path: Path) -> Path:
    """A tree as it is unpacked from an archive of sources, with the one test that packagers run."""
    tree = tmp_path / f"lockctl-{__version__}"
    shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist", "tests"))
    (tree / "tests").mkdir()
    shutil.copy(root / "tests/demo.sh", tree / "tests")
    return tree


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A directory with the libraries that the build and the command need."""
    place, here = tmp_path / "libraries", Path(click.__file__).parents[1]
    place.mkdir()
    for name in (*LIBRARIES, *LIBRARIES_OF_A_RUN):
        for found in (*here.glob(name), *here.glob(f"{name}-*.dist-info")):
            (place / found.name).symlink_to(found)
    return place


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """What a program prints, which must succeed."""
    usual = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(cwd), "LANG": "C.UTF-8", **variables}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=usual,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(300)
def test_the_files_for_debian_make_a_package(
    blocks: list[str], source: Path, libraries: Path, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    for tool in ("dpkg-buildpackage", "dh", "pybuild"):
        need_tool(tool)
    control, rules, tests = blocks[:3]
    (source / "debian/source").mkdir(parents=True)
    (source / "debian/source/format").write_text("3.0 (native)\n")
    (source / "debian/control").write_text(control)
    (source / "debian/rules").write_text(rules)
    (source / "debian/rules").chmod(0o755)
    (source / "debian/changelog").write_text(
        f"lockctl ({__version__}) unstable; urgency=medium\n\n  * New.\n\n"
        " -- Somebody <somebody@example.org>  Sun, 22 Nov 2026 12:00:00 +0000\n"
    )
    # its libraries are those of the tests, so dpkg need not know them
    quick = {"DPKG_DEB_COMPRESSOR_TYPE": "none"}
    said = run("dpkg-buildpackage", "-us", "-uc", "-b", "-d", cwd=source, PYTHONPATH=str(libraries), **quick)
    assert "the daemon of the first job is gone" in said
    (package,) = tmp_path.glob(f"lockctl_{__version__}_all.deb")
    listed = run("dpkg-deb", "-c", package, cwd=tmp_path).splitlines()
    names = {line.split()[5][1:].removesuffix(".gz") for line in listed}
    assert names > WANTED | {"/usr/share/zsh/vendor-completions/_lockctl"}
    needs = run("dpkg-deb", "-f", package, "Depends", cwd=tmp_path)
    assert "python3-click" in needs
    assert "python3-rich" in needs
    run("dpkg-deb", "-x", package, tmp_path / "unpacked", cwd=tmp_path)
    (modules,) = tmp_path.glob("unpacked/usr/lib/python3*/dist-packages")
    there = tmp_path / "unpacked/usr/bin/lockctl"
    assert run(there, "--version", cwd=tmp_path, PYTHONPATH=f"{modules}:{libraries}") == f"lockctl {__version__}\n"
    assert tests.startswith(f"Test-Command: sh tests/demo.sh /usr/bin/{there.name}\n")


@pytest.mark.timeout(300)
def test_the_file_for_rpm_makes_a_package(
    blocks: list[str], source: Path, libraries: Path, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    spec = blocks[3]
    (tmp_path / "lockctl.spec").write_text(spec)
    site = f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (tmp_path / "macros").write_text(MACROS.format(sitelib=site, libraries=libraries, python=sys.executable))
    (tmp_path / "SOURCES").mkdir()
    shutil.make_archive(str(tmp_path / f"SOURCES/lockctl-{__version__}"), "gztar", tmp_path, source.name)
    said = run(
        need_tool("rpmbuild"),
        *("-bb", "--nodeps", "--define", f"_topdir {tmp_path}", "--load", tmp_path / "macros", "lockctl.spec"),
        cwd=tmp_path,
    )
    assert "the daemon of the first job is gone" in said
    (package,) = tmp_path.glob("RPMS/noarch/*.rpm")
    assert package.name.startswith(f"lockctl-{__version__}-1")
    names = {name.removesuffix(".gz") for name in run("rpm", "-qlp", package, cwd=tmp_path).splitlines()}
    assert names > WANTED | {"/usr/share/zsh/site-functions/_lockctl", f"{site}/lockctl/__main__.py"}
    assert "Apache-2.0" in run("rpm", "-qip", package, cwd=tmp_path)
