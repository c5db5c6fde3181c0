"""The ratios that the tables show: all in one table, as JSON, compared with the baseline, and drawn.

A ratio compares Weft with something else in the same run, so it may be compared with that of another day and machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Shown, show

BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 0.25
"""The share by which a ratio may differ from that of the baseline."""
_RATIOS = ("ratio", "growth")
_NAMES = ("what", "where", "server", "clients", "image", "precision")

Ratios = dict[str, dict[str, float]]
"""By benchmark and by what was measured."""


@dataclass(frozen=True)
class Ratio:
    """One ratio of one table."""

    benchmark: str
    what: str
    value: float
    goal: str


def ratios(benchmark: str, tables: Sequence[Shown]) -> list[Ratio]:
    """The ratios in a benchmark's tables; the rows that others are compared with, whose ratio is 1, are left out."""
    found = []
    for table in tables:
        column = next((number for number, name in enumerate(table.columns) if name in _RATIOS), None)
        if column is None:
            continue
        for row in table.rows:
            if re.fullmatch(r"1(\.0+)?|", row[column]) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", row[column]):
                continue
            cells = dict(zip(table.columns, row, strict=True))
            names = [row[0], *(cells[name] for name in _NAMES if name in table.columns[1:])]
            # What is in parentheses is about this run.
            what = re.sub(r" \(.*?\)", "", ", ".join(names))
            found.append(Ratio(benchmark, what, float(row[column]), cells.get("goal", "")))
    return found


def tell(found: Sequence[Ratio], tables: Sequence[Shown], path: Path) -> None:
    """Print all ratios in one table, and write them and all tables to a file."""
    rows = [[ratio.benchmark, ratio.what, f"{ratio.value:g}", ratio.goal] for ratio in found]
    show("All ratios", ["benchmark", "what", "ratio", "goal"], rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [{"title": table.title, "columns": table.columns, "rows": table.rows} for table in tables]
    path.write_text(json.dumps({"ratios": by_name(found), "tables": shown}, indent=1) + "\n")
    print(f"written to {path}")


def by_name(found: Sequence[Ratio]) -> Ratios:
    names = dict.fromkeys(ratio.benchmark for ratio in found)
    return {name: {ratio.what: ratio.value for ratio in found if ratio.benchmark == name} for name in names}


def compare(now: Ratios, baseline: Ratios) -> list[list[str]]:
    """Rows of benchmark, measurement, the baseline's ratio, this one and the problem, for the benchmarks that ran."""
    rows = []
    for benchmark, found in now.items():
        known = baseline.get(benchmark, {})
        for what in dict.fromkeys((*known, *found)):
            before, after = known.get(what), found.get(what)
            if before is None:
                wrong = "not in the baseline"
            elif after is None:
                wrong = "not measured any more"
            elif abs(after / before - 1) > TOLERANCE:
                wrong = f"{after / before - 1:+.0%}"
            else:
                wrong = ""
            rows.append(
                [benchmark, what, *("–" if value is None else f"{value:g}" for value in (before, after)), wrong]
            )
    return rows


def check(now: Ratios) -> bool:
    """Compare with the committed baseline, and print that. Returns whether nothing is wrong."""
    rows = compare(now, read_baseline())
    title = f"Against the baseline: a ratio may differ by {TOLERANCE:.0%}"
    show(title, ["benchmark", "what", "baseline", "now", "wrong"], rows)
    return not any(row[-1] for row in rows)


def read_baseline() -> Ratios:
    found: Ratios = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found


def keep(now: Ratios) -> None:
    """Make these the baseline of the benchmarks that were run; the others keep theirs."""
    BASELINE.write_text(json.dumps(dict(sorted({**read_baseline(), **now}.items())), indent=1) + "\n")
