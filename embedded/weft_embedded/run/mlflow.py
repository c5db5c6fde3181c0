"""The values that programs log with MLflow's client. It writes MLflow's own file store in the run's folder, which is
read as it grows.

Each learner has a store of its own, because a shared store does not show which learner has logged a value. In a
store, the folder ``EXPERIMENT/RUN`` has the artifacts and a file for each metric (a line a value), parameter and tag.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_NAME, _PARENT = "mlflow.runName", "mlflow.parentRunId"
_ATTEMPT = "weft.attempt"
"""A tag that the job's own runs get: each attempt has one in each store."""
_RESERVED = "weft-manifest"
"""The files that show which results are complete."""


@dataclass(frozen=True)
class StoredRun:
    """A run in a learner's store."""

    folder: Path
    learner: int

    @cached_property
    def name(self) -> str:
        return self._tag(_NAME) or self.id

    @cached_property
    def start_time(self) -> int:
        found = re.search(r"^start_time: (\d+)", (self.folder / "meta.yaml").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def nested(self) -> bool:
        return self._tag(_PARENT) is not None

    @property
    def attempt(self) -> int | None:
        """The attempt whose own run it is."""
        found = self._tag(_ATTEMPT)
        return int(found) if found and found.isdecimal() else None

    def make_own(self, attempt: int) -> None:
        (self.folder / "tags" / _ATTEMPT).write_text(str(attempt))

    def _tag(self, name: str) -> str | None:
        try:
            return (self.folder / "tags" / name).read_text()
        except OSError:
            return None


class MlflowStores:
    """The stores of a run's learners. Not thread-safe.

    Args:
        folder: holds the stores.
        learners: how many learners the run has.
    """

    def __init__(self, folder: Path, learners: int) -> None:
        self._folder = folder
        self._learners = range(1, learners + 1)
        self._attempt = 0
        self._earlier: set[Path] = set()
        self._read: dict[Path, int] = {}
        """How many bytes of a metric's file were read."""

    def environment(self, rank: int) -> dict[str, str]:
        """The variables that lead a learner's client to its store."""
        # Without the second one, newer clients refuse a store of files.
        return {"MLFLOW_TRACKING_URI": self._store(rank + 1).as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}

    def begin(self, attempt: int) -> None:
        """From now on, this attempt logs."""
        self._attempt = attempt
        runs = list(self._runs())
        self._earlier = {run.folder for run in runs}
        self._read = {path: path.stat().st_size for run in runs for path in _files(run.folder / "metrics")}

    def read(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The values that were logged since the last call: a learner, and records as its agent would send them.

        Raises:
            OSError: a file can't be read.
        """
        runs = list(self._runs())
        self._mark(runs)
        for run in runs:
            group = "" if run.attempt is not None else run.name
            for path in _files(run.folder / "metrics"):
                key = path.relative_to(run.folder / "metrics").as_posix()
                if records := [_record(group, key, line) for line in self._new_lines(path)]:
                    yield run.learner, records

    def params(self) -> dict[str, str]:
        """The parameters of the job's own runs. The newest attempt counts, and of its learners the first."""
        folders = [run.folder / "params" for run in self._own()]
        found = {path.relative_to(folder).as_posix(): path for folder in folders for path in _files(folder)}
        return {name: found[name].read_text() for name in sorted(found)}

    def keep_artifacts(self, results: Path) -> None:
        """Make the artifacts files of the results: at the same paths as in the service. Raises OSError."""
        own = {run.id for run in self._own()}
        for run in [*self._own(), *(run for run in self._runs() if run.id not in own)]:
            below = results if run.id in own else results / "mlflow" / run.id
            _keep(run.folder / "artifacts", below)
            for model in run.folder.parent.glob("models/*/meta.yaml"):
                if re.search(rf"^source_run_id: {run.id}$", model.read_text(), re.MULTILINE):
                    _keep(model.with_name("artifacts"), below / "models" / model.parent.name)

    def _store(self, learner: int) -> Path:
        return self._folder / f"learner-{learner}"

    def _runs(self) -> Iterator[StoredRun]:
        """All runs. The name is the last tag that a new run gets, so a run that has a name is complete."""
        for learner in self._learners:
            for path in self._store(learner).glob(f"*/*/tags/{_NAME}"):
                yield StoredRun(path.parents[1], learner)

    def _own(self) -> list[StoredRun]:
        runs = [run for run in self._runs() if run.attempt is not None]
        return sorted(runs, key=lambda run: (run.attempt or 0, -run.learner))

    def _mark(self, runs: list[StoredRun]) -> None:
        """As in the service, the first run that a learner starts in an attempt is the job's own."""
        for learner in self._learners:
            mine = [run for run in runs if run.learner == learner]
            new = [run for run in mine if run.folder not in self._earlier and not run.nested]
            if new and not any(run.attempt == self._attempt for run in mine):
                min(new, key=lambda run: run.start_time).make_own(self._attempt)

    def _new_lines(self, path: Path) -> list[bytes]:
        """The complete lines that were added since the last call."""
        start = self._read.get(path, 0)
        if path.stat().st_size <= start:
            return []
        with path.open("rb") as file:
            file.seek(start)
            added = file.read()
        lines = added[: added.rfind(b"\n") + 1]
        self._read[path] = start + len(lines)
        return lines.splitlines()


def _record(group: str, key: str, line: bytes) -> dict[str, Any]:
    time, value, step = line.split()[:3]
    return {"t": int(time), "group": group, "etimes": {"iteration": int(step)}, "values": {key: float(value)}}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _keep(artifacts: Path, below: Path) -> None:
    """Link the files, or copy them to another file system. A newer file, such as of RESULT_DIR, stays."""
    for source in _files(artifacts):
        target = below / source.relative_to(artifacts)
        if target.parent == below and target.name.startswith(_RESERVED):
            continue
        if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
