"""The shell parts of the samples for CI systems do what the samples say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.run.acquirer import Acquirer

ROOT = Path(__file__).resolve().parents[2]


def step(acquirer: Acquirer, lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the shell part of a sample, with the options that the CI systems use, beside a `deploy.sh`."""
    work = acquirer.runtime / "work"
    work.mkdir(exist_ok=True)
    (work / "deploy.sh").write_text("#!/bin/sh\necho deployed >> log\nlockctl list > held\n")
    (work / "deploy.sh").chmod(0o755)
    env = {
        **acquirer.lockctl.environment(acquirer.env),
        "RUNNER_TEMP": str(work),
        "WORKSPACE_TMP": str(work),
        **variables,
    }
    env["PATH"] = f"{Path(acquirer.lockctl.command).parent}:{env['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", lines],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def blocks(sample: str) -> list[str]:
    text = (ROOT / "configs" / sample).read_text()
    if sample == "gitlab-ci.yml":
        return ["\n".join(re.findall(r"^    - (.*)$", text, flags=re.MULTILINE))]
    if sample == "Jenkinsfile":
        return re.findall(r"sh '''\n(.*?)'''", text, flags=re.DOTALL)
    return re.findall(r"run: \|\n((?: {10}.*\n)+)", text)


@pytest.mark.parametrize(("sample", "parts"), [("github-actions.yml", 3), ("gitlab-ci.yml", 1), ("Jenkinsfile", 3)])
def test_the_shell_parts_of_a_sample_work_and_a_second_pipeline_is_refused(
    sample: str, parts: int, acquirer: Acquirer
) -> None:
    lines = blocks(sample)
    assert len(lines) == parts
    for part in lines:
        done = step(acquirer, part)
        assert (done.returncode, done.stderr) == (0, "")
    assert (acquirer.runtime / "work/log").read_text() == "deployed\n"
    assert acquirer.free()
    acquirer.acquire()
    refused = step(acquirer, lines[0].replace("--wait 10m", "--wait 0"))
    assert (refused.returncode, refused.stdout) == (75, "")
    assert (acquirer.runtime / "work/log").read_text() == "deployed\n"
