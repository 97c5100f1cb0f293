"""README, CONTRIBUTING and CHANGELOG say what is true of the tree."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from lockctl import registry
from lockctl.cli.exit_status import MEANINGS
from man import metadata
from tests.surface.command_lines import calls, check_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "man/PACKAGING.md"]
DIRECTORIES = "man|tests|configs|completions|lockctl|bench|cli|doctor|fence|lease|locks|stores|supervise|wire"


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
    names = re.findall(rf"`((?:{DIRECTORIES})/[\w/.-]*)`", document)
    names += re.findall(r"^    ((?:lockctl|configs|man|tests|completions)/[\w/.]*) ", document, flags=re.MULTILINE)
    for name in names:
        if "TECHNOLOGY" in name:  # of any
            continue
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


def test_readme_says_of_each_backend_what_it_promises(root: Path) -> None:
    table = (root / "README.md").read_text(encoding="utf-8").partition("| | hosts | tokens |")[2].partition("\n\n")[0]
    rows = [[cell.strip(" `:") for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    assert {row[0] for row in rows} == {registry.load(scheme).capabilities.scheme for scheme in registry.SCHEMES}
    for name, hosts, tokens, waiters, holders, *_ in rows:
        promised = registry.load(name).capabilities
        assert (hosts == "many") == promised.many_hosts, name
        assert (tokens == "strict") == (promised.fencing == "strict"), name
        assert (waiters == "in order") == promised.fair, name
        assert [word in holders for word in ("slots", "readers")] == [promised.slots, promised.shared], name


def test_every_block_of_readme_is_one_that_a_shell_accepts(root: Path, need_tool: Callable[[str], str]) -> None:
    text = (root / "README.md").read_text(encoding="utf-8").partition("\n## Layout")[0]
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    script = "\n".join(line for line in lines if not line.startswith("*/"))  # which is for cron
    done = subprocess.run(
        [need_tool("bash"), "-n"], input=script, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_message_that_is_explained_is_one_of_the_program(root: Path) -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (root / "lockctl").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source) + os.strerror(errno.ENOENT)
    text = (root / "README.md").read_text(encoding="utf-8").partition("## Troubleshooting")[2].partition("\n## ")[0]
    messages = [
        found for row in re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE) for found in re.findall(r"`(.*?)`", row)
    ]
    assert len(messages) >= 10
    for message in messages:
        if not message.startswith(("lockctl: ", "--")):
            assert all(piece.strip(" :") in source for piece in message.split("…")), message


def test_a_package_index_gets_links_to_the_repository_or_none(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "](man/session.svg)" in text
    at_home = metadata.readme(text, "https://git.example/lockctl", "1.2.3")
    assert "](https://git.example/lockctl/raw/v1.2.3/man/session.svg)" in at_home
    assert "](https://git.example/lockctl/blob/v1.2.3/configs/lockctl.toml)" in at_home
    alone = metadata.readme(text, "", "1.2.3")
    for shown in (at_home, alone):
        assert re.findall(r"\]\((?!https://)", shown) == []
    assert "session.svg" not in alone


def test_no_picture_loads_anything_from_elsewhere(root: Path) -> None:
    pictures = list((root / "man").rglob("*.svg"))
    assert len(pictures) > 10
    assert [picture.name for picture in pictures if "url(http" in picture.read_text(encoding="utf-8")] == []


def test_the_picture_of_readme_tells_its_story(root: Path) -> None:
    drawn = ET.parse(root / "man/session.svg")
    text = "".join(drawn.getroot().itertext()).replace("\N{NO-BREAK SPACE}", " ")
    first, second = (re.search(rf"nightly: runs on {host} with token (\d+)", text) for host in ("web1", "web2"))
    assert first
    assert second
    assert int(first[1]) < int(second[1])
    assert "kill -KILL" in text[first.end() : second.start()]


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
