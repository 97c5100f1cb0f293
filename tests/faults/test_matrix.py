"""The table of faults, in short: one repetition of what no other test does, and its page in the manual."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends
from tests.faults.matrix import page
from tests.faults.matrix.__main__ import play
from tests.faults.matrix.faults import FAULTS

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@pytest.mark.parametrize("backend_name", on_backends("redis", "etcd"))
@pytest.mark.parametrize("fault", ["both stopped", "all stopped", "lock deleted", "cut off"])
def test_what_is_left_of_a_job_is_refused_by_what_has_seen_the_next_token(
    backend_name: str, fault: str, servers: Any, tmp_path: Path
) -> None:
    seen = play(backend_name, FAULTS[fault], servers, tmp_path / "stage")
    assert seen.wrong == []
    assert backend_name in FAULTS[fault].admitted or not seen.overlap


def test_the_page_of_the_manual_says_what_was_seen() -> None:
    results = json.loads(page.RESULTS.read_text())
    assert page.PAGE.read_text() == page.render(results)
    assert [cell["wrong"] for cell in results["cells"]] == [[]] * len(results["cells"])
