"""Credentials of a backend go to the backend and nowhere else."""

from __future__ import annotations

import pytest

SECRET = "hunter2"
UNREACHABLE = "redis://:{}@127.0.0.1:1/0"


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCKCTL_BACKEND": UNREACHABLE.format(SECRET)},
        {"LOCKCTL_BACKEND": "redis://127.0.0.1:1", "LOCKCTL_PASSWORD": SECRET},
    ],
    ids=["in the URL", "in a variable of its own"],
)
@pytest.mark.parametrize("reachable", [True, False])
def test_the_command_gets_no_credential(lockctl, variables, reachable, locks):
    report = locks / ".report"
    url = ("-b", lockctl.url) if reachable else ()
    options = ("-v", "--log-format", "json", "--on-unavailable", "run", "--report", str(report))
    done = lockctl("run", *url, *options, "-l", "a", "--", "env", "-0", env=variables)
    assert done.returncode == 0, done.stderr
    names = {line.partition("=")[0] for line in done.stdout.split("\0")}
    assert "PATH" in names
    assert "LOCKCTL_PASSWORD" not in names
    assert SECRET not in done.stdout + done.stderr + report.read_text()
