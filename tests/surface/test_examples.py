"""What README.md, the pages and the help of each verb show as examples is typed into a shell here, and works."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.jobs import LIMIT
from tests.surface.command_lines import CALL, commands
from tests.surface.test_samples import SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl

ROOT = Path(__file__).resolve().parents[2]
# examples that do not end by themselves, take long or need a server, and the tests that run such a line
ELSEWHERE = {
    "lockctl watch": "run/test_watch.py",
    "lockctl bench": "run/test_bench_verb.py",
    "--restart": "fleet/test_standby.py",
    "s3://": "fence/test_s3.py",
    "install-docs": "surface/test_wheel.py",
    "lockctl completion": "surface/test_completions.py",
    "make ": "surface/test_packages.py",  # its demo
}
PARTS = ("Install", "Quick start", "Layout", "Development")  # of README.md, with tests of their own
PROGRAMS = (
    *("nightly", "sync-all", "report", "install", "update", "compute", "write-stock"),
    *("deploy.sh", "encode.sh", "backup.sh", "report.sh", "nightly.sh", "mail-all", "update-stock", "pg_dump", "rsync"),
)
SSH = '#!/bin/sh\nshift\nexec sh -c "$*"\n'  # the words are joined, and a shell reads the result
DOMAIN = "file:of:/this test's; touch injected; $(touch injected)"  # from a lock directory whose name has all that


def of_readme() -> Iterator[str]:
    """Every line with a call of `lockctl`, as it is typed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        for line in () if part.startswith(PARTS) else part.splitlines():
            if line.startswith("    ") and CALL.search(line):
                yield line.strip()


def of_pages() -> Iterator[str]:
    """Every line with a call of `lockctl` in the prose of the pages."""
    for page in sorted((ROOT / "man/text").iterdir()):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("    ") and CALL.search(line):
                yield line.strip().removeprefix("ExecStart=")


def of_helps() -> Iterator[str]:
    """The examples of all verbs, which their pages have, too."""
    for command in commands().values():
        yield from getattr(command, "examples", ())


def lines() -> list[str]:
    """All that are run here, each once."""
    found = dict.fromkeys([*of_readme(), *of_helps(), *of_pages()])
    return [line for line in found if not any(words in line for words in ELSEWHERE)]


@pytest.fixture
def place(lockctl: Lockctl, tmp_path: Path) -> Iterator[Path]:
    """A home with all that the examples name: programs, files, a job that ran, a lock that is held for a handle."""
    for name in (*PROGRAMS, "ssh"):
        (tmp_path / name).write_text(SSH if name == "ssh" else "#!/bin/sh\necho '[]'\n")
        (tmp_path / name).chmod(0o755)
    for name in ("stock.json", "new.toml", "new"):
        (tmp_path / name).touch()
    (tmp_path / "repository").mkdir()
    (tmp_path / "lockctl").mkdir()
    # not a variable: a lockctl inside of a job does not see those
    (tmp_path / "lockctl" / "config.toml").write_text(f'[defaults]\nbackend = "{lockctl.url}"\n')
    yield tmp_path
    with contextlib.closing(open_backend(parse_url(lockctl.url))) as backend:
        for lock in backend.list("*", timeout=LIMIT):
            if lock.state != "free":  # what `acquire` holds
                assert lockctl("force-release", lock.name, "--yes").returncode == 0


@pytest.fixture
def typed(lockctl: Lockctl, place: Path, need_tool: Callable[[str], str]) -> Callable[..., None]:
    """Type a line, which must succeed."""
    need_tool("sqlite3")
    path = f"{Path(lockctl.command).parent}:{place}:{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": str(place), "LOCKCTL_HANDLE": "deploy.lock", "RUNNER_TEMP": str(place)}
    variables |= {"DOMAIN": DOMAIN}
    environment = lockctl.environment({**variables, "XDG_CONFIG_HOME": str(place)})
    del environment["LOCKCTL_BACKEND"]

    def type_(line: str, **more: str) -> None:
        schedule = SCHEDULE.match(line)
        line = line[schedule.end() :] if schedule else line
        # first, for the paths that come in below may have such parts, too
        line = re.sub(r"/usr/local/bin/(?!lockctl)|/srv/|/run/|/var/backups/|/tmp/(?=lockctl-)", f"{place}/", line)
        line = re.sub(r"((?:-b|--backend) )\S+", rf"\g<1>{lockctl.url}", line)  # URLs, and profiles of the reader's
        line = re.sub(r"(fence reset \S+)$", r"\1 --yes", line)  # a terminal would ask
        line = re.sub(r"(--store )\S+://\S+", rf"\g<1>sqlite://{place}/marks.db", line)
        line = line.replace("/usr/local/bin/lockctl", lockctl.command)
        done = subprocess.run(
            [need_tool("bash"), "-e", "-o", "pipefail", "-c", line],
            env=environment | more,
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert not (place / "injected").exists(), line

    return type_


def before(line: str) -> tuple[str, ...]:
    """What somebody has done who types this line."""
    verb = CALL.split(line)[1].split()[0] if CALL.search(line) else ""
    if verb in ("release", "renew"):
        return ("lockctl acquire deploy --for 30m --handle deploy.lock",)
    if verb in ("inspect", "history"):
        return ("lockctl run -l deploy -- true; lockctl run -l nightly -- sh -c 'exit 0'",)
    return ("lockctl fence sql --dialect sqlite | sqlite3 marks.db",) if "--store" in line else ()


@pytest.mark.parametrize("line", lines())
def test_an_example_works_as_it_is_typed(line: str, typed: Callable[..., None]) -> None:
    if "jq" in line and not shutil.which("jq"):
        line = line.partition("|")[0]
    for first in before(line):
        typed(first)
    token = {"LOCKCTL_TOKEN": "7", "LOCKCTL_TOKEN_DOMAIN": DOMAIN} if "lockctl fence" in line else {}
    typed(line, **token)


def test_a_later_step_of_github_actions_can_check_its_token(
    typed: Callable[..., None], place: Path, need_tool: Callable[[str], str]
) -> None:
    need_tool("jq")
    page = (ROOT / "man/text/lockctl-acquire.1.txt").read_text(encoding="utf-8")
    (block,) = [block for block in page.split("\n\n") if "GITHUB_ENV" in block]
    file = place / "github_env"
    for line in block.splitlines():
        typed(line.strip(), GITHUB_ENV=str(file))
    variables = dict(line.split("=", 1) for line in file.read_text().splitlines())
    typed("lockctl fence check /srv/stock.json", **variables)
    assert (place / "stock.json.fence").exists()


def test_every_example_is_run_somewhere() -> None:
    assert len(lines()) > 75
    assert [place for place in ELSEWHERE.values() if not (ROOT / "tests" / place).exists()] == []
