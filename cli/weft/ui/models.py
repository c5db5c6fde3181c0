"""Models as tables and panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft import words
from weft.models import Json, Model, ModelVersion, parse_time
from weft.ui import cells, metrics, times
from weft.ui.jobs import package_list, table

_MOVES = 10


def model_table(models: Sequence[Model]) -> Table:
    """A line for each model."""
    made = table("NAME", "LATEST", "VERSIONS", "STAGES", "CHANGED", numbers=("LATEST", "VERSIONS"))
    for model in models:
        latest = "–" if model.latest is None else str(model.latest)
        made.add_row(Text(model.name), latest, str(model.versions), Text(_stages(model)), times.ago(model.updated_at))
    return made


def model_panel(model: Model, versions: Sequence[ModelVersion]) -> RenderableType:
    """A model with its versions, and how its stages moved."""
    made = table("VERSION", "STAGES", "FILES", "JOB", "FROM", "BY", "REGISTERED", numbers=("VERSION",))
    for version in versions:
        made.add_row(
            *(
                str(version.version),
                Text(", ".join(version.stages)),
                _files(version.files),
                version.job,
                Text(version.parent or "–"),
            ),
            *(Text(version.user), times.ago(version.created_at)),
        )
    parts: list[RenderableType] = [Text.assemble((model.name, "bold"), f"  {_stages(model)}"), "", made]
    if model.promotions:
        parts.append("")
    parts += [_move(move) for move in model.promotions[:_MOVES]]
    return Group(*parts)


def version_panel(version: ModelVersion) -> RenderableType:
    """A version with its files and its lineage."""
    lineage = version.lineage
    run, image, job, packages = (lineage.get(key) or {} for key in ("run", "image", "job", "packages"))
    took = f", {times.span(run['seconds'])}" if run.get("seconds") is not None else ""
    attempts = f", attempt {run['attempt']}" if (run.get("attempt") or 1) > 1 else ""
    rows = [
        ("stages", ", ".join(version.stages)),
        ("files", _files(version.files)),
        ("place", version.place or "Weft's own store"),
        ("listing", _short(version.files.get("sha256"))),
        ("registered", f"{times.moment(version.created_at)} by {version.user}"),
        ("job", f"{version.job}  {job.get('name', '')}"),
        ("run", f"{words.count(run.get('learners') or 1, 'learner')} on {run.get('engine', '')}{attempts}{took}"),
        ("description", version.description),
        ("notes", version.notes),
        ("parent", version.parent),
        ("children", ", ".join(version.children)),
        ("code", cells.repository(lineage.get("repo")) or _short(lineage.get("code_sha256"))),
        ("data", _listing(lineage.get("data"))),
        ("pretrained", _listing(lineage.get("pretrained"))),
        ("image", image.get("reference")),
        ("image digest", _short(image.get("digest"))),
        ("packages", package_list(packages) if packages.get("lock") is not None else None),
        ("command", ((lineage.get("manifest") or {}).get("framework") or {}).get("command")),
        ("metrics", "\n".join(f"{name}  {metrics.value(name, values['last'])}" for name, values in _metrics(lineage))),
    ]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="key", no_wrap=True)
    facts.add_column(overflow="fold")
    for key, value in rows:
        if value:
            facts.add_row(key, Text(str(value)))
    more = Text(f"the whole manifest: weft models show {version.reference} --json", style="dim")
    return Group(Text(version.reference, style="bold"), "", facts, "", more)


def _stages(model: Model) -> str:
    return ", ".join(f"{stage} → {number}" for stage, number in sorted(model.stages.items()))


def _metrics(lineage: Json) -> Iterable[tuple[str, Json]]:
    return sorted((lineage.get("metrics") or {}).items())


def _files(files: Json) -> str:
    return f"{words.count(files['files'], 'file')}, {words.size(files['bytes'])}" if files else "–"


def _listing(listing: Json | None) -> str:
    return f"{_files(listing)}, listing {_short(listing['sha256'])}" if listing else ""


def _short(digest: str | None) -> str:
    """The beginning of a digest, long enough to compare by eye."""
    return (digest or "").removeprefix("sha256:")[:16]


def _move(move: Json) -> Text:
    what = f"{move['stage']} → {move['version']}" if move.get("version") else f"{move['stage']} taken away"
    return Text(f"{times.moment(parse_time(move.get('at')))}  {what}  by {move.get('user', '')}", style="dim")
