"""The samples in configs/ are complete, true, and accepted by what they are samples for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from lockctl import toml
from lockctl.cli import fastpath
from lockctl.durations import parse_duration
from lockctl.lease.schedule import plan
from lockctl.registry import SCHEMES, load
from lockctl.settings import SETTINGS
from lockctl.settings_values import check
from tests.surface.command_lines import calls_in_line, check_call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

IN_FILE = [setting for setting in SETTINGS if setting.in_config]
FIELD = r"(?:\*|\d+(?:-\d+)?)(?:/\d+)?(?:,\d+(?:-\d+)?)*"
SCHEDULE = re.compile(
    rf"(?:{FIELD}[ \t]+{FIELD}[ \t]+{FIELD}[ \t]+{FIELD}[ \t]+{FIELD}|@(?:hourly|daily|reboot))[ \t]+"
)
ASSIGNMENT = re.compile(r"[A-Z]+=\S+$")


@pytest.fixture
def sample(root: Path) -> Path:
    """configs/lockctl.toml."""
    return root / "configs/lockctl.toml"


def switched_on(text: str) -> str:
    """The sample with every setting, table and profile in force."""
    return re.sub(r"^#(?:   )?(?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE)


def test_the_sample_changes_nothing_as_it_is(sample: Path, lockctl: Lockctl) -> None:
    assert lockctl("config", "check", "--config", str(sample)).returncode == 0
    with_it = lockctl("config", "show", "--config", str(sample)).stdout
    assert with_it == lockctl("config", "show").stdout


def test_the_sample_has_every_key_in_the_order_of_the_options(sample: Path) -> None:
    keys = re.findall(r"^#([a-z_]+) = ", sample.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert keys == [setting.name for setting in IN_FILE]


def test_the_sample_shows_the_default_of_every_key_that_has_one(sample: Path) -> None:
    shown = toml.parse("sample", switched_on(sample.read_text(encoding="utf-8")))["defaults"]
    for setting in IN_FILE:
        content = shown[setting.name]
        if setting.kind == "flag":
            assert content is False, setting.name
        elif setting.default:
            assert str(content) == setting.default, setting.name
        else:
            check(setting, str(content))


def test_every_key_of_the_sample_is_explained(sample: Path) -> None:
    lines = sample.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"#[a-z_]+ = ", line):
            assert lines[number - 1].startswith("# "), line


def test_the_sample_with_everything_switched_on_is_accepted(sample: Path, tmp_path: Path, lockctl: Lockctl) -> None:
    everything = tmp_path / "config.toml"
    (tmp_path / "node-exporter").mkdir()
    here = rf'\1 = "{tmp_path}/'  # the places that a run writes to must be there
    text = switched_on(sample.read_text(encoding="utf-8"))
    everything.write_text(re.sub(r'^(report|metrics_dir|log) = ".*/', here, text, flags=re.MULTILINE))
    assert '\n[locks."deploy-*"]\nwait' in everything.read_text()
    done = lockctl("config", "check", "--config", str(everything))
    assert (done.returncode, done.stderr) == (0, "")
    shown = lockctl("config", "show", "--config", str(everything), "-l", "deploy-a", "-b", "scratch").stdout
    assert re.search(r"^backend\tfile:///run/lockctl\t--backend$", shown, flags=re.MULTILINE)
    assert re.search(r'^wait\t30m\t.*\[locks\."deploy-\*"\]$', shown, flags=re.MULTILINE)


BACKENDS = sorted({load(scheme).capabilities.scheme for scheme in SCHEMES} - {"file"})


def test_there_is_a_sample_for_each_backend(root: Path) -> None:
    assert sorted(path.stem for path in (root / "configs").glob("*.toml")) == sorted([*BACKENDS, "lockctl"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_sample_of_a_backend_is_accepted_and_chooses_it(
    backend: str, root: Path, lockctl: Lockctl, tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "password").chmod(0o600)
    text = (root / f"configs/{backend}.toml").read_text(encoding="utf-8")
    text = text.replace("/etc/lockctl/ca.pem", str(certificates.ca))
    sample = tmp_path / "config.toml"
    sample.write_text(re.sub(r"/etc/lockctl/[\w.-]+", str(tmp_path / "password"), text))
    done = lockctl("config", "check", "--config", str(sample), env={"LOCKCTL_BACKEND": ""})
    assert (done.returncode, done.stderr) == (0, "")
    shown = lockctl("config", "show", "--config", str(sample), env={"LOCKCTL_BACKEND": ""}).stdout
    assert re.search(rf"^backend\t{backend}\S*://\S+\t{re.escape(str(sample))}", shown, flags=re.MULTILINE), shown
    assert all(line.startswith("#") for line in text.splitlines()[:1]), "it says first what it is"


def test_every_line_of_the_crontab_is_one_that_cron_and_lockctl_accept(root: Path) -> None:
    jobs = 0
    for line in (root / "configs/crontab").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#") or ASSIGNMENT.match(line):
            continue
        schedule = SCHEDULE.match(line)
        assert schedule, line
        command = line[schedule.end() :]
        assert "%" not in command.replace("\\%", ""), f"cron ends the command at a %: {line}"
        found = list(calls_in_line(command.replace("\\%", "%")))
        assert len(found) == 1, line
        check_call(found[0])
        parsed = fastpath.read(found[0][1:])
        assert parsed is not None
        assert "lock" in parsed[0], f"a name for the lock survives a change of the command: {line}"
        jobs += 1
    assert jobs >= 4


def test_no_line_for_the_crontabs_of_many_hosts_lets_a_short_job_run_twice(root: Path) -> None:
    documents = [root / "README.md", root / "configs/crontab", *(root / "man/text").iterdir()]
    found = 0
    for document in documents:
        for line in document.read_text(encoding="utf-8").splitlines():
            schedule = SCHEDULE.match(line.strip())
            if not schedule or " -b " not in line:
                continue
            (call,) = calls_in_line(line.strip()[schedule.end() :])
            parsed = fastpath.read(call[1:])
            assert parsed is not None
            assert {"once_per", "min_hold"} & set(parsed[0]), line
            found += 1
    assert found >= 4


def test_the_image_starts_a_job_with_a_grace_period_that_fits(root: Path) -> None:
    text = (root / "configs/Dockerfile").read_text(encoding="utf-8")
    assert text.startswith("#"), "it says first what it is"
    steps = dict(line.split(" ", 1) for line in text.splitlines() if re.match(r"[A-Z]+ ", line))
    assert set(steps) == {"FROM", "COPY", "RUN", "STOPSIGNAL", "CMD"}
    program, *call = json.loads(steps["CMD"])
    assert program == "lockctl"
    check_call(call)
    parsed = fastpath.read(call[1:])
    assert parsed is not None
    grace = parse_duration(str(parsed[0]["kill_after"]))
    assert grace < 10, "docker stop kills after that"
    assert plan(parse_duration(str(parsed[0]["ttl"])), grace, load("file").capabilities).grace == grace


def test_the_unit_of_systemd_starts_a_standby_and_gives_it_time_to_stop(root: Path) -> None:
    unit = (root / "configs/lockctl-leader.service").read_text(encoding="utf-8")
    assert unit.startswith("#"), "it says first what it is"
    entries = dict(line.split("=", 1) for line in unit.splitlines() if re.match(r"[A-Z]\w+=", line))
    (call,) = calls_in_line(entries["ExecStart"])
    check_call(call)
    parsed = fastpath.read(call[1:])
    assert parsed is not None
    given, _, _ = parsed
    assert given["restart"] is True
    assert entries["KillMode"] == "mixed"
    grace = parse_duration(str(given["kill_after"]))
    assert float(entries["TimeoutStopSec"]) > grace + 5
    backend = load(str(given["backend"]).partition(":")[0]).capabilities
    assert plan(parse_duration(str(given["ttl"])), grace, backend).grace == grace
    final = set(entries["RestartPreventExitStatus"].split())
    assert {"64", "78"} <= final
    assert "126" not in final, "it is the status on a host that has no process left at the moment, too"
