"""`lockctl config crontab`: a line that cron can run as it stands, or a sentence that says why not."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipapp
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lockctl.cli import crontab
from lockctl.cli.commands import cli
from lockctl.cli.crontab import own_path
from lockctl.doctor import installation
from lockctl.errors import LockctlError
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl


@pytest.fixture(autouse=True, scope="module")
def _started() -> Iterator[None]:
    """The tests are the program that is installed, whose code may be that of another directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [os.path.join(sysconfig.get_path("scripts"), installation.NAME)])
        yield


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory with this package in it, which is not installed."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installation.DIRECTORY, tmp_path / "copy" / installation.NAME, ignore=unwanted)
    return tmp_path / "copy"


def printed(lockctl: Lockctl, *program: str | Path, **variables: str) -> tuple[int, str]:
    """The status of a program that prints a line, and with what that begins or what is wrong."""
    done = subprocess.run(
        [*program, "config", "crontab", "@daily", "-l", "a", "--", "true"],
        cwd="/",
        env=lockctl.environment(variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout.partition(" run ")[0] or done.stderr.splitlines()[-1]


def test_code_that_no_program_runs_is_refused(lockctl: Lockctl, copy: Path) -> None:
    said = f"lockctl: {copy}/lockctl is not a program that cron can start: install lockctl"
    assert printed(lockctl, sys.executable, "-m", "lockctl", PYTHONPATH=str(copy)) == (78, said)


def test_an_archive_is_a_program_if_it_can_be_executed(lockctl: Lockctl, copy: Path, tmp_path: Path) -> None:
    archive = tmp_path / "lockctl.pyz"
    zipapp.create_archive(copy, archive, sys.executable, "lockctl.__main__:main")
    assert printed(lockctl, archive) == (0, f"@daily  {archive}")
    archive.chmod(0o644)
    said = f"lockctl: {archive} is not a program that cron can start: install lockctl"
    assert printed(lockctl, sys.executable, archive) == (78, said)


@pytest.mark.parametrize("editable", [True, False])
def test_what_is_installed_has_the_program_of_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, editable: bool
) -> None:
    place, script = Path(installation.DIRECTORY).parent, tmp_path / "bin/lockctl"
    packages = tmp_path / "packages" if editable else place
    monkeypatch.setattr(sysconfig, "get_scheme_names", lambda: ("nt", "venv"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda _: {"scripts": str(script.parent), "purelib": str(packages)})
    if editable:
        about = packages / "lockctl-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lockctl\nVersion: 1\n")
        origin = {"url": place.as_uri(), "dir_info": {"editable": True}}
        (about / "direct_url.json").write_text(json.dumps(origin))
    assert installation.own_path("/usr/bin/python3") is None
    script.parent.mkdir()
    script.touch()
    assert installation.own_path("/usr/bin/python3") == str(script)


def test_cron_can_run_the_line_as_it_is_printed(lockctl: Lockctl, tmp_path: Path) -> None:
    options = ("-b", lockctl.url, "-l", "a", "--ttl", "5s")
    done = lockctl("config", "crontab", "*/5  * * jan mon-fri", *options, "--", "expr", "1", "%", "1")
    when, _, line = done.stdout.rstrip("\n").partition("  ")
    assert when == "*/5 * * jan mon-fri"
    assert line.endswith(f" run -b {lockctl.url} -l a --ttl 5s -- {shutil.which('expr')} 1 \\% 1")
    assert "LOCKCTL_BACKEND" not in done.stderr
    without = lockctl("config", "crontab", "@daily", "-l", "a", "--", "expr", "1")
    assert "cron does not see LOCKCTL_BACKEND" in without.stderr
    run = ["/bin/sh", "-c", line.replace("\\%", "%")]
    by_cron = subprocess.run(
        run, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, timeout=LIMIT, check=False
    )
    assert (by_cron.returncode, by_cron.stdout, by_cron.stderr) == (1, b"0\n", b"")


def test_a_line_for_a_shell_stays_one_word() -> None:
    done = CliRunner().invoke(cli, ["config", "crontab", "@daily", "-l", "a", "-c", "date +%u | cat"])
    assert done.stdout == f"@daily  {own_path()} run -l a -c -- 'date +\\%u | cat'\n"


def as_cron_reads(line: str, *, pairs: bool) -> str:
    """What cron gives to the shell, ended by a bare percent sign; with *pairs* two backslashes are one, as in Debian."""
    given, escaped = "", False
    for char in line:
        if escaped and (char == "%" or (pairs and char == "\\")):
            given, escaped = given[:-1] + char, False
            continue
        if char == "%":
            break
        given, escaped = given + char, char == "\\"
    return given


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text("\\%a' ", max_size=6), min_size=1, max_size=3), st.booleans())
def test_backslashes_and_percent_signs_come_through_every_cron(words: list[str], pairs: bool) -> None:  # noqa: FBT001
    done = CliRunner().invoke(cli, ["config", "crontab", "@daily", "-l", "a", "--", "expr", *words])
    line = done.stdout.rstrip("\n").partition("  ")[2]
    assert shlex.split(as_cron_reads(line, pairs=pairs))[-len(words) :] == words


def test_a_link_for_all_users_is_better_than_the_environment_that_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = own_path()
    link = tmp_path / installation.NAME
    link.symlink_to(environment)
    monkeypatch.setattr(crontab, "STABLE", (str(tmp_path),))
    assert own_path() == str(link)
    link.unlink()
    link.write_text("#!/bin/sh\n# a shim\n")
    assert own_path() == environment


@pytest.mark.parametrize("when", ["* * * * 5-7", "* * * * sun-fri", "1-1 * * * *", "* * 1-31/2 jan-dec 0,7"])
def test_a_range_that_runs_forward_is_a_time(when: str) -> None:
    done = CliRunner().invoke(cli, ["config", "crontab", when, "-l", "a", "--log", "syslog", "true"])
    assert done.stdout.startswith(f"{when}  ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["60 * * * *", "true"], "not a time of crontab"),
        (["9" * 5000 + " * * * *", "true"], "not a time of crontab"),
        (["* * * *", "true"], "not a time of crontab"),
        (["5/10 * * * *", "true"], "not a time of crontab"),
        (["* * * * fri-sol", "true"], "not a time of crontab"),
        (["@often", "true"], "not a time of crontab"),
        (["5-1 * * * *", "true"], "not a time of crontab"),
        (["* * * dec-jan *", "true"], "not a time of crontab"),
        (["* * * * fri-sun", "true"], "not a time of crontab"),
        (["*/\N{ARABIC-INDIC DIGIT FIVE} * * * *", "true"], "not a time of crontab"),
        (["@daily", "--config", "../c.toml", "true"], "--config: ../c.toml: "),
        (["@daily", "--report", "out/report", "true"], "--report: out/report: "),
        (["@daily", "--log=log", "true"], "--log: log: "),
        (["@daily", "--metrics-dir", ".", "true"], "--metrics-dir: .: "),
        (["@daily", "--fence", "stock", "true"], "--fence: stock: "),
        (["@daily", "--fence", "nosuch://h/x", "true"], "--fence: no store of marks"),
        (["@daily"], "no command"),
        (["@daily", "no-such-command"], "not in the PATH"),
        (["@daily", "echo hello world"], "needs -c"),
        (["@daily", "-l", "a", "-l", "b c", "true"], "--lock: "),
        (["@daily", "--ttl", "soon", "true"], "--ttl: "),
        (["@daily", "--shared", "--slots", "2", "true"], "contradict"),
        (["@daily", "--ttl", "5s", "--kill-after", "9s", "true"], "--kill-after"),
        (["@daily", "-b", "banana://x", "true"], "banana"),
        (["@daily", "-b", "redis://h/0", "--guarantee", "correctness", "true"], "correctness is not met"),
        (["@daily", "--guarantee", "correctness", "--leftover", "leave", "true"], "correctness is not met"),
        (["@daily", "-b", "consul://h/", "--shared", "true"], "does not have --shared"),
        (["@daily", "-b", "redlock://a,b,c/0", "--slots", "3", "true"], "does not have --slots"),
        (["@daily", "-b", "postgresql://h/x?key=5", "-l", "a", "-l", "b", "true"], "the same lock"),
        (["@daily", "--report", "/no-such-dir/report", "true"], "--report: cannot write /no-such-dir/report: "),
        (["@daily", "--metrics-dir", "/no-such-dir", "true"], "--metrics-dir: /no-such-dir is not a directory"),
        (["@daily", "--log", "/no-such-dir/log", "true"], "--log: cannot write to /no-such-dir/log: "),
        (["@daily", "-c", "a\nb"], "line break"),
    ],
)
def test_what_cron_could_not_run_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["config", "crontab", *words])
    assert done.stdout == ""
    assert isinstance(done.exception, LockctlError)
    assert said in str(done.exception)


def test_the_settings_are_those_of_the_lock_that_the_run_has(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[locks."expr-*"]\nreport = "/no-such-dir/report"\n')
    options = ["config", "crontab", "@daily", "--config", str(file)]
    refused = CliRunner().invoke(cli, [*options, "expr", "1"])
    assert isinstance(refused.exception, LockctlError)
    assert f'{file} [locks."expr-*"] report: cannot write /no-such-dir/report' in str(refused.exception)
    second = CliRunner().invoke(cli, [*options, "-l", "a", "-l", "expr-1", "expr", "1"])
    assert second.stdout.startswith("@daily  ")


def test_no_resource_is_no_path() -> None:
    done = CliRunner().invoke(cli, ["config", "crontab", "@daily", "-l", "a", "--fence", "none", "true"])
    assert done.stdout.startswith("@daily  ")


def test_a_file_that_a_run_would_write_is_not_made(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("log", "report")]
    options = ["--log", str(files[0]), "--report", str(files[1]), "--metrics-dir", str(tmp_path)]
    done = CliRunner().invoke(cli, ["config", "crontab", "@daily", "-l", "a", *options, "true"])
    assert done.stdout.startswith("@daily  ")
    assert list(tmp_path.iterdir()) == []
    files[0].symlink_to("elsewhere")
    refused = CliRunner().invoke(cli, ["config", "crontab", "@daily", "-l", "a", *options, "true"])
    assert "it is a symbolic link" in str(refused.exception)
