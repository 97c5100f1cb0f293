"""Under Debian's own cron daemon: two entries for the same minute run once."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT, eventually
from tests.run.crontabs import Cron

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl

# writes a line, then stays until the test ends it: the other entry of the same minute comes too late
JOB = "sh -c 'echo ran >>{mark}; while ! test -e {end}; do sleep 0.1; done'"


@pytest.fixture
def cron(need_tool: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[[list[str]], Cron]]:
    """Start a cron daemon of our own with these entries."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a cron daemon")
    need_tool("cron")
    unshare = need_tool("unshare")
    refused = subprocess.run([unshare, "--mount", "true"], capture_output=True, text=True, check=False, timeout=LIMIT)
    if refused.returncode and not os.environ.get("CI"):
        pytest.skip(f"no mount namespace of our own: {refused.stderr.strip()}")
    started: list[Cron] = []

    def start(entries: list[str]) -> Cron:
        started.append(Cron(unshare, tmp_path, entries))
        return started[-1]

    yield start
    for daemon in started:
        daemon.end()


@pytest.mark.timeout(180)
def test_two_entries_for_the_same_minute_run_once_and_only_a_refusal_that_was_not_expected_is_mailed(
    cron: Callable[[list[str]], Cron], lockctl: Lockctl, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    run = f"* * * * * {lockctl.command} run -b {lockctl.url}"
    entries = []
    for lock, options in (("talks", ""), ("silent", "--skip-ok")):
        job = JOB.format(mark=tmp_path / lock, end=end)
        entries += [f"{run} -l {lock} {options} -- {job}; echo $? >>{tmp_path}/status-{lock}"] * 2
    for file, before in (("plain", "* * * * *"), ("under-lockctl", f"{run} -l environment --")):
        entries.append(f"{before} env >{tmp_path}/{file}.new; mv {tmp_path}/{file}.new {tmp_path}/{file}")
    line = ("* * * * *", "-b", lockctl.url, "-l", "words", "-c", rf"printf '%s\n' a\\%b 'c\\d' >{tmp_path}/words")
    entries.append(lockctl("config", "crontab", *line).stdout.rstrip("\n"))
    daemon = cron(entries)
    daemon.await_minute()
    for lock, refused in (("talks", "75"), ("silent", "0")):
        assert _written(tmp_path / f"status-{lock}", "\n") == f"{refused}\n"
    eventually(daemon.mail.read_text)
    end.touch()
    for lock in ("talks", "silent"):
        _written(tmp_path / f"status-{lock}", "\n0\n")
        assert (tmp_path / lock).read_text() == "ran\n"

    mail = daemon.mail.read_text()
    assert mail.count("Subject:") == 1
    assert "-l talks" in mail
    body = mail.partition("\n\n")[2].splitlines()
    assert len(body) == 1
    assert body[0].startswith("lockctl: talks: held by ")

    plain, under_lockctl = (_written(tmp_path / file, "\n") for file in ("plain", "under-lockctl"))
    assert "LOCKCTL_OWNER=" in under_lockctl
    assert _environment(under_lockctl) == _environment(plain)
    assert _written(tmp_path / "words", "d\n") == "a\\%b\nc\\\\d\n"


def _written(file: Path, end: str) -> str:
    """The content of a file, once it is there and ends with *end*."""
    eventually(lambda: file.exists() and file.read_text().endswith(end), LIMIT)
    return file.read_text()


def _environment(text: str) -> list[str]:
    """The sorted lines of `env`, without what lockctl gives to every command."""
    return sorted(line for line in text.splitlines() if not line.startswith("LOCKCTL_"))
