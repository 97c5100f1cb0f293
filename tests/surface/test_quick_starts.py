"""What README.md tells a newcomer to type for each store works, on a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import PLACES, addresses_of, on_backends
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from tests.jobs import Lockctl

HERE = Path(__file__).resolve().parents[2]
EXPORT = re.compile(r"^export LOCKCTL_BACKEND='((\w+)://.*)'$", re.MULTILINE)


def blocks() -> dict[str, str]:
    """Scheme -> what is to be typed."""
    text = (HERE / "README.md").read_text(encoding="utf-8").partition("## Quick start")[2].partition("\n## ")[0]
    found = {}
    for block in re.findall(r"(?:^    .*\n)+", text, flags=re.MULTILINE):
        scheme = EXPORT.search(block.replace("    ", ""))
        found[scheme[2] if scheme else "file"] = re.sub(r"^    ", "", block, flags=re.MULTILINE)
    return found


def test_each_store_has_a_quick_start() -> None:
    assert set(PLACES) - set(blocks()) == {"sqlite"}  # for one host, where files serve as well


@pytest.mark.parametrize("name", on_backends(*(name for name in PLACES if name != "sqlite")))
def test_a_quick_start_runs(name: str, lockctl: Lockctl, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = PLACES[name]
    at = addresses_of(request.getfixturevalue(place.servers)) if place.servers else []
    url = place.url(at, f"quick-{os.getpid()}", lockctl.directory)
    typed = EXPORT.sub(f"export LOCKCTL_BACKEND='{url}'", blocks()[name])
    path = f"{Path(lockctl.command).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", typed],
        env=lockctl.environment({"PATH": path, "LOCKCTL_BACKEND": url}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("it works\n")
