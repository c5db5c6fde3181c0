"""Folders of event files for TensorBoard, from a job's results or written from its metrics."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from weft.errors import ApiError, WeftError
from weft.resources.jobs import Job
from weft.words import count

_MOST_POINTS = 200_000
"""Maximum number of points of one job; of more points, an even selection is written."""


class JobFolder:
    """One job's folder in TensorBoard's log directory.

    Raises:
        WeftError: TensorBoard is not installed here.
    """

    def __init__(self, logdir: Path, job: Job) -> None:
        self.job = job
        self.path = logdir / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', job.name).strip('-.') or 'job'}-{job.id[4:]}"
        self._writers: dict[Path, Any] = {}
        self._written: dict[tuple[int, int, str], int] = defaultdict(int)
        self._from_results = False
        self._forget_written()  # from an earlier call

    def fetch(self) -> str:
        """Update the folder; returns a description of its content."""
        if not self._from_results:
            self.job = self.job.refresh()
            if self.job.is_terminal and (number := self._event_files()):
                self._from_results = True
                self._forget_written()  # the program's own event files contain the same points
                return f"{count(number, 'event file')} of its results"
            return f"{self._write_metrics():,} points of its metrics"
        return "unchanged"

    @property
    def is_complete(self) -> bool:
        return self.job.is_terminal

    def _event_files(self) -> int:
        """Download the event files of the results; returns their number."""
        try:
            files = [file for file in self.job.files() if "tfevents" in posixpath.basename(file.path)]
        except ApiError:  # there are no results
            return 0
        for file in files:
            target = (self.path / file.path).resolve()
            if not target.is_relative_to(self.path.resolve()):
                continue  # a name that leads out of the folder
            target.parent.mkdir(parents=True, exist_ok=True)
            self.job.download_file(file.path, target)
        return len(files)

    def _write_metrics(self) -> int:
        """Write the points that are new since the last call; returns the number of all points."""
        series = self.job.metrics(kind="user")
        every = max(1, -(-sum(found.points for found in series) // _MOST_POINTS))
        several = {(found.attempt, found.learner) for found in series}
        seen: dict[tuple[int, int, str], int] = defaultdict(int)
        for point in self.job.metric_points(kind="user") if series else ():
            key = (point.attempt, point.learner, point.name)
            seen[key] += 1
            if seen[key] > self._written[key] and (seen[key] - 1) % every == 0:
                run = f"attempt-{point.attempt}-learner-{point.learner}" if len(several) > 1 else "."
                _add(self._writer(run), point.name, point.value, point.step, point.time.timestamp())
        self._written.update(seen)
        for writer in self._writers.values():
            writer.flush()
        return sum(self._written.values())

    def _writer(self, run: str) -> Any:
        folder = self.path / run
        if folder not in self._writers:
            folder.mkdir(parents=True, exist_ok=True)
            self._writers[folder] = _event_file(folder)
        return self._writers[folder]

    def _forget_written(self) -> None:
        """Remove the event files that this class has written."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._written.clear()
        for file in self.path.rglob("events.out.tfevents.*.weft"):
            file.unlink()


def _event_file(folder: Path) -> Any:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise NOT_INSTALLED from None
    return EventFileWriter(str(folder), filename_suffix=".weft")


def _add(writer: Any, name: str, value: float, step: int, at: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
    writer.add_event(Event(wall_time=at, step=step, summary=summary))


NOT_INSTALLED = WeftError("TensorBoard is not installed here: pip install 'weft[tensorboard]'")
