"""Man pages and completion scripts are what the code makes them, and say what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.fence.stores import cells, objects, redis, zookeeper
from lockctl.settings import SETTINGS
from tests.surface.command_lines import calls, check_call, commands, flags
from tests.surface.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.certificates import Certificates

PAGES = sorted((ROOT / "man").glob("man[15]/*"))
COMMAND_PAGES = {
    words: f"man1/lockctl{'-' + words.split()[0] if words else ''}.1"
    for words in commands()
    if words not in ("config", "fence")
}
REQUIRED = {
    "lockctl-run.1": "SYNOPSIS DESCRIPTION OPTIONS LOG EXIT_STATUS ENVIRONMENT FILES SIGNALS HOW_A_JOB_IS_STOPPED"
    " FILE_BACKEND EXAMPLES CAVEATS SEE_ALSO",
    "lockctl-config.1": "SYNOPSIS DESCRIPTION EXIT_STATUS EXAMPLES SEE_ALSO",
    "lockctl-fence.1": "SYNOPSIS DESCRIPTION EXIT_STATUS ENVIRONMENT FILES EXAMPLES SEE_ALSO",
    "lockctl.toml.5": "DESCRIPTION TABLES KEYS FILES EXAMPLES SEE_ALSO",
}
USUAL = "SYNOPSIS DESCRIPTION OPTIONS EXIT_STATUS EXAMPLES SEE_ALSO"


def plain(page: Path) -> str:
    """The text of a page without fonts and escapes."""
    text = re.sub(r"\\f[BIPR]", "", page.read_text(encoding="utf-8"))
    return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\(ti", "~").replace("\\&", "")


def documented(page: Path, heading: str = "") -> set[str]:
    """Flags that have an entry of their own in a page, or in the part of it under one heading."""
    text = plain(page)
    if heading:
        text = re.split(r"^\.S[SH] ", text.partition(f".SS {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    entries = re.findall(r"^\.TP\n(-.*)$", text, flags=re.MULTILINE)
    return {word.split()[0] for entry in entries for word in entry.split(", ")}


def test_generated_files_are_what_the_code_makes_them(root: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, root / "man/generate.py", "--into", tmp_path], check=True, timeout=60)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    there = [
        path for folder in ("man/man1", "man/man5", "man/man7", "completions") for path in (root / folder).iterdir()
    ]
    assert len(made) >= 11
    assert made == {path.relative_to(root): path.read_bytes() for path in there}, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_clean_for_mandoc(page: Path, need_tool: Callable[[str], str]) -> None:
    found = subprocess.run(
        [need_tool("mandoc"), "-T", "lint", "-W", "style", page],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    assert (found.stdout, found.returncode) == ("", 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_sections_that_people_look_for(page: Path) -> None:
    sections = re.findall(r"^\.SH (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    wanted = ["NAME", *(word.replace("_", " ") for word in REQUIRED.get(page.name, USUAL).split())]
    assert [section for section in sections if section in wanted] == wanted


@pytest.mark.parametrize("words", COMMAND_PAGES)
def test_a_page_has_every_option_of_its_command_and_no_other(words: str, root: Path) -> None:
    heading = f"lockctl {words}" if words.startswith(("config ", "fence ")) else ""
    assert documented(root / "man" / COMMAND_PAGES[words], heading) == flags(commands()[words])


def test_pages_name_no_option_that_does_not_exist() -> None:
    known = set().union(*(flags(command) for command in commands().values()))
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", plain(page)))
        assert named <= known, page.name


def test_every_setting_stands_with_default_key_and_variable_in_the_page_of_run(root: Path) -> None:
    text = " ".join(plain(root / "man/man1/lockctl-run.1").split())
    for setting in SETTINGS:
        entry = text.partition(f".TP {', '.join(setting.flags)}")[2].partition(".TP")[0]
        assert not setting.default or f"Default: {setting.default}." in entry, setting.name
        assert not setting.in_config or f"Key: {setting.name}, variable: {setting.variable}." in entry, setting.name


def test_every_variable_of_the_job_stands_in_the_page_of_run(root: Path, lockctl: Callable[..., Any]) -> None:
    given = lockctl("run", "-l", "a", "--", "env").stdout
    names = set(re.findall(r"^(LOCKCTL_\w+)=", given, flags=re.MULTILINE))
    assert {"LOCKCTL_TOKEN", "LOCKCTL_LOCK"} <= names
    assert names <= set(re.findall(r"^LOCKCTL_\w+$", plain(root / "man/man1/lockctl-run.1"), flags=re.MULTILINE))


@pytest.mark.parametrize("source", sorted((ROOT / "man/text").iterdir()), ids=lambda source: source.name)
def test_examples_of_a_page_are_calls_that_lockctl_accepts(source: Path) -> None:
    for words in calls(source.read_text(encoding="utf-8")):
        check_call(words)


def test_the_page_of_the_file_shows_a_configuration_that_is_accepted(
    root: Path, tmp_path: Path, lockctl: Callable[..., Any], certificates: Certificates
) -> None:
    text = (root / "man/text/lockctl.toml.5.txt").read_text(encoding="utf-8").partition("# EXAMPLES\n")[2]
    sample = tmp_path / "config.toml"
    lines = "".join(line.strip() + "\n" for line in text.splitlines() if line.startswith("    "))
    (tmp_path / "password").write_text("s3cret\n")
    lines = lines.replace("/etc/lockctl/ca.pem", str(certificates.ca))
    sample.write_text(re.sub(r"/etc/lockctl/[\w.-]+", str(tmp_path / "password"), lines))
    assert "[locks." in sample.read_text()
    assert lockctl("config", "check", "--config", str(sample)).returncode == 0


def test_the_page_of_fence_says_where_each_store_has_its_marks(root: Path) -> None:
    text = plain(root / "man/man1/lockctl-fence.1").partition(".SH STORES")[2].partition("\n.SH ")[0]
    for place in (
        redis.PREFIX + "{",
        cells.PREFIX,
        f"/{zookeeper.FENCE}/",
        objects.SUFFIX,
        "lockctl_mark",
    ):
        assert place in text


def test_the_first_page_leads_to_every_other_page(root: Path) -> None:
    text = (root / "man/text/lockctl.1.txt").read_text(encoding="utf-8").partition("# SEE ALSO\n")[2]
    others = {f"{path.stem}({path.suffix[1:]})" for path in [*PAGES, *(root / "man/man7").iterdir()]} - {"lockctl(1)"}
    assert others <= set(text.strip().split(", "))
