"""What ``make bench`` writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from tests.bench import bench, handoff, plot
from tests.bench.report import Row, Table, as_text

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


TABLE = Table(
    "start",
    "start <of> a run",
    "ms",
    "python",
    [
        Row("python", [20, 10, 90]),
        Row("tool & lock", [40, 80, 60]),
        Row("lockctl run, a", [30, 30, 30], "tool & lock"),
        Row("lockctl run, b", [400, 400, 400]),
        Row("lockctl run, c", [1, 1, 1], "not there"),
    ],
)


def test_a_row_is_compared_with_the_base_and_with_its_peer_where_there_is_one() -> None:
    title, *lines = as_text(TABLE)
    assert title.startswith("start <of> a run")
    assert [" ".join(line.split()) for line in lines] == [
        "python 20.0 ms 10.0 1.00 x python",
        "tool & lock 60.0 ms 40.0 3.00 x python",
        "lockctl run, a 30.0 ms 30.0 1.50 x python 0.50 x tool & lock",
        "lockctl run, b 400.0 ms 400.0 20.00 x python",
        "lockctl run, c 1.0 ms 1.0 0.05 x python",
    ]


def test_bars_of_the_picture_go_left_and_right_of_one() -> None:
    root = ET.fromstring(plot.as_svg([TABLE], "a machine"))
    bars = {
        kind: [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") == kind] for kind in ("page", "less", "more")
    }
    assert [len(bars[kind]) for kind in ("page", "less", "more")] == [1, 2, 1]
    one = next(float(line.get("x1", "0")) for line in root.iter(f"{SVG}line") if line.get("class") == "one")
    for bar in bars["less"]:
        assert float(bar.get("x", "0")) + float(bar.get("width", "0")) == pytest.approx(one, abs=0.2)
    assert float(bars["more"][0].get("x", "0")) == one
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {
        "start <of> a run",
        "a machine; blue: less than the peer, orange: more",
        "0.50 x tool & lock",
        "20.00 x python",
    } <= set(texts)
    assert "prefers-color-scheme: dark" in "".join(root.itertext())
