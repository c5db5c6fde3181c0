"""``evaluation_metrics``: what one of FfDL's four extractors needs, and whether its regular expressions can work."""

from __future__ import annotations

import re
from typing import Any

from weft_core.launch import EvaluationMetrics
from weft_core.manifest.findings import Findings

_MACRO = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_MACROS = {
    "GLOG_STAMP": r"\d{4} \d{2}:\d{2}:\d{2}\.\d+",
    "TIMESTAMP": r"\S+",
    "FLOAT": r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?",
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?\d+",
    "HEX": r"0[xX][0-9a-fA-F]+",
}
"""Only what it takes to check an expression: the extractor has its own."""


def resolve_metrics(values: dict[str, Any], findings: Findings) -> EvaluationMetrics:
    """The canonical form; problems are noted in ``findings``."""
    kind = values.get("type", "logger")
    groups = values.get("groups", {})
    if kind == "regex_extractor" and not groups and not findings.has("evaluation_metrics"):
        findings.add("evaluation_metrics.groups", "missing: regex_extractor needs a mapping of labels to {regex, …}")
    for label, group in groups.items():
        if "regex" in group:
            _check_group(f"evaluation_metrics.groups.{label}", group, findings)
    if findings.has("evaluation_metrics"):
        return EvaluationMetrics()
    return EvaluationMetrics(
        type=kind,
        image_tag=values.get("image_tag"),
        path=values.get("in"),
        line_lookahead=values.get("line_lookahead", 4),
        event_types=values.get("eventTypes") or values.get("event_types") or [],
        groups=groups,
    )


def _check_group(path: str, group: dict[str, Any], findings: Findings) -> None:
    unknown = [name for name, _ in _MACRO.findall(group["regex"]) if name not in _MACROS]
    if unknown:
        known = ", ".join(f"%{{{name}}}" for name in _MACROS)
        findings.add(f"{path}.regex", f"no macro %{{{unknown[0]}}}: there are {known}", accepted=known)
        return
    try:
        names = set(re.compile(_MACRO.sub(_expand, group["regex"])).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        findings.add(f"{path}.regex", f"not a regular expression of Python's: {error}", accepted="a regular expression")
        return
    values = {
        f"{kind}.{key}": field["value"]
        for kind in ("scalars", "etimes")
        for key, field in group.get(kind, {}).items()
        if "value" in field
    }
    if "time" in group.get("meta", {}):
        values["meta.time"] = group["meta"]["time"]
    for where, value in values.items():
        if value.startswith("$") and value[1:] not in names:
            below = f"{path}.{where}" + ("" if where == "meta.time" else ".value")
            found = ", ".join(f"${name}" for name in sorted(names)) or "none"
            findings.add(below, f"expected a group of the regex ({found}), found {value!r}", found=repr(value))


def _expand(macro: re.Match[str]) -> str:
    return f"(?P<{macro[2]}>{_MACROS[macro[1]]})" if macro[2] else _MACROS[macro[1]]
