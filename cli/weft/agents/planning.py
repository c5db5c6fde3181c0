"""The answer of the tool ``plan``: what a manifest means, whether it would fit, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.client import Client
from weft.models import Engine, Room
from weft.ui.cells import resources
from weft.ui.times import span
from weft.words import count


def plan_lines(client: Client, manifest: Mapping[str, Any], notes: tuple[str, ...]) -> Iterator[str]:
    """The lines of the plan for a manifest that the server has accepted."""
    each, learners, name = manifest["resources"], int(manifest["learners"]), str(manifest["engine"])
    yield f"valid: job {manifest['name']}, {count(learners, 'learner')} of {resources(each)} each, engine {name}"
    engine = client.engine(name)
    yield f"fit: {_fit(engine, client.room(name, each), learners)}"
    waiting = f"{count(engine.queued, 'job')} waiting, {engine.running} running on engine {name}"
    yield f"queue: {waiting}" + (f"; {engine.condition}" if engine.condition else "")
    yield f"cost: {_cost(int(each.get('gpus') or 0), learners, manifest)}"
    if (budget := client.me().budget) is not None:
        yield f"budget: {budget.left:.4g} of {budget.gpu_hours:.4g} GPU-hours are left to your token"
    for note in notes:
        yield f"note: {note}"


def _fit(engine: Engine, room: Room, learners: int) -> str:
    if room.now is None or room.empty is None:
        return "unknown: no worker has observed the engine yet"
    if engine.queue:
        return f"{engine.queue} decides; the nodes have room for {room.now} of {count(learners, 'such learner')} now"
    if room.now >= learners:
        return "now, unless jobs that wait come first or a quota holds the job back"
    if room.empty >= learners:
        return f"later: there is room for {room.now} of {learners} learners now, and for {room.empty} when nothing runs"
    if room.potential:
        return f"perhaps, if the cluster adds nodes: the present ones have room for {room.empty} of {learners} learners"
    if room.tainted:
        others = f"other nodes have room for {room.empty} of {learners} learners"
        return f"perhaps, with a profile that tolerates taints: {others}"
    return f"never: the engine has room for {room.empty} of {learners} learners even when nothing runs"


def _cost(gpus: int, learners: int, manifest: Mapping[str, Any]) -> str:
    if not gpus:
        return "no GPU-hours, as the job asks for no GPUs"
    all_gpus, limit = gpus * learners, manifest.get("max_runtime_seconds")
    if not limit:
        return f"{count(all_gpus, 'GPU')} for an unlimited time; set max_runtime (such as 2h) to limit it"
    hours = f"at most {all_gpus * limit / 3600:.4g} GPU-hours"
    words = f"{hours}: {count(all_gpus, 'GPU')} for max_runtime, {span(limit)}"
    retries = int(manifest.get("retries") or 0)
    return f"{words}, in each of up to {count(retries + 1, 'attempt')}" if retries else words
