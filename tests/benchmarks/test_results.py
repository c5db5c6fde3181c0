"""The evaluation of the tables of `make bench`: ratios, a comparison with the baseline, a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks import results
from benchmarks.plot import PICTURE, draw
from benchmarks.results import by_name, compare, ratios, read_baseline
from benchmarks.table import Shown

TABLE = Shown(
    "Submits",
    ["what", "submits/s", "ratio", "goal"],
    [["INSERTs", "240", "1.0", ""], ["weft (all after 3.2 s)", "60", "0.25", "≥ 0.6"], ["no", "", "", ""]],
)
MLFLOW = Shown("", ["clients", "server", "ratio"], [["20", "MLflow", "1"], ["20", "Weft", "5.3"], ["1", "Weft", "2"]])


def test_the_ratios_of_tables() -> None:
    found = ratios("submits", [TABLE, Shown("no ratios", ["what", "ms"], [["a", "1"]])])
    assert by_name(found) == {"submits": {"weft": 0.25}}
    assert found[0].goal == "≥ 0.6"
    named = by_name(ratios("mlflow", [MLFLOW]))["mlflow"]
    assert named == {"20, Weft": 5.3, "1, Weft": 2.0}, "rows with the same first cell are distinguished"


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        ({"a": {"x": 1.24}}, [""]),
        ({"a": {"x": 1.3}}, ["+30%"]),
        ({"a": {"x": 0.7}}, ["-30%"]),
        ({"a": {}}, ["not measured any more"]),
        ({"a": {"x": 1.0, "y": 2.0}}, ["", "not in the baseline"]),
        ({}, []),
    ],
)
def test_the_comparison(now: results.Ratios, wrong: list[str]) -> None:
    assert [row[-1] for row in compare(now, {"a": {"x": 1.0}, "other": {"z": 1.0}})] == wrong


def test_a_new_baseline_keeps_the_benchmarks_that_were_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "BASELINE", tmp_path / "baseline.json")
    results.keep({"a": {"x": 1.0}, "b": {"y": 2.0}})
    results.keep({"a": {"x": 3.0}})
    assert read_baseline() == {"a": {"x": 3.0}, "b": {"y": 2.0}}
    assert results.check({"a": {"x": 3.1}})
    assert not results.check({"a": {"x": 9.0}})


def test_the_picture() -> None:
    drawn = draw({"a & b": {"<slow>": 8.0, "quick": 0.25}})
    root = ElementTree.fromstring(drawn)
    bars = [node for node in root if node.tag.endswith("rect")]
    assert len(bars) == 2
    slow, quick = (float(bar.attrib["x"]) for bar in bars)
    assert quick < slow, "less than 1 is drawn to the left of the line"
    assert float(bars[0].attrib["width"]) > float(bars[1].attrib["width"])


def test_the_committed_picture_shows_the_committed_baseline() -> None:
    assert PICTURE.read_text() == draw(json.loads(results.BASELINE.read_text())), "run `make bench ARGS=--keep`"
