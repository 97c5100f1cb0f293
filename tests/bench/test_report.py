"""What ``make bench`` writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from tests.bench import bench, handoff

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def test_a_small_run_writes_its_tables_as_json_and_as_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "SETTLE", 0.1)  # whether flock waited already does not matter here
    numbers, picture = tmp_path / "new" / "bench.json", tmp_path / "bench.svg"
    words = ["--rounds", "1", "--only", "file", "--only", "start", "--only", "hand-off"]
    assert bench.main([*words, "--json", str(numbers), "--svg", str(picture)]) == 0

    report = json.loads(numbers.read_text())
    assert report["rounds"] == 1
    assert set(report["machine"]) == {"cpu", "cores", "kernel", "load"}
    assert {"Python", "lockctl"} <= report["versions"].keys()
    assert [(table["name"], table["unit"]) for table in report["tables"]] == [("start", "ms"), ("hand-off", "ms")]
    for table in report["tables"]:
        rows = {row["name"]: row for row in table["rows"]}
        assert rows[table["base"]]["to_base"] == 1
        ours = rows["lockctl run, file"]
        assert set(ours) == {"name", "median", "samples", "to_base", "peer", "to_peer"}
        assert ours["samples"] == [ours["median"]]
        assert ours["to_peer"] == pytest.approx(ours["median"] / rows[ours["peer"]]["median"])

    printed = capsys.readouterr().out
    assert "lockctl run, file" in printed
    assert f"written: {picture}" in printed
    texts = [text.text for text in ET.parse(picture).getroot().iter(f"{SVG}text")]
    assert texts.count("lockctl run, file") == 2
