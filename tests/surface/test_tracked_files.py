"""What is in git belongs into a public repository and runs on any machine."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOP = {
    ".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "completions", "configs", "lockctl", "man", "pyproject.toml", "tests",
}  # fmt: skip
REGISTRIES = r"pypi\.org|pythonhosted\.org|(?:deb|security)\.debian\.org|docker\.io|ghcr\.io|quay\.io|npmjs\.|index-url"
HOMES = r"/home/\w\w|/root/|/Users/|[A-Z]:\\Users"
FORBIDDEN = re.compile(rf"(?:{REGISTRIES}|{HOMES})")


@pytest.fixture(scope="module")
def tracked(root: Path) -> list[Path]:
    """Every file that is in git, or would be after `git add`."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    files = [root / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in files if path.is_file()]


@pytest.fixture(autouse=True)
def _need_git(root: Path, need_tool: Callable[[str], str]) -> None:
    need_tool("git")
    if not (root / ".git").exists():
        pytest.skip("this is not a clone")


def test_no_file_names_a_registry_or_a_home_directory(tracked: list[Path]) -> None:
    found = {
        f"{path}:{number}: {line.strip()}"
        for path in tracked
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line) and path.name != "test_tracked_files.py"
    }
    assert found == set()


def test_the_top_folders_are_those_of_the_plan(tracked: list[Path], root: Path) -> None:
    assert len(tracked) > 50
    assert {path.relative_to(root).parts[0] for path in tracked} <= TOP


def test_every_text_ends_with_one_newline_and_has_no_stray_blanks(tracked: list[Path]) -> None:
    wrong = []
    for path in tracked:
        text = path.read_bytes()
        if text and (not text.endswith(b"\n") or text.endswith(b"\n\n")):
            wrong.append(f"{path}: end")
        if path.suffix == ".patch":
            continue  # there a blank stands for a line that stays
        if b"\r" in text or re.search(rb"[ \t]+$", text, flags=re.MULTILINE):
            wrong.append(f"{path}: blanks")
    assert wrong == []
