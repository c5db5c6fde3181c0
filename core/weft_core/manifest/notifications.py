"""``notify`` and ``rules``: the keys of each target that go together, and rules that have somebody to notify."""

from __future__ import annotations

from typing import Any

from weft_core.lifecycle.states import JobState
from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.models import Notify, Rule

_STATES = [JobState.COMPLETED, JobState.FAILED]
"""The states that are reported to a target without ``on``."""


def resolve_notifications(values: dict[str, Any], findings: Findings) -> tuple[list[Notify], list[Rule]]:
    """The canonical forms; problems are noted in ``findings``, and then both may be incomplete."""
    targets: list[Notify] = []
    for index, entry in enumerate(values.get("notify", [])):
        path = _path("notify", index, findings)
        if entry is INVALID:
            continue
        _check_target(path, entry, findings)
        if not findings.has(path):
            targets.append(Notify(**{"on": _STATES, **entry}))
    rules: list[Rule] = []
    for index, entry in enumerate(values.get("rules", [])):
        path = _path("rules", index, findings)
        if entry is INVALID or findings.has(path):
            continue
        then = list(dict.fromkeys(entry["then"]))
        if not then:
            findings.add(f"{path}.then", "nothing happens: expected notify, halt, or [notify, halt]")
        elif "notify" in then and "notify" not in values:
            findings.add(f"{path}.then", "the manifest has no notify, so there is nobody to notify", accepted="halt")
        rules.append(Rule(when=entry["when"], then=then))
    return targets, rules


def _path(key: str, index: int, findings: Findings) -> str:
    """An entry's path; a single entry need not be in a list."""
    path = f"{key}[{index}]"
    return path if path in findings.nodes else key


def _check_target(path: str, entry: dict[str, Any], findings: Findings) -> None:
    if findings.has(path):
        return
    if "email" in entry:
        for key in sorted(entry.keys() & {"url", "format", "secret"}):
            findings.add(f"{path}.{key}", f"an e-mail has no {key}: leave out either email or {key}")
    elif entry.get("format") == "slack":
        if ("url" in entry) is ("secret" in entry):
            accepted = "url, or secret with the name of a secret that holds the URL"
            findings.add(path, f"format slack takes one of both: expected {accepted}", accepted=accepted)
    elif "url" not in entry:
        findings.add(f"{path}.url", "missing: expected a URL, or email with an e-mail address", accepted="url or email")
