"""Jobs as tables and panels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weft import words
from weft.models import Attempt, Checkpoint, Delivery, Json, Round
from weft.resources.jobs import Job
from weft.ui import cells, times
from weft.ui.advice import advice
from weft.ui.console import out
from weft.ui.removed import all_gone

_WIDE = 100
_LONGEST_NAME = 24
_REASON_LEAST = 20
_LONGEST_METRIC = 24
_MOST_METRICS = 12
_MOST_PARAMS = 30
_MOST_PACKAGES = 12
_NAME = re.compile(r"[\w.-]*")
_LONGEST_PARAM = 60


def table(*headers: str, numbers: Sequence[str] = ()) -> Table:
    """A plain table: no frame, so that it can be read by `awk` too."""
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for header in headers:
        made.add_column(header, no_wrap=True, overflow="ellipsis", justify="right" if header in numbers else "left")
    return made


_COLUMNS = ("ID", "NAME", "STATE", "FRAMEWORK", "LEARNERS", "SUBMITTED", "TIME")
_NUMBERS = ("LEARNERS", "TIME")


def metric_columns(metrics: Sequence[str], sort: str | None) -> list[tuple[str, str]]:
    """Parse a value of ``--metric`` or ``--sort`` into the metric's name and ``last``, ``min`` or ``max``."""
    named = [(re.split(r"\s*[<>=]", text, maxsplit=1)[0], ".") for text in metrics]
    if sort and sort.removeprefix("-").startswith("metric:"):
        named.append((sort.removeprefix("-").removeprefix("metric:"), ":"))
    found = []
    for text, separator in named:
        name, _, stat = text.rpartition(separator)
        found.append((name, stat) if name and stat in ("last", "min", "max") else (text, "last"))
    return list(dict.fromkeys(found))


def _metric_header(name: str, stat: str) -> str:
    return cells.shortened(name, _LONGEST_METRIC) + ("" if stat == "last" else f" {stat}")


def _metric_cell(job: Job, name: str, stat: str) -> str:
    values = job.metric_values.get(name)
    found = getattr(values, stat) if values else None
    return "–" if values is None else "nan" if found is None else f"{found:.5g}"


def job_table(jobs: Sequence[Job], metrics: Sequence[tuple[str, str]] = (), params: Sequence[str] = ()) -> Table:
    """A line for each job, with these parameters and metrics, and with its reason if there is room."""
    console = out()
    wide = console.width >= _WIDE
    headers = [escape(cells.shortened(name, _LONGEST_METRIC)) for name in params]
    headers += [escape(_metric_header(*metric)) for metric in metrics]
    columns = [name for name in _COLUMNS if wide or name not in ("FRAMEWORK", *(["LEARNERS"] if headers else []))]
    place = columns.index("STATE") + 1
    columns[place:place] = headers
    numbers = (*_NUMBERS, *headers)
    rows: list[list[RenderableType]] = [
        [
            job.id,
            "",
            cells.state(job.state),
            *(Text(cells.shortened(cells.first_line(job.params.get(name, "–")), _LONGEST_METRIC)) for name in params),
            *(_metric_cell(job, *metric) for metric in metrics),
            *([job.framework.name] if wide else []),
            *([str(job.learners)] if wide or not headers else []),
            times.ago(job.created_at),
            _run_time(job),
        ]
        for job in jobs
    ]
    # The name gets what the rest leaves, and the reason what the name leaves.
    room = console.width - _width(_filled(table(*columns, numbers=numbers), rows))
    longest = max(min(room + len("NAME"), _LONGEST_NAME), len("NAME")) if console.is_terminal else None
    names = [Text(cells.shortened(job.name, longest) if longest else job.name) for job in jobs]
    for row, name in zip(rows, names, strict=True):
        row[1] = name
    # To measure a table takes as long as to print it, so the names are measured alone.
    room -= max([len("NAME"), *(name.cell_len for name in names)]) - len("NAME")
    if not wide or room < _REASON_LEAST:
        return _filled(table(*columns, numbers=numbers), rows)
    for row, job in zip(rows, jobs, strict=True):
        row.append(Text(cells.shortened(_short_reason(job), room - 2), style="dim"))
    return _filled(table(*columns, "REASON", numbers=numbers), rows)


def _width(made: Table) -> int:
    return Measurement.get(out(), out().options.update(max_width=1_000_000), made).maximum


def _filled(made: Table, rows: Sequence[Sequence[RenderableType]]) -> Table:
    for row in rows:
        made.add_row(*row)
    return made


def _short_reason(job: Job) -> str:
    return "" if job.state == "COMPLETED" else cells.first_line(job.condition or job.reason)


def job_panel(job: Job) -> RenderableType:
    """A job with its attempts and learners."""
    head = Text.assemble((job.id, "bold"), "  ", job.name, "  ", cells.state(job.state))
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="key", no_wrap=True)
    facts.add_column(overflow="fold")
    for key, value in _facts(job):
        facts.add_row(key, value if isinstance(value, Text) else Text(value))
    parts: list[RenderableType] = [head, "", facts]
    if job.metric_values:
        parts += ["", _metric_table(job)]
    if job.params:
        parts += ["", param_table(job.params, f"weft show {job.id} --json")]
    for attempt in job.attempts:
        parts += ["", _attempt_title(attempt)]
        rest = attempt.reason.partition("\n")[2]
        if rest and attempt.reason != job.reason:
            parts.append(Padding(Text(rest, style="dim"), (0, 0, 0, 2)))
        if attempt.round:
            parts.append(Text(f"  {_round(attempt.round)}"))
        if attempt.checkpoint:
            parts.append(Text(f"  from the checkpoint {_checkpoint(attempt.checkpoint, job.id)}", style="dim"))
        parts.append(_learner_table(attempt))
        parts += _leftovers(attempt)
    return Group(*parts)


def _metric_table(job: Job) -> Table:
    """The newest and the best values of its metrics."""
    shown = list(job.metric_values.items())[:_MOST_METRICS]
    made = table("METRIC", "LAST", "MIN", "MAX", "STEP", numbers=("LAST", "MIN", "MAX", "STEP"))
    for name, values in shown:
        numbers = (_metric_cell(job, name, stat) for stat in ("last", "min", "max"))
        made.add_row(Text(name), *numbers, "" if values.step is None else f"{values.step:,}")
    if len(job.metric_values) > len(shown):
        made.add_row(Text(f"and {len(job.metric_values) - len(shown)} more: weft metrics {job.id}", style="dim"))
    return made


def param_table(params: Mapping[str, str], rest: str) -> Table:
    """The parameters that a job has logged; ``rest`` says where the omitted ones are."""
    shown = list(params.items())[:_MOST_PARAMS]
    made = table("PARAMETER", "VALUE")
    for name, value in shown:
        made.add_row(Text(name), Text(cells.shortened(cells.first_line(value), _LONGEST_PARAM)))
    if len(params) > len(shown):
        made.add_row(Text(f"and {len(params) - len(shown)} more: {rest}", style="dim"))
    return made


def _predecessors(job: Job) -> str:
    """``job-4k9x2m7qd1ze (PROCESSING)``, for each job that must end before."""
    return ", ".join(f"{each['job']} ({each['state'] or 'deleted'})" for each in job.raw.get("after") or ())


def _parameters(job: Job) -> str:
    given = job.manifest.get("parameters") or {}
    return ", ".join(f"{name}={cells.shortened(str(value), _LONGEST_PARAM)}" for name, value in sorted(given.items()))


def _facts(job: Job) -> list[tuple[str, str | Text]]:
    framework = job.framework
    asked = (job.manifest.get("framework") or {}).get("packages") or ()
    launcher = f", launcher {framework.launcher}" if framework.launcher not in ("", "none") else ""
    rows: list[tuple[str, str | Text | None]] = [
        ("reason", job.reason if job.reason.upper() != job.state else None),
        ("condition", Text(job.condition, style="yellow") if job.condition else None),
        ("desired", job.desired if job.desired != "RUNNING" else None),
        ("queue", f"place {job.queue_position}" if job.queue_position else None),
        ("error code", job.error_code),
        ("description", job.description),
        ("framework", f"{framework.name} {framework.version}{launcher}"),
        ("code", cells.repository(job.manifest.get("repo"))),
        ("packages", package_list(job.raw.get("packages"), asked)),
        ("command", framework.command),
        ("parameters", _parameters(job)),
        ("learners", f"{job.learners} × {cells.resources(job.resources)}{_elastic(job)}"),
        ("engine", f"{job.engine}, priority {job.priority}"),
        ("labels", ", ".join(f"{key}={value}" for key, value in job.labels.items())),
        ("retries", f"{job.failures} of {job.retries} used" if job.retries else None),
        ("user", job.user),
        ("submitted", times.moment(job.created_at)),
        ("started", times.moment(job.started_at) if job.started_at else None),
        ("ended", _ended(job) if job.ended_at else None),
        ("rerun of", job.rerun_of),
        ("starts after", _predecessors(job)),
        ("awaited by", ", ".join(job.raw.get("awaited_by") or ())),
        ("pretrained", job.raw.get("pretrained_model")),
        ("began with", f"the checkpoint {_checkpoint(job.checkpoint_of, None)}" if job.checkpoint_of else None),
        ("results", results_place(job)),
        ("removed", all_gone(job)),
        ("model", ", ".join(job.raw.get("models") or ())),
    ]
    return [(key, value) for key, value in rows if value]


def package_list(told: Json | None, asked: Sequence[str] = ()) -> str | None:
    """'einops 0.8.2, pillow 11.0.0 (the image has 12.0.0)'; while they are built, the job that does it.

    Of many packages, those that the manifest asks for and those that replace the image's come first.
    """
    if not told:
        return None
    if told.get("lock") is None:
        return f"job {told['build']} builds them" if told["state"] == "BUILDING" else told["state"].lower()
    pins = told["lock"]
    more = ""
    if len(pins) > _MOST_PACKAGES:
        names = {found[0].lower().replace("_", "-") for text in asked if (found := _NAME.match(text.strip()))}
        pins = sorted(pins, key=lambda pin: (pin["name"] not in names, not pin.get("replaces")))[:_MOST_PACKAGES]
        more = f", and {len(told['lock']) - len(pins)} more (--json has all)"
    shown = [f"{pin['name']} {pin['version']}" + _replaced(pin.get("replaces")) for pin in pins]
    return ", ".join(shown) + more if shown else "the image has all of them"


def _replaced(version: str | None) -> str:
    return f" (the image has {version})" if version else ""


def _elastic(job: Job) -> str:
    found = job.manifest.get("elastic")
    return f", elastic from {found['min']} to {found['max']}" if found else ""


def _checkpoint(told: Json, job_id: str | None) -> str:
    """'of 12:03:41, by attempt 1 of job-…: 3 files, 4.7 MiB'."""
    at, attempt, job = told.get("at"), told.get("attempt"), told.get("job")
    when = f"of {times.moment(datetime.fromtimestamp(at, UTC))}" if isinstance(at, int | float) else ""
    whose = " ".join(
        part
        for part in (f"by attempt {attempt}" if attempt else "", f"of {job}" if job not in (None, job_id) else "")
        if part
    )
    if told.get("shared"):
        return f"of {job}"
    what = f"{words.count(int(told.get('files') or 0), 'file')}, {words.size(int(told.get('size') or 0))}"
    return f"{', '.join(part for part in (when, whose) if part)}: {what}"


def checkpoint_table(checkpoints: Sequence[Checkpoint], job_id: str) -> Table:
    """A line for each generation. It names the learner only if several learners have generations."""
    several = len({checkpoint.learner for checkpoint in checkpoints}) > 1
    made = table(
        "CHECKPOINT", *(["LEARNER"] if several else []), "STORED", "BY", "FILES", "SIZE", numbers=("FILES", "SIZE")
    )
    for checkpoint in checkpoints:
        whose = f"attempt {checkpoint.attempt}" + (
            f" of {checkpoint.job}" if checkpoint.job not in (None, job_id) else ""
        )
        made.add_row(
            checkpoint.generation,
            *([str(checkpoint.learner)] if several else []),
            f"{times.moment(checkpoint.at)} ({times.ago(checkpoint.at)})" if checkpoint.at else "",
            whose if checkpoint.attempt else "",
            f"{checkpoint.files:,}",
            words.size(checkpoint.size),
        )
    return made


def delivery_table(deliveries: Sequence[Delivery]) -> Table:
    """A line for each delivery, with the result of its last try."""
    made = table("DELIVERY", "EVENT", "TARGET", "STATE", "TRIES", "STATUS", "WHEN", numbers=("TRIES",))
    for delivery in deliveries:
        made.add_row(
            delivery.id,
            delivery.event,
            escape(delivery.target),
            delivery.state,
            str(delivery.tries),
            escape(delivery.status or ""),
            times.ago(delivery.tried_at or delivery.queued_at),
        )
    return made


def _ended(job: Job) -> str:
    return times.moment(job.ended_at) + (f", after {times.span(job.duration)}" if job.duration is not None else "")


def _attempt_title(attempt: Attempt) -> Text:
    title = Text.assemble((f"attempt {attempt.n}", "bold"))
    if attempt.outcome:
        style = "green" if attempt.outcome == "SUCCEEDED" else "red" if attempt.outcome in ("FAILED", "LOST") else ""
        title.append("  ").append(attempt.outcome, style=style)
    if attempt.created_at and attempt.ended_at:
        took = (attempt.ended_at - attempt.created_at).total_seconds()
        title.append(f"  {times.span(took)}", style="dim")
    if attempt.reason:
        title.append(f"  {cells.first_line(attempt.reason)}")
    return title


def _round(found: Round) -> str:
    if not found.learners:
        return f"round {found.n}: learners gather" + (f" ({found.reason})" if found.reason else "")
    who = ", ".join(str(number) for number in found.learners)
    processes = f"{found.processes} process{'' if found.processes == 1 else 'es'}"
    gang = f"{processes} in {words.count(len(found.learners), 'learner')}"
    return f"round {found.n}: {gang} ({who})" + (f"; {found.reason}" if found.reason else "")


def _learner_table(attempt: Attempt) -> Table:
    made = table("  LEARNER", "PHASE", "NODE", "ADDRESS", "EXIT", "REASON")
    made.columns[5].no_wrap = False
    made.columns[5].overflow = "fold"
    for learner in attempt.learners:
        code = "" if learner.exit_code is None else str(learner.exit_code)
        style = "red" if learner.exit_code else ""
        made.add_row(
            *(
                f"  {learner.learner}",
                "LOST" if learner.lost else learner.phase,
                Text(learner.node or ""),
                learner.address or "",
            ),
            *(Text(code, style=style), Text(learner.lost or learner.exit_reason or "")),
        )
    return made


def _leftovers(attempt: Attempt) -> list[Text]:
    """The files that the program has left in the folder of the code: a line for each outcome."""
    lines = []
    for learner in attempt.learners:
        told = learner.leftovers
        if not told:
            continue
        who = f"  learner {learner.learner}: "
        for key, what in (("named", "stored as results: names them"), ("kept", f"kept below {told['place']}")):
            if told[key]["files"]:
                lines.append(Text(f"{who}{_left(told[key])} {what}"))
        for lost in told["lost"]:
            files = f"{_left(lost)} " if lost["files"] else ""
            lines.append(Text(f"{who}{files}not kept, as {lost['reason']}", style="yellow"))
        if told.get("unmatched"):
            patterns = ", ".join(told["unmatched"])
            lines.append(Text(f"{who}no file matches these patterns of results: {patterns}", style="yellow"))
        if told["line"]:
            lines.append(Text(f"{who}the manifest's line for all of them: {told['line']}", style="dim"))
    return lines


def _left(part: Json) -> str:
    """'3 files (1.2 MiB: runs/, model.pt)'."""
    names = [str(entry["path"]) for entry in part["listed"]]
    more = ["…"] if part["files"] > sum(entry["files"] for entry in part["listed"]) else []
    return f"{words.count(part['files'], 'file')} ({words.size(part['bytes'])}: {', '.join(names + more)})"


def results_place(job: Job) -> str | None:
    """The place of the results in the user's store, if the manifest names a place."""
    for store in job.manifest.get("data_stores") or []:
        place: dict[str, Any] | None = store.get("training_results")
        if place and place.get("container"):
            where = store.get("datastore") or (store.get("connection") or {}).get("auth_url") or store.get("id")
            path = "/".join(part for part in (place.get("container"), place.get("prefix"), job.id) if part)
            return f"{where}:{path}/"
    return None


def outcome(job: Job) -> list[str]:
    """The last lines (markup) of a followed job: its end, its duration, and the place of its results."""
    took = f" in {times.span(job.duration)}" if job.duration is not None else ""
    lines = [f"{cells.styled_state(job.state)}  {escape(job.name)} ({job.id}){took}"]
    if job.state == "COMPLETED":
        if place := results_place(job):
            lines.append(f"[key]results:[/]  {escape(place)}")
        for model in job.raw.get("models") or ():
            lines.append(f"[key]model:[/]    {escape(model)}  [command]weft models show {escape(model)}[/]")
        lines.append(f"[key]model:[/]    [command]weft download {job.id} --trainedmodel[/]")
    else:
        lines += [escape(line) for line in job.reason.splitlines()]
        told = [("more", f"weft show {job.id}"), *advice(job)]
        width = max(len(what) for what, _ in told) + 1
        for what, command in told:
            lines.append(f"[key]{escape(what + ':'):<{width}}[/]  [command]{escape(command)}[/]")
    return lines


def _run_time(job: Job) -> str:
    if job.started_at is None:
        return "–"
    return times.short_span(((job.ended_at or datetime.now(UTC)) - job.started_at).total_seconds())
