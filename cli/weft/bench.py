"""``weft bench``: a synthetic training as one job for each number of learners, and their measurements.

The program is the repository's example `imagenet-resnet50` with ``--benchmark``; the client brings it along. Its log
ends with its measurement, so a benchmark can be read again for as long as its jobs are kept.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from weft.client import Client
from weft.errors import WeftError
from weft.resources.jobs import Job

LABEL = "bench"
RUN_LABEL = "bench-run"
_RESULT = "benchmark "
_PROGRAM = "imagenet-resnet50"
FRAMEWORKS = {
    ("pytorch", "horovod"): "manifest.yml",
    ("pytorch", "torchrun"): "manifest-torchrun.yml",
    ("tensorflow", "horovod"): "manifest.yml",
    ("keras", "horovod"): "manifest.yml",
}
"""Framework and launcher → the manifest in the framework's folder."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one job.

    Attributes:
        images_per_second: of all devices, mean of all measurements.
        plus_minus: 1.96 standard deviations of one measurement.
        rates: images/sec of all devices, one a measurement.
        devices: processes; one a GPU, or one a learner.
        batch_size: of each device.
    """

    images_per_second: float
    plus_minus: float
    rates: tuple[float, ...]
    devices: int
    device: str
    batch_size: int


@dataclass(frozen=True)
class BenchJob:
    """A job of a benchmark, with its measurement if it has one."""

    job: Job
    measured: Measurement | None = None

    @property
    def learners(self) -> int:
        return self.job.learners


@dataclass(frozen=True)
class Plan:
    """The plan of a benchmark. ``gpus``, ``cpus`` and ``memory`` are each learner's; None: the example's."""

    framework: str = "pytorch"
    launcher: str = "horovod"
    engine: str | None = None
    gpus: int | None = None
    cpus: float | None = None
    memory: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The program's options: ``{"batch-size": 64, "fp16-allreduce": True}``; None and False are left out."""
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """The label that distinguishes this benchmark's jobs."""

    def manifest(self, learners: int) -> dict[str, Any]:
        """The example's manifest with this plan's values, without data and with nothing to keep."""
        made: dict[str, Any] = yaml.safe_load((self.code / FRAMEWORKS[self.framework, self.launcher]).read_text())
        for name in ("data_stores", "checkpoint", "retries", "description"):
            made.pop(name, None)
        made |= {
            "name": f"bench-resnet50-{self.framework}-{learners}",
            "labels": {LABEL: "resnet50", RUN_LABEL: self.run},
            "learners": learners,
        }
        given = {"engine": self.engine, "gpus": self.gpus, "cpus": self.cpus, "memory": self.memory}
        made |= {name: value for name, value in given.items() if value is not None}
        made["framework"]["command"] = self.command
        return made

    @property
    def code(self) -> Path:
        """The program's folder. Raises WeftError."""
        return _programs() / self.framework

    @property
    def command(self) -> str:
        words = ["python", "train.py", "--benchmark"]
        for name, value in self.arguments.items():
            if value is True:
                words.append(f"--{name}")
            elif value is not None and value is not False:
                words += [f"--{name}", str(value)]
        return shlex.join(words)


def submit(client: Client, plan: Plan, learners: int) -> Job:
    """Queue one of the benchmark's jobs. Raises InvalidManifest, as :meth:`Client.train` does."""
    return client.train(plan.manifest(learners), plan.code)


def read(job: Job) -> BenchJob:
    """The job, and its measurement if it has come that far."""
    for line in job.logs(learner=1, tail=50):
        _, found, text = line.text.rpartition(_RESULT)  # a label of the learner's process may stand before it
        if found and (measured := _parse(text)):
            return BenchJob(job, measured)
    return BenchJob(job)


def find(client: Client, run: str | None) -> list[BenchJob]:
    """The jobs of a benchmark, the newest one when ``run`` is None, by number of learners.

    Raises:
        WeftError: there is no such benchmark.
    """
    if run is None:
        newest = next(client.jobs.list(label=f"{LABEL}=resnet50", limit=1), None)
        if newest is None:
            raise WeftError("there is no benchmark yet; `weft bench resnet50 --learners 1,2` makes one")
        run = newest.labels.get(RUN_LABEL, "")
    jobs = list(client.jobs.list(label=f"{RUN_LABEL}={run}"))
    if not jobs:
        raise WeftError(f"there is no benchmark {run!r}; `weft list --label {LABEL}=resnet50` lists the jobs of all")
    return [read(job) for job in sorted(jobs, key=lambda job: (job.learners, job.id))]


def efficiency(point: BenchJob, points: Sequence[BenchJob]) -> float | None:
    """Images/sec of a device, relative to a device in the measurement with the fewest learners: 1 is ideal."""
    measured = [other for other in points if other.measured]
    if not point.measured or not measured:
        return None
    base = min(measured, key=lambda other: other.learners).measured
    assert base is not None
    alone = base.images_per_second / base.devices
    return point.measured.images_per_second / point.measured.devices / alone if alone else None


def as_json(points: Sequence[BenchJob]) -> list[dict[str, Any]]:
    """The points for a program."""
    return [
        {
            "job": point.job.id,
            "run": point.job.labels.get(RUN_LABEL),
            "learners": point.learners,
            "state": point.job.state,
            "images_per_second": point.measured.images_per_second if point.measured else None,
            "plus_minus": point.measured.plus_minus if point.measured else None,
            "rates": list(point.measured.rates) if point.measured else [],
            "devices": point.measured.devices if point.measured else None,
            "device": point.measured.device if point.measured else None,
            "batch_size": point.measured.batch_size if point.measured else None,
            "efficiency": efficiency(point, points),
        }
        for point in points
    ]


def _parse(text: str) -> Measurement | None:
    try:
        told = json.loads(text)
        return Measurement(
            float(told["images_per_second"]),
            float(told["plus_minus"]),
            tuple(float(rate) for rate in told["rates"]),
            int(told["devices"]),
            str(told["device"]),
            int(told["batch_size"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # a line that only looks like one


def _programs() -> Path:
    """The example's folder: inside the installed package, or the repository's own in a source tree."""
    package = Path(__file__).resolve().parent
    places = (package / "_bundled" / _PROGRAM, package.parents[1] / "examples" / _PROGRAM)
    for place in places:
        if place.is_dir():
            return place
    raise WeftError(f"this installation of weft is broken: {places[0]} is missing")
