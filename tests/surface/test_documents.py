"""README, CONTRIBUTING and CHANGELOG say what is true of the tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lockctl.cli.exit_status import MEANINGS
from tests.surface.command_lines import calls, check_call

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest, root: Path) -> str:
    """The text of one document."""
    return (root / str(request.param)).read_text(encoding="utf-8")


def test_every_make_target_that_is_named_exists(document: str, root: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z-]+)", document, flags=re.MULTILINE))
    assert named <= targets


def test_every_link_to_the_tree_leads_somewhere(document: str, root: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document):
        assert (root / target).exists(), target


def test_every_path_that_is_named_exists(document: str, root: Path) -> None:
    names = re.findall(r"`((?:man|tests|configs|completions|lockctl|cli|backends|lease|supervise)/[\w/.-]*)`", document)
    names += re.findall(r"^    ((?:lockctl|configs|man|tests|completions)/[\w/.]*) ", document, flags=re.MULTILINE)
    for name in names:
        assert (root / name).exists() or (root / "lockctl" / name).exists(), name


def test_every_command_line_is_one_that_lockctl_accepts(document: str) -> None:
    for words in calls(document):
        check_call(words)


def test_readme_shows_command_lines(root: Path) -> None:
    assert len(list(calls((root / "README.md").read_text(encoding="utf-8")))) >= 5


def test_readme_has_the_exit_statuses_of_the_code(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    table = text.partition("| status | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert tuple(tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()) == MEANINGS


def test_readme_names_the_two_commands_of_a_newcomer(root: Path) -> None:
    first_screen = (root / "README.md").read_text(encoding="utf-8").partition("## Install")[0]
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_no_changelog_entry_without_a_section(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^(#{2,3}) (.*)$", text, flags=re.MULTILINE)
    assert headings[0] == ("##", "[Unreleased]")
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {name for level, name in headings if level == "###"} <= kinds
