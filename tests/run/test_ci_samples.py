"""The shell parts of the samples for CI systems do what the samples say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT, alive, eventually

if TYPE_CHECKING:
    from tests.jobs import Lockctl

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {
    "github-actions.yml": r"run: \|\n((?: {10}.*\n)+)",
    "gitlab-ci.yml": r"^    - (.*\n)",
    "Jenkinsfile": r"sh '''\n(.*?)'''",
}
URL = "https://ci.example/team/shop/actions/runs/7"
VARIABLES = {  # what each system says of a job with this URL
    "CI_JOB_URL": URL,
    "BUILD_URL": URL,
    "GITHUB_SERVER_URL": "https://ci.example",
    "GITHUB_REPOSITORY": "team/shop",
    "GITHUB_RUN_ID": "7",
}
DEPLOY = """#!/bin/sh
echo "$$ ${LOCKCTL_TOKEN:-none}" >started
while test -e wait; do sleep 0.02; done
exit 3
"""


class Step:
    """The one shell part of a sample, run as CI systems do, beside a `deploy.sh`."""

    def __init__(self, lockctl: Lockctl, sample: str) -> None:
        self.lockctl = lockctl
        text = (ROOT / "configs" / sample).read_text()
        (self.script,) = re.findall(SAMPLES[sample], text, flags=re.DOTALL if sample == "Jenkinsfile" else re.MULTILINE)
        self.work = lockctl.directory / ".work"
        self.work.mkdir()
        self.started = self.work / "started"
        (self.work / "deploy.sh").write_text(DEPLOY)
        (self.work / "deploy.sh").chmod(0o755)

    def start(self, script: str | None = None) -> subprocess.Popen[str]:
        """In a session of its own, whose processes get the signals of the test."""
        path = f"{Path(self.lockctl.command).parent}:{os.environ['PATH']}"
        words = ["bash", "-e", "-o", "pipefail", "-c", self.script if script is None else script]
        return subprocess.Popen(
            words,
            cwd=self.work,
            env=self.lockctl.environment({"PATH": path, **VARIABLES}),
            start_new_session=True,
            text=True,
        )

    def deployed(self) -> tuple[int, str]:
        """Process and token of a deployment that has begun."""
        eventually(lambda: self.started.exists() and self.started.read_text().endswith("\n"))
        pid, token = self.started.read_text().split()
        return int(pid), token


@pytest.fixture(params=SAMPLES)
def step(request: pytest.FixtureRequest, lockctl: Lockctl) -> Step:
    """The step of each sample."""
    return Step(lockctl, request.param)


def test_a_deployment_has_the_token_and_its_history_has_its_status_and_the_job(step: Step) -> None:
    assert step.start().wait(LIMIT) == 3
    _, token = step.deployed()
    (run,) = json.loads(step.lockctl("history", "deploy", "--json").stdout)
    assert (run["outcome"], run["exit_code"], str(run["token"])) == ("exited", 3, token)
    assert run["labels"] == {"job": URL}


def test_a_killed_step_frees_the_lock_only_when_the_deployment_is_gone(step: Step) -> None:
    (step.work / "wait").touch()
    running = step.start()
    pid, _ = step.deployed()
    (holder,) = json.loads(step.lockctl("inspect", "deploy", "--json").stdout)["holders"]
    assert holder["labels"] == {"job": URL}
    second = step.script.replace("--wait 10m", "--wait 0 -q")
    assert step.start(second).wait(LIMIT) == 75
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(LIMIT)

    def free() -> bool:
        there = alive(pid)  # asked first: it must be gone when the lock is free
        is_free = json.loads(step.lockctl("inspect", "deploy", "--json").stdout)["state"] == "free"
        assert not (there and is_free and alive(pid))
        return bool(is_free)

    eventually(free)
    assert not alive(pid)
