"""The environments that a home's waiting jobs need, and the jobs that wait for each."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from weft_core.engine import LaunchRefused, Preparation
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision import waits
from weft_workers.supervision.waits import Wait


def prepare(home: Path, engine: str, images: EnvironmentBuilder, jobs: Mapping[str, str]) -> dict[str, Preparation]:
    """Have the environments of waiting jobs built, and no others on behalf of this home's engine.

    Args:
        jobs: image by job id.

    Returns:
        The jobs whose environments are not there yet.
    """
    ours = f"{_of_home(home)}{quote(engine, safe='')}."
    waiting, unready = set(), {}
    for job_id, image in jobs.items():
        try:
            recipe = images.locate(image).recipe
        except LaunchRefused:  # the launch reports why
            continue
        if recipe is None or recipe.is_complete():
            continue
        name = f"{ours}{job_id}"
        waiting.add(name)
        found = Wait(recipe, name).check()
        if found.failed:
            unready[job_id] = Preparation(failed=f"environment {image} could not be built: {found.failed}")
        elif not found.ready:
            unready[job_id] = Preparation(found.progress)
    waits.end_all(images.root, ours, but=waiting)
    return unready


def end_builds(home: Path, patience: float) -> None:
    """End the builds that only this home's jobs wait for, and wait for their end.

    Args:
        patience: seconds.
    """
    folders = waits.end_all(EnvironmentBuilder.root_of(home), _of_home(home))
    deadline = time.monotonic() + patience
    while any(waits.is_unwanted_build(folder) for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.05)


def _of_home(home: Path) -> str:
    """How the names of a home's waits begin: all homes of a user share the environments."""
    return hashlib.sha256(str(home.expanduser().absolute()).encode()).hexdigest()[:12] + "."
