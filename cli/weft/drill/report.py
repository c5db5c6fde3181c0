"""The result of a drill as tables, as Markdown for the job's notes, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from weft.drill.compare import Comparison
from weft.drill.run import LABEL, Result
from weft.drill.series import Parting
from weft.drill.weights import FileResult


class Section(NamedTuple):
    """A table; the columns in ``numbers`` hold numbers."""

    columns: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Sequence[str]]


_VERDICTS = {
    "survives": "The training survives: what was trained is the same.",
    "differs": "The training does not survive.",
    "unproven": "Nothing is proven.",
}


def headline(found: Comparison) -> str:
    if found.verdict == "unproven":
        why = "there is no metric and no file of weights to compare" if found.resumed else "no attempt was resumed"
        return f"{_VERDICTS['unproven']} No verdict, because {why}."
    return _VERDICTS[found.verdict]


def sections(found: Comparison) -> list[Section]:
    """The disturbances, the metrics and the files, as far as there are any."""
    losses = [
        [
            loss.disturbance.kind,
            str(loss.disturbance.attempt),
            str(loss.disturbance.learner),
            "–" if loss.resumed_at is None else str(loss.resumed_at),
            str(loss.repeated),
            "–" if loss.seconds is None else f"{loss.seconds:.1f}",
        ]
        for loss in found.losses
    ]
    made = [
        Section(
            ("DISTURBANCE", "ATTEMPT", "LEARNER", "RESUMED AT", "STEPS AGAIN", "SECONDS LOST"),
            ("ATTEMPT", "LEARNER", "RESUMED AT", "STEPS AGAIN", "SECONDS LOST"),
            losses,
        ),
        Section(
            ("METRIC", "LEARNER", "POINTS", "RESULT"),
            ("LEARNER", "POINTS"),
            [[parting.name, str(parting.learner), str(parting.points), _parted(parting)] for parting in found.partings],
        ),
        Section(("FILE", "RESULT"), (), [[file.file, _compared(file)] for file in found.weights]),
    ]
    return [section for section in made if section.rows]


def facts(found: Comparison) -> list[str]:
    """Sentences beside the tables."""
    told = []
    if found.steps:
        told.append(f"{found.steps} steps undisturbed, {found.trained} disturbed.")
    if found.deterministic is True:
        told.append("Two undisturbed trainings are equal.")
    elif found.deterministic is False:
        told.append(f"Two undisturbed trainings differ by up to {found.noise:.2g}; smaller differences do not count.")
    return [*told, *(f"Note: {note}." for note in found.notes)]


def as_markdown(result: Result) -> str:
    found = result.comparison
    lines = [f"# Drill: {headline(found)}", ""]
    others = [job for job in (result.undisturbed, result.second) if job]
    lines += [f"Compared with {' and '.join(job.id for job in others)}, undisturbed.", ""]
    for cause in found.causes:
        lines += [f"**{cause.title}**{'' if cause.sure else ' (possible)'}: {cause.evidence}.", ""]
        if code := cause.lines(result.undisturbed.framework.name):
            lines += ["```", code, "```", ""]
    for section in sections(found):
        lines += [f"| {' | '.join(section.columns).lower()} |", "|---" * len(section.columns) + "|"]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in section.rows]
        lines.append("")
    return "\n".join([*lines, *facts(found)])


def as_json(result: Result) -> dict[str, Any]:
    """The result for a program."""
    found = result.comparison
    framework = result.undisturbed.framework.name
    jobs = {"undisturbed": result.undisturbed, "disturbed": result.disturbed, "undisturbed again": result.second}
    return {
        "verdict": found.verdict,
        LABEL: result.drill.run_id,
        "seed": result.drill.seed,
        "tolerance": result.drill.tolerance,
        "jobs": {part: job.id if job else None for part, job in jobs.items()},
        "steps": found.steps,
        "steps_trained": found.trained,
        "deterministic": found.deterministic,
        "noise": found.noise,
        "disturbances": [
            {
                "kind": loss.disturbance.kind,
                "attempt": loss.disturbance.attempt,
                "learner": loss.disturbance.learner,
                "resumed_at": loss.resumed_at,
                "steps_again": loss.repeated,
                "seconds_lost": loss.seconds,
            }
            for loss in found.losses
        ],
        "metrics": [
            {
                "name": parting.name,
                "learner": parting.learner,
                "points": parting.points,
                "differs_from_step": parting.step,
                "attempt": parting.attempt or None,
                "undisturbed": None if parting.step is None else parting.wanted,
                "disturbed": None if parting.step is None else parting.found,
            }
            for parting in found.partings
        ],
        "files": [
            {"path": file.file, "compared": file.difference is not None, "why_not": file.why_not or None}
            | (asdict(file.difference) if file.difference else {})
            for file in found.weights
        ],
        "causes": [
            {
                "cause": cause.key,
                "title": cause.title,
                "evidence": cause.evidence,
                "sure": cause.sure,
                "lines": cause.lines(framework),
            }
            for cause in found.causes
        ],
        "notes": list(found.notes),
    }


def _parted(parting: Parting) -> str:
    if parting.step is None:
        return "same"
    return f"differs from step {parting.step} on: {parting.found:.6g}, undisturbed {parting.wanted:.6g}"


def _compared(file: FileResult) -> str:
    apart = file.difference
    if apart is None:
        return f"not compared: {file.why_not}"
    tensors = f"{apart.tensors} tensor{'' if apart.tensors == 1 else 's'}"
    if not apart.differing:
        return f"same, {tensors}"
    return f"{len(apart.differing)} of {tensors} differ, by up to {apart.largest:.2g} in {apart.worst or 'the array'}"
