"""A benchmark as a table, as bars, and as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from weft import words
from weft.bench import BenchJob, Measurement, efficiency
from weft.ui import cells
from weft.ui.console import out
from weft.ui.jobs import table

_BAR = 40


def bench_panel(points: Sequence[BenchJob]) -> RenderableType:
    """The table. In a terminal, bars follow, and the reasons for missing measurements."""
    made = table(
        *("LEARNERS", "DEVICES", "IMAGES/SEC", "±", "PER DEVICE", "EFFICIENCY", "JOB", "STATE"),
        numbers=("LEARNERS", "DEVICES", "IMAGES/SEC", "±", "PER DEVICE", "EFFICIENCY"),
    )
    for point in points:
        made.add_row(str(point.learners), *_cells(point, points), point.job.id, cells.state(point.job.state))
    parts: list[RenderableType] = [made]
    if out().is_terminal and any(point.measured for point in points):
        parts += ["", *_bars(points)]
    parts += [Text(f"{point.job.id}: {_why_not(point)}", style="yellow") for point in points if not point.measured]
    return Group(*parts)


def _cells(point: BenchJob, points: Sequence[BenchJob]) -> list[str]:
    result = point.measured
    if result is None:
        return ["–"] * 5
    per_device = result.images_per_second / result.devices
    return [
        f"{result.devices} {result.device}",
        f"{result.images_per_second:.1f}",
        f"{result.plus_minus:.1f}",
        f"{per_device:.1f}",
        f"{efficiency(point, points) or 0:.0%}",
    ]


def _why_not(point: BenchJob) -> str:
    if point.job.state == "COMPLETED":
        return "its log holds no measurement"
    return cells.first_line(point.job.condition or point.job.reason) or point.job.state


def _bars(points: Sequence[BenchJob]) -> list[Text]:
    """Images/sec, with a mark for perfect scaling: each device as fast as with the fewest learners."""
    measured = [(point, point.measured) for point in points if point.measured]
    ideal = _ideal(measured)
    most = max(*ideal, *(result.images_per_second for _, result in measured))
    rows = []
    for (point, result), goal in zip(measured, ideal, strict=True):
        full = round(_BAR * result.images_per_second / most)
        mark = round(_BAR * goal / most)
        line = Text(f"{words.count(point.learners, 'learner'):>12}  ")
        line.append("█" * full, style="cyan")
        if mark > full:
            line.append("░" * (mark - full), style="dim")
        rows.append(line.append(f"  {result.images_per_second:.1f} images/sec"))
    return [*rows, Text(f"{'':>12}  ░ what is missing to perfect scaling", style="dim")]


def _ideal(measured: Sequence[tuple[BenchJob, Measurement]]) -> list[float]:
    _, base = min(measured, key=lambda pair: pair[0].learners)
    return [base.images_per_second / base.devices * result.devices for _, result in measured]


# --- the file ----------------------------------------------------------------------------------------------------

_HALO = 'paint-order="stroke" stroke="white" stroke-width="4"'
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 400, 70, 50, 60


def svg(points: Sequence[BenchJob], title: str) -> str:
    """A bar for each number of learners with its ±, its efficiency, and a dashed line for perfect scaling.

    Raises:
        ValueError: nothing was measured.
    """
    measured = [(point, point.measured) for point in points if point.measured]
    if not measured:
        raise ValueError("nothing was measured")
    ideal = _ideal(measured)
    top = 1.1 * max(*ideal, *(result.images_per_second + result.plus_minus for _, result in measured), 1e-9)
    floor, width = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - 20) / len(measured)

    def y(rate: float) -> float:
        return floor - (floor - _TOP) * max(rate, 0) / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="13" text-anchor="middle">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH / 2}" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="16" y="{(floor + _TOP) / 2}" transform="rotate(-90 16 {(floor + _TOP) / 2})">images/sec</text>',
    ]
    for tick in range(5):
        rate = top * tick / 4
        parts.append(f'<path d="M{_LEFT} {y(rate):.1f}H{_WIDTH - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end" fill="#666">{rate:.4g}</text>')
    line = []
    for index, ((point, result), goal) in enumerate(zip(measured, ideal, strict=True)):
        middle = _LEFT + width * (index + 0.5)
        height = floor - y(result.images_per_second)
        parts.append(
            f'<rect x="{middle - width * 0.3:.1f}" y="{y(result.images_per_second):.1f}" width="{width * 0.6:.1f}" '
            f'height="{height:.1f}" fill="#3b82c4"/>'
        )
        low, high = y(result.images_per_second - result.plus_minus), y(result.images_per_second + result.plus_minus)
        parts.append(f'<path d="M{middle:.1f} {low:.1f}V{high:.1f}" stroke="#123" stroke-width="2"/>')
        parts.append(
            f'<text x="{middle:.1f}" y="{high - 8:.1f}" {_HALO}>{result.images_per_second:.1f} '
            f"({efficiency(point, points) or 0:.0%})</text>"
        )
        parts.append(f'<text x="{middle:.1f}" y="{floor + 20}">{words.count(point.learners, "learner")}</text>')
        devices = words.count(result.devices, f"{result.device} device")
        parts.append(f'<text x="{middle:.1f}" y="{floor + 38}" fill="#666">{devices}</text>')
        line.append(f"{middle:.1f},{y(goal):.1f}")
    # Below everything else, so that no number is crossed out.
    parts.insert(2, f'<polyline points="{" ".join(line)}" fill="none" stroke="#c33" stroke-dasharray="6 4"/>')
    parts.append(f'<text x="{_LEFT + 10}" y="44" text-anchor="start" fill="#c33">– – perfect scaling</text>')
    return "\n".join([*parts, "</svg>", ""])
