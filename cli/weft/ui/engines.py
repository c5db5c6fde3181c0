"""Engines as tables and panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft import words
from weft.models import Engine, EngineNode, Json, WaitingJob
from weft.ui import cells, times
from weft.ui.console import out
from weft.ui.jobs import table

_WIDE = 100
_BAR = 10
_NAME = 16
"""The load of an engine, where there is little room."""
_HEALTH = {"up": ("up", "green"), "unreachable": ("no answer", "red"), "unseen": ("not seen", "yellow")}
_STATES = {"ready": "green", "not ready": "red", "excluded": "red", "potential": "dim"}
_KINDS = ("cpus", "gpus", "memory")
_NODES = 30
"""Beyond this number, entries are counted and not listed, except in a pipe."""


def engine_table(engines: Sequence[Engine]) -> RenderableType:
    """A line for each engine. The conditions of engines follow below."""
    more = _roomy()
    headers = ["ENGINE", *(["TYPE"] if more else []), "HEALTH", "CPUS", "GPUS", "MEMORY"]
    made = table(*headers, *(["NODES"] if more else []), "RUNNING", "QUEUED", numbers=("RUNNING", "QUEUED"))
    for engine in engines:
        name = Text(engine.name if more else cells.shortened(engine.name, _NAME))
        name.append(" (default)" if engine.default else "", style="dim")
        row: list[RenderableType] = [name, *([engine.type] if more else []), _health(engine)]
        used = _sum(engine.used, engine.busy)
        row += [_use(kind, engine.capacity, used) for kind in _KINDS]
        made.add_row(*row, *([_nodes_short(engine)] if more else []), str(engine.running), str(engine.queued))
    wrong = [Text(f"{engine.name}: {engine.condition}", style=_style(engine)) for engine in engines if engine.condition]
    return Group(made, *wrong)


def engine_panel(engine: Engine) -> RenderableType:
    """An engine: its load, its nodes, and the jobs that wait for it."""
    head = Text.assemble((engine.name, "bold"), f"  {engine.type}  ", _health(engine))
    if engine.default:
        head.append("  default", style="dim")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="key", no_wrap=True)
    facts.add_column(overflow="fold")
    for key, value in _facts(engine):
        facts.add_row(key, value)
    parts: list[RenderableType] = [head, "", facts]
    if engine.nodes:
        parts += ["", *_node_table(engine.nodes)]
    parts += ["", *_queue(engine)]
    return Group(*parts)


def _facts(engine: Engine) -> list[tuple[str, Text]]:
    rows = []
    if engine.condition:
        rows.append(("condition", Text(engine.condition, style=_style(engine))))
    if engine.seen_at and engine.health != "up":
        rows.append(("last seen", Text(times.moment(engine.seen_at))))
    for kind in _KINDS:
        if engine.capacity.get(kind):
            rows.append((kind, _load(kind, engine)))
    if engine.capacity:
        rows.append(("nodes", Text(_nodes_long(engine.node_counts))))
    if engine.queue:
        rows.append(("admission", Text(f"by {engine.queue}")))
    if engine.exposed:
        rows.append(("isolation", Text(f"jobs are not kept apart: {engine.exposed}", style="yellow")))
    elif engine.shared_network:
        rows.append(("isolation", Text(f"jobs share a network: {engine.shared_network}", style="yellow")))
    elif engine.type == "local" and engine.capacity:
        rows.append(("isolation", Text("jobs are kept apart, also in the network")))
    rows.append(("jobs", Text(f"{engine.running} running, {engine.queued} queued")))
    return rows


def _load(kind: str, engine: Engine) -> Text:
    """``█████░░░░░  6.5 of 16 in use: 5 by jobs, 1.5 by others``."""
    say = _sayer(kind)
    ours, others, whole = (amounts.get(kind) or 0 for amounts in (engine.used, engine.busy, engine.capacity))
    line = _bar((ours + others) / whole).append(f"  {say(ours + others)} of {say(whole)} in use")
    if others:
        line.append(f": {say(ours)} by jobs, {say(others)} by others", style="dim")
    return line


def _health(engine: Engine) -> Text:
    return Text(_HEALTH.get(engine.health, (engine.health or "–", ""))[0], style=_style(engine))


def _style(engine: Engine) -> str:
    return _HEALTH.get(engine.health, ("", ""))[1]


def _roomy() -> bool:
    """Whether there is much room. A pipe has much room."""
    return out().width >= _WIDE


# --- nodes -------------------------------------------------------------------------------------------------------


def _nodes_short(engine: Engine) -> str:
    """``2``, ``2/3`` with one that is not ready, ``2+4`` with four that could be added."""
    counts = engine.node_counts
    if not engine.capacity:
        return "–"
    ready, away, more = (int(counts.get(key) or 0) for key in ("ready", "not_ready", "potential"))
    return f"{ready}" + (f"/{ready + away}" if away else "") + (f"+{more}" if more else "")


def _nodes_long(counts: Json) -> str:
    parts = [f"{counts.get('ready') or 0} ready"]
    if counts.get("not_ready"):
        parts.append(f"{counts['not_ready']} not ready")
    if counts.get("potential"):
        parts.append(f"up to {counts['potential']} more when needed")
    return ", ".join(parts)


def _node_table(nodes: Sequence[EngineNode]) -> list[RenderableType]:
    shown = nodes[:_NODES] if out().is_terminal else nodes
    gpus = any(node.capacity.get("gpus") for node in nodes)
    types = gpus and _roomy()
    taints = _roomy() and any(node.taints for node in nodes)
    blames = any(node.blames for node in nodes)
    made = table(
        *("NODE", "STATE", "CPUS", *(["GPUS"] if gpus else []), *(["GPU TYPE"] if types else []), "MEMORY"),
        *(["TAINTS"] if taints else []),
        *(["BLAMED BY"] if blames else []),
    )
    for node in shown:
        used = _sum(node.used, node.busy)
        state = "excluded" if node.excluded else node.state
        row: list[RenderableType] = [Text(node.name), Text(state, style=_STATES.get(state, ""))]
        row.append(_use("cpus", node.capacity, used))
        row += [_use("gpus", node.capacity, used)] if gpus else []
        row += [Text(node.gpu_type or "–")] if types else []
        row.append(_use("memory", node.capacity, used))
        row += [Text(", ".join(node.taints))] if taints else []
        row += [Text(words.count(node.blames, "job") if node.blames else "–")] if blames else []
        made.add_row(*row)
    rest = len(nodes) - len(shown)
    return [made, *([Text(f"and {words.count(rest, 'more node')}; --json shows all", style="dim")] if rest else [])]


# --- the queue ---------------------------------------------------------------------------------------------------


def _queue(engine: Engine) -> list[RenderableType]:
    others = f"{words.count(engine.waiting_of_others, 'job')} of other projects" if engine.waiting_of_others else ""
    if not engine.waiting:
        return [Text(f"waiting: {others or 'nothing'}", style="dim")]
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for header in ("PLACE", "ID", "NAME"):
        made.add_column(header, no_wrap=True, overflow="ellipsis", justify="right" if header == "PLACE" else "left")
    made.add_column("WHY IT WAITS", overflow="fold", ratio=1)
    for job in engine.waiting:
        place = Text(str(job.place)) if job.place else cells.state(job.state)
        name = cells.shortened(job.name, 24 if _roomy() else 12)
        made.add_row(place, job.id, Text(name), _why(job))
    return [made, *([Text(f"and {others}", style="dim")] if others else [])]


def _why(job: WaitingJob) -> Text:
    since = f", for {times.span(times.age(job.state_since))}" if job.state_since else ""
    why = Text(cells.first_line(job.condition or job.reason) or "no worker has looked at it yet")
    return why.append(f"\n{job.learners} × {cells.resources(job.resources)}{since}", style="dim")


# --- amounts -----------------------------------------------------------------------------------------------------


def _sum(base: Json, other: Json) -> dict[str, float]:
    return {kind: (base.get(kind) or 0) + (other.get(kind) or 0) for kind in _KINDS}


def _use(kind: str, whole: Json, used: Json) -> Text:
    """``6.5/16``, with a bar if there is room."""
    there = whole.get(kind) or 0
    if not there:
        return Text("–")
    say = _short_size if kind == "memory" else _number
    cell = Text(f"{say(used.get(kind) or 0)}/{say(there)}")
    if out().is_terminal and _roomy():
        cell = _bar((used.get(kind) or 0) / there, 5).append(" ").append(cell)
    return cell


def _bar(part: float, width: int = _BAR) -> Text:
    full = min(width, max(0, round(part * width)))
    if part > 0 and not full:
        full = 1
    style = "red" if part > 0.95 else "yellow" if part > 0.7 else "green"
    return Text.assemble(("█" * full, style), ("░" * (width - full), "dim"))


def _sayer(kind: str) -> Callable[[float], str]:
    return (lambda number: words.size(number)) if kind == "memory" else _number


def _number(number: float) -> str:
    return f"{number:.4g}" if number < 10_000 else f"{number:.0f}"


def _short_size(number: float) -> str:
    """``1.5G``, for tables."""
    if not number:
        return "0"
    value, unit = words.size(number).split()
    return value + unit.removesuffix("iB").replace("bytes", "B")
