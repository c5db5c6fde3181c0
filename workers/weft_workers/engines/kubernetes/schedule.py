"""The scheduler's messages, in words for users. Pure."""

from __future__ import annotations

import re
from typing import Any

from weft_core.words import count, size
from weft_workers.engines.kubernetes import names, quantity

Json = dict[str, Any]

# The first sentence says why each node was ruled out. What follows is about preemption and device claims, in words
# that change with each release; a taint in braces or a name in quotes may hold a full stop of its own.
_SENTENCE = re.compile(r"(?:\{[^}]*\}|\"[^\"]*\"|(?!\.\s|\.$).)*")
_ASIDE = re.compile(r"[.,;]?\s*\b(preemption: |no new claims to deallocate|still not schedulable)")
_HEAD = re.compile(r"0/(\d+) nodes? are available: (.*)", re.DOTALL)
_PART = re.compile(r"(\d+) (.*)", re.DOTALL)
_INSUFFICIENT = re.compile(r"Insufficient ([^\s,;]+)")
_PARTS = (  # the scheduler's words differ a little from version to version
    (re.compile(r"untolerated taint \{(?P<what>[^}]*)\}|had taint \{(?P<old>[^}]*)\}"), "tainted {what}"),
    (re.compile(r"untolerated taint"), "tainted"),
    (
        re.compile(r"didn't match (Pod's )?node (affinity|selector)"),
        "not of the kind asked for",
    ),
    (re.compile(r"unschedulable"), "cordoned"),
    (re.compile(r"Too many pods"), "full of pods"),
    (re.compile(r"didn't match pod (anti-)?affinity"), "kept off by pod affinity"),
    (re.compile(r"persistentvolumeclaim|volume"), "can't have the volume"),
)
_TAINTS = {
    "node.kubernetes.io/unreachable": "not answering",
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unschedulable": "cordoned",
    "node.kubernetes.io/disk-pressure": "short of disk",
    "node.kubernetes.io/memory-pressure": "short of memory",
}


def explain(pod: Json, message: str) -> str:
    """Why no node takes a pod: ``unschedulable: no node has 8 CPUs free (2 nodes: …)``; words that are not known are
    passed on as the scheduler says them."""
    text = _first_sentence(message)
    head = _HEAD.search(text)
    if not head:
        return f"unschedulable: {text}" if text else "waiting to be scheduled"
    parts = [part for part in (_PART.fullmatch(piece.strip(" .")) for piece in _split(head[2])) if part]
    lacking = [found[1] for part in parts if (found := _INSUFFICIENT.match(part[2]))]
    told = [f"{part[1]} {_translate(part[2])}" for part in parts]
    nodes = count(int(head[1]), "node")
    if lacking:
        wanted = " and ".join(dict.fromkeys(_wanted(pod, name) for name in lacking))
        return f"unschedulable: no node has {wanted} free ({nodes}: {', '.join(told)})"
    return f"unschedulable: no node fits ({nodes}: {', '.join(told) or head[2]})"


def _first_sentence(message: str) -> str:
    text = " ".join(message.split())
    if aside := _ASIDE.search(text):
        text = text[: aside.start()]
    sentence = _SENTENCE.match(text)
    return sentence[0].rstrip(". ") if sentence else text


def _split(text: str) -> list[str]:
    """The parts of the scheduler's list; taints have commas of their own."""
    return re.split(r", (?=\d+ )", text)


def _translate(part: str) -> str:
    if found := _INSUFFICIENT.match(part):
        return f"with too little {_resource(found[1])}"
    for pattern, words in _PARTS:
        if found := pattern.search(part):
            groups = found.groupdict()
            taint = (groups.get("what") or groups.get("old") or "").strip()
            key = taint.partition(":")[0].strip()
            return _TAINTS.get(key) or words.format(what=taint.removesuffix(":").strip())
    return part.removeprefix("node(s) ")


def _resource(name: str) -> str:
    return {"cpu": "CPU", "ephemeral-storage": "storage"}.get(name, name)


def _wanted(pod: Json, resource: str) -> str:
    """The amount of a resource that the pod requests, in words."""
    asked: dict[str, Any] = {}
    for container in pod["spec"]["containers"]:
        if container["name"] == names.CONTAINER:
            asked = (container.get("resources") or {}).get("requests") or {}
    if resource not in asked:
        return f"enough {_resource(resource)}"
    number = quantity.number(asked[resource])
    match resource:
        case "cpu":
            return count(number, "CPU")
        case "memory":
            return f"{size(number)} of memory"
        case "ephemeral-storage":
            return f"{size(number)} of storage"
        case "nvidia.com/gpu":
            return count(number, "GPU")
        case _:
            return f"{number:g} {resource}"
