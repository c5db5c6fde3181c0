"""The keys ``schedule`` and ``on``, with which a manifest says when its job starts."""

from __future__ import annotations

from typing import Any

from weft_core.cron import check_cron, check_timezone
from weft_core.manifest.findings import Findings
from weft_core.manifest.kinds import Choice, Field, Section, Text
from weft_core.manifest.models import ModelReference, ParsedManifest, Schedule
from weft_core.manifest.problems import ManifestError, Problem

_REFERENCE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?@[a-z][a-z0-9_-]{0,62}"

SCHEDULE = Section(
    {
        "cron": Field(
            Text("five fields of cron such as '0 3 * * *'", most=200, check=check_cron),
            "Minute, hour, day of the month, month and day of the week, as cron has them: `*`, numbers, `1-5`, `*/15`, "
            "lists with commas, names such as `MON`, and `L` for the last day of the month.",
            required=True,
        ),
        "timezone": Field(
            Text("a time zone such as Europe/Berlin", most=64, check=check_timezone),
            "The time zone of `cron`, by its name in the IANA database.",
        ),
        "overlap": Field(
            Choice("skip", "queue"),
            "The rule if an earlier job of the schedule has not ended. `skip`: no job starts. "
            "`queue`: the job starts when the earlier one has ended. At most one job waits so.",
        ),
    },
    accepted="five fields of cron such as '0 3 * * *', or a mapping with cron, timezone and overlap",
    alone="cron",
)
ON = Text("MODEL@STAGE such as digits@production", most=128, pattern=_REFERENCE)


def resolve_schedule(values: dict[str, Any], findings: Findings) -> tuple[Schedule | None, ModelReference | None]:
    """The canonical forms of ``schedule`` and ``on``. None: the manifest does not have the key."""
    times, on = values.get("schedule"), values.get("on")
    given = [key for key in ("schedule", "on") if values.get(key) is not None]
    for key in given:
        if "sweep" in values:
            findings.add(key, "a schedule starts one job each time: leave out sweep", accepted="a manifest of one job")
        if values.get("after"):
            findings.add(key, "the jobs of a schedule wait for no other jobs: leave out after", accepted="no after")
    promotion = None
    if isinstance(on, str):
        name, _, stage = on.partition("@")
        if stage == "latest":
            message = "latest is no stage, and no promotion leads to it"
            findings.add("on", message, found=on, accepted=ON.accepted)
        promotion = ModelReference(name=name, version=stage)
    if not isinstance(times, dict) or findings.has("schedule"):
        return None, promotion
    return Schedule(**times), promotion


def refuse_schedule(parsed: ParsedManifest, message: str) -> None:
    """Raise ManifestError with ``message`` if the manifest says when its job starts, where it is to start now."""
    for key, value in (("schedule", parsed.manifest.schedule), ("on", parsed.manifest.on)):
        if value is not None:
            line, column = parsed.position(key)
            raise ManifestError([Problem(key, message, line, column=column)])
