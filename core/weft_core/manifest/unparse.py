"""The inverse of :mod:`~weft_core.manifest.parse`: a manifest as YAML, so that a rerun is parsed like any submission.

The text contains no credentials. Give them to ``parse_manifest`` together with the text.
"""

from __future__ import annotations

from typing import Any

import yaml

from weft_core.launch import EvaluationMetrics
from weft_core.manifest.models import DataStore, Manifest, Notify
from weft_core.manifest.sweep_models import Sweep

# These keys are the same in both forms.
_SAME = ("name", "description", "version", "labels", "engine", "priority", "learners", "retries", "env", "secrets")

_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "TB": 10**12, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6}
_SPANS = {"h": 3600, "m": 60, "s": 1}


def manifest_text(manifest: Manifest) -> str:
    """The YAML that a user would write for ``manifest``: parsing it gives the same manifest again."""
    canonical = manifest.model_dump(mode="json", exclude_none=True)
    written: dict[str, Any] = {name: canonical[name] for name in _SAME if canonical.get(name) not in (None, "", {})}
    if manifest.elastic:
        written["elastic"] = canonical["elastic"]
    written |= _resources(manifest)
    written["framework"] = {
        key: value
        for key, value in canonical["framework"].items()
        if key != "image" and (value or key in ("version", "command"))
    }
    if manifest.repo:
        repo = manifest.repo.model_copy(update={"ref": manifest.repo.commit or manifest.repo.ref, "commit": None})
        written["repo"] = {key: value for key, value in repo.model_dump().items() if value}
    if manifest.data_stores:
        written["data_stores"] = [_data_store(store) for store in manifest.data_stores]
    written["checkpoint"] = {
        "every": _seconds(manifest.checkpoint.every_seconds),
        "keep": manifest.checkpoint.keep,
    }
    if manifest.after:
        written["after"] = canonical["after"]
    if manifest.stall is not None:
        written["stall"] = {"after": _seconds(manifest.stall.after_seconds), "action": manifest.stall.action}
    if manifest.max_runtime_seconds is not None:
        written["max_runtime"] = _seconds(manifest.max_runtime_seconds)
    if manifest.keep_on_failure_seconds is not None:
        written["keep_on_failure"] = _seconds(manifest.keep_on_failure_seconds)
    if manifest.identity is not None:
        written["identity"] = canonical["identity"]
    if manifest.results:
        written["results"] = manifest.results
    if not manifest.keep_leftovers:
        written["keep_leftovers"] = False
    written["evaluation_metrics"] = _metrics(manifest.evaluation_metrics)
    if manifest.notify:
        written["notify"] = [_target(target) for target in manifest.notify]
    if manifest.rules:
        written["rules"] = canonical["rules"]
    if manifest.parameters:
        written["parameters"] = manifest.parameters
    if manifest.sweep is not None:
        written["sweep"] = _sweep(manifest.sweep)
    if manifest.schedule is not None:
        written["schedule"] = canonical["schedule"]
    if manifest.on is not None:
        written["on"] = f"{manifest.on.name}@{manifest.on.version}"
    return yaml.safe_dump(written, sort_keys=False)


def _resources(manifest: Manifest) -> dict[str, Any]:
    sizes = manifest.resources
    written: dict[str, Any] = {}
    if manifest.profile:
        written["profile"] = manifest.profile
    else:
        written |= {"cpus": sizes.cpus, "gpus": sizes.gpus, "memory": _bytes(sizes.memory)}
        if sizes.gpu_type:
            written["gpu_type"] = sizes.gpu_type
    if sizes.storage is not None:
        written["storage"] = _bytes(sizes.storage)
    return written


def _bytes(size: int) -> str:
    """The exact size, in the largest unit that divides it."""
    for unit, factor in _SIZES.items():
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size // 10**6}.{size % 10**6:06d} MB"


def _seconds(seconds: float) -> str:
    for unit, factor in _SPANS.items():
        if seconds % factor == 0:
            return f"{seconds / factor:.0f}{unit}"
    return f"{seconds:.6f}"


def _data_store(store: DataStore) -> dict[str, Any]:
    written = store.model_dump(mode="json", exclude_none=True, exclude={"model", "mount"})
    if store.mount:
        written["connection"] = {"type": "host_mount"} | store.mount.model_dump(exclude_none=True)
    if store.model:
        written["model"] = f"{store.model.name}@{store.model.version}"
    return written


def _target(target: Notify) -> dict[str, Any]:
    # An e-mail has no format that a user could write.
    return target.model_dump(mode="json", exclude_none=True, exclude={"format"} if target.email else None)


def _metrics(metrics: EvaluationMetrics) -> dict[str, Any]:
    written = metrics.model_dump(mode="json", exclude_none=True, exclude={"path"})
    if metrics.path is not None:
        written["in"] = metrics.path
    return {key: value for key, value in written.items() if value not in ([], {})}


def _sweep(sweep: Sweep) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, parameter in sweep.parameters.items():
        told: Any = parameter.values if parameter.kind == "values" else [parameter.low, parameter.high]
        if parameter.kind in ("int", "int_log"):
            told = [int(parameter.low), int(parameter.high)]
        more = parameter.model_dump(exclude_none=True, include={"step", "set"})
        parameters[name] = told if parameter.kind == "values" and not more else {parameter.kind: told, **more}
    stop = sweep.stop.model_dump(exclude_none=True, include={"value", "failures"})
    if sweep.stop.after_seconds is not None:
        stop["after"] = _seconds(sweep.stop.after_seconds)
    same = sweep.model_dump(include={"metric", "goal", "trials", "parallel", "search", "seed"})
    more_keys: dict[str, Any] = {}
    if sweep.rungs is not None:
        without = {"min", "reduction", "sync"} if sweep.population is not None else {"every"}
        more_keys["rungs"] = sweep.rungs.model_dump(exclude=without)
    if sweep.population is not None:
        more_keys["population"] = sweep.population
    return {"parameters": parameters, **same, **more_keys, "stop": stop}
