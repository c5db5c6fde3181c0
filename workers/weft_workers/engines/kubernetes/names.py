"""The names, labels and namespaces of Weft's objects on a cluster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from weft_core.launch import LaunchSpec

PREFIX = "weft.dev/"
INSTALLATION, ENGINE, RUN = f"{PREFIX}installation", f"{PREFIX}engine", f"{PREFIX}run"
PROJECT, JOB, ATTEMPT, LEARNER = f"{PREFIX}project", f"{PREFIX}job", f"{PREFIX}attempt", f"{PREFIX}learner"
HOSTS = f"{PREFIX}hosts"  # annotation of the NetworkPolicy: the addresses that learners use for hosts
LEARNERS = f"{PREFIX}learners"  # annotation of the Secret: how many there are to be
IDENTITY = (INSTALLATION, PROJECT, JOB, ATTEMPT)
"""Labels that make an object this attempt's."""

CONTAINER = "learner"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"  # Kueue's scheduling gate

_LABEL = re.compile(r"([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?", re.ASCII)
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_PLACEHOLDER = "{project}"


def label_value(text: str) -> str:
    """A text as a label's value: itself where that is allowed, else something as distinct."""
    if len(text) <= 63 and _LABEL.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:50].strip("-_.")
    return f"{plain}-{_hash(text)}" if plain else _hash(text)


def selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def run_labels(engine: str, spec: LaunchSpec) -> dict[str, str]:
    """The labels of all objects of an attempt."""
    return {
        "app.kubernetes.io/managed-by": "weft",
        "app.kubernetes.io/name": "weft-learner",
        ENGINE: label_value(engine),
        INSTALLATION: label_value(spec.installation),
        PROJECT: label_value(spec.project_id),
        JOB: label_value(spec.job_id),
        ATTEMPT: str(spec.attempt),
        RUN: spec.run_name,
    }


def own_labels(engine: str, installation: str) -> dict[str, str]:
    """The labels that all objects of an engine have."""
    return {INSTALLATION: label_value(installation), ENGINE: label_value(engine)}


def check_run_name(name: str) -> None:
    """Raise ValueError for a name that a Secret, and the pods named after it, can't have."""
    if len(name) > 58 or not _DNS_LABEL.fullmatch(name):
        raise ValueError(f"no name for a run: {name!r}")


def pod_name(run_name: str, rank: int) -> str:
    return f"{run_name}-{rank + 1}"


# --- namespaces --------------------------------------------------------------------------------------------------


def per_project(template: str) -> bool:
    return _PLACEHOLDER in template


def fill(template: str, project_id: str) -> str:
    """A namespace (or a queue) for a project: by its id, which stays when the project is renamed."""
    if not per_project(template):
        return template
    filled = template.replace(_PLACEHOLDER, project_id)
    plain = re.sub(r"[^a-z0-9-]+", "-", filled.lower()).strip("-")
    if plain == filled and len(filled) <= 63:
        return filled
    return f"{plain[:54].strip('-')}-{_hash(filled)}"


def check_namespace(template: str) -> None:
    """Raise ValueError for an invalid template of namespaces."""
    if not _DNS_LABEL.fullmatch(sample := template.replace(_PLACEHOLDER, "x")) or len(sample) > 63:
        raise ValueError(
            f"namespace {template!r}: a namespace has at most 63 small letters, digits and dashes; "
            "{project} stands for the project"
        )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- objects, as the server shows them ---------------------------------------------------------------------------


def label(found: Mapping[str, Any], name: str) -> str:
    return str((found["metadata"].get("labels") or {}).get(name, ""))


def rank_of(pod: Mapping[str, Any]) -> int | None:
    """A learner's rank (from 0) by its pod's label."""
    number = label(pod, LEARNER)
    return int(number) - 1 if number.isdecimal() and number != "0" else None
