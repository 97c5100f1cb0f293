"""What `lockctl doctor` finds in a backend: by id, the worst level, and what was seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lockctl.cli.commands import cli

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS = ("ok", "warn", "fail")


class Diagnosis(dict[str, dict[str, str]]):
    """The worst finding of each id. Nothing secret may be in any."""

    def __init__(self, text: str, status: int) -> None:
        document = json.loads(text)
        for finding in sorted(document["findings"], key=lambda each: LEVELS.index(each["level"])):
            self[finding["id"]] = finding
        assert status == ("fail" in self.levels().values())
        for finding in document["findings"]:
            assert finding["seen"]
            assert finding["why"]
            assert (finding["remedy"] is None) == (finding["level"] == "ok")
            assert "{at}" not in (finding["remedy"] or "")

    def levels(self, prefix: str = "") -> dict[str, str]:
        """Id -> level, of ids that begin so."""
        return {name: finding["level"] for name, finding in self.items() if name.startswith(prefix)}

    def troubles(self, *prefixes: str) -> dict[str, str]:
        """Id -> level, of what is not ok there; but how quick this machine is now is no matter of a server."""
        wrong = {name: level for name, level in self.levels().items() if level != "ok" and name.startswith(prefixes)}
        wrong.pop("backend.round_trip", None)
        return wrong


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Diagnosis]:
    """Examines the backend of a URL."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")

    def run(url: str, *options: str) -> Diagnosis:
        done = CliRunner().invoke(cli, ["doctor", "-b", url, "--json", *options], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        assert "s3cret" not in done.stdout
        return Diagnosis(done.stdout, done.return_value)

    return run
