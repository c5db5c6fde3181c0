"""The baseline as a picture for docs/performance.md: a bar for each ratio, on a logarithmic scale."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from benchmarks.results import Ratios

PICTURE = Path(__file__).parents[1] / "docs" / "performance.svg"
_WIDTH, _LABELS, _LINE, _MARGIN = 760, 380, 22, 46
_STYLE = (
    "text{font:12px sans-serif;fill:#444}.b{font-weight:bold}rect{fill:#3f51b5}line{stroke:#999;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}rect{fill:#7986cb}}"
)


def draw(ratios: Ratios) -> str:
    """An SVG of all ratios; a bar to the left of the line at 1 is less than the other side of the comparison."""
    values = [value for found in ratios.values() for value in found.values()]
    low, high = math.log(min([0.5, *values])), math.log(max([2.0, *values]))

    def place(value: float) -> float:
        return _LABELS + (math.log(value) - low) / (high - low) * (_WIDTH - _LABELS - _MARGIN)

    one, y = place(1), 24
    drawn = []
    for benchmark, found in ratios.items():
        drawn.append(f'<text class="b" x="4" y="{y}">{escape(benchmark)}</text>')
        y += _LINE
        for what, value in found.items():
            left, right = sorted((one, place(value)))
            drawn.append(f'<text x="16" y="{y}">{escape(what)}</text>')
            drawn.append(f'<rect x="{left:.0f}" y="{y - 11}" width="{max(1, right - left):.0f}" height="13"/>')
            drawn.append(f'<text x="{right + 5:.0f}" y="{y}">{value:g}</text>')
            y += _LINE
    drawn.append(f'<line x1="{one:.0f}" y1="8" x2="{one:.0f}" y2="{y - 8}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img">'
    title = "<title>Ratios of Weft's cost to that of what it is compared with</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *drawn, "</svg>", ""])
