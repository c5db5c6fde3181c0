"""Static pages of the same size, on which no script runs while they scroll: what the browser can do on this machine."""

from __future__ import annotations

from pathlib import Path

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>plain</title>
<style>
body {{ font: 14px/1.5 sans-serif; margin: 0; }}
table {{ width: 100%; border-collapse: collapse; }}
td {{ height: 31px; padding: 2px 10px; border-bottom: 1px solid #ddd; white-space: nowrap; }}
.log {{ height: 600px; overflow: auto; font: 12.5px/20px monospace; white-space: pre; }}
.charts {{ display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }}
.charts div {{ height: 320px; border: 1px solid #ddd; }}
</style></head>
<body>{body}</body></html>
"""
# As many points as a bucket each, drawn once.
_CHARTS = """
<div class="charts">{boxes}</div>
<script>
for (const canvas of document.querySelectorAll("canvas")) {{
  const context = canvas.getContext("2d");
  context.beginPath();
  for (let x = 0; x < 600; x += 1) context.lineTo(x * 0.75, 110 + 100 * Math.sin(x / 40));
  context.stroke();
}}
</script>
"""


def table(folder: Path, rows: int) -> str:
    """The URL of a page with a table of so many rows."""
    row = "<tr><td>□</td><td><b>resnet50-imagenet-{n}</b></td><td>COMPLETED</td><td>team=vision run={n}</td>"
    row += "<td>usr-{n}</td><td>2 h ago</td><td>1 h 12 min</td><td>job-{n:012}</td></tr>"
    return _written(folder / "table.html", f"<table>{''.join(row.format(n=n) for n in range(rows))}</table>")


def log(folder: Path, lines: int) -> str:
    """The URL of a page with so many lines, in a part of the page that scrolls."""
    line = "<div>{n} step {n:9}: loss 0.1234567890123456 accuracy 0.1234567890123456</div>"
    return _written(folder / "log.html", f'<div class="log">{"".join(line.format(n=n) for n in range(lines))}</div>')


def charts(folder: Path, count: int) -> str:
    """The URL of a page with so many drawings."""
    box = '<div><h2>m{n}</h2><canvas width="450" height="220"></canvas></div>'
    return _written(folder / "charts.html", _CHARTS.format(boxes="".join(box.format(n=n) for n in range(count))))


def _written(path: Path, body: str) -> str:
    path.write_text(_PAGE.format(body=body))
    return path.as_uri()
