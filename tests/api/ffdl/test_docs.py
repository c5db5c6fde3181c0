"""The tests that docs/from-ffdl.md names for the faults of FfDL exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tests_that_are_named_are_there() -> None:
    text = (ROOT / "docs" / "from-ffdl.md").read_text(encoding="utf-8")
    rows = text.partition("## What was wrong with FfDL")[2].strip().splitlines()[2:]
    assert len(rows) >= 12, "FfDL's users complained of so much"
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for path, name in named:
            assert f"def {name or 'test_'}" in (ROOT / path).read_text(encoding="utf-8"), row
