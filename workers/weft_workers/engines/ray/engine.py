"""The engine ``ray``: a run is a Ray job. The processes that outlive a call are in ``weft_trainer.ray_gang``."""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from weft_core.engine import Capacity, EngineUnreachable, LaunchRefused, Observation
from weft_core.engine_settings import RaySettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.ray.capacity import Census
from weft_workers.engines.ray.client import Answered, RayClient
from weft_workers.engines.ray.package import agent_package
from weft_workers.engines.ray.reading import CANCELS, Run, is_done_cancel, is_ghost, is_ours, observe

_IDENTITY = ("installation", "project_id", "job_id", "attempt")
_KILL_SECONDS = 30
"""Beyond the grace, for a driver that got SIGTERM to end its learners; then Ray kills it, and they end with it."""
_STUCK = 5.0
"""Seconds after which a stopped run that has not begun is one that Ray finds no room for."""
_NOTICED = 3.0
"""Seconds in which Ray itself notices a driver's end. Of a job that is deleted before, it makes a ghost, or never ends
the actor that looked after it."""


class RayEngine:
    """Learners as actors of a Ray cluster, through Ray's HTTP API.

    Args:
        name: its name in the settings.
        settings: where the cluster is.
        installation_id: whose runs are ours on a cluster that is shared.
    """

    def __init__(self, name: str, settings: RaySettings, installation_id: str) -> None:
        self.name = name
        self.grows_runs = False  # a placement group has the size it was made with
        self._settings = settings
        self._installation = installation_id
        self._ray = RayClient(name, settings)
        self._census = Census(name, settings, self._ray)
        self._stopping: dict[str, float] = {}
        """Runs that this process has asked to stop, and when first. Other processes know it from the drivers'
        statuses."""
        self._ended: dict[str, float] = {}
        """Runs whose driver has ended, and since when this process knows."""

    # --- the contract with the reconciler ---

    def launch(self, spec: LaunchSpec) -> None:
        with self._sensible():
            self._launch(spec)

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        raise LaunchRefused(f"engine {self.name}: Ray's placement group of {spec.run_name} can't be made larger")

    def observe(self) -> Mapping[str, Observation]:
        with self._sensible():
            return self._observe()

    def stop(self, run_name: str, grace: timedelta) -> None:
        with self._sensible():
            self._stop(run_name, max(0.0, grace.total_seconds()))

    def capacity(self) -> Capacity:
        with self._sensible():
            return self._census.take(self._runs())

    # --- launch ---

    def _launch(self, spec: LaunchSpec) -> None:
        there = self._ray.job(spec.run_name)
        if there is not None and not is_ghost(there):
            return self._adopt(there, spec)
        if there is not None:
            self._delete(spec.run_name)
        package = agent_package()
        if not self._ray.has_package(package.name):
            self._ray.put_package(package.name, package.data)
        self._leave_note(spec.run_name, "request", self._request(spec))
        if not self._ray.submit(self._job(spec, package.name)):
            there = self._ray.job(spec.run_name)
            if there is not None:
                self._adopt(there, spec)

    def _job(self, spec: LaunchSpec, package: str) -> dict[str, Any]:
        wait = math.ceil(spec.grace) + _KILL_SECONDS
        alone = spec.learners == 1
        program = "weft_trainer.ray_gang.alone" if alone else "weft_trainer.ray_gang"
        return {
            "submission_id": spec.run_name,
            # Ray starts a shell; replaced, it can't be killed without what it has started.
            "entrypoint": f"exec python -m {program} {spec.run_name} {self._notes(spec.run_name)}",
            **(self._room(spec) if alone else {}),
            "runtime_env": {
                "working_dir": f"gcs://{package}",
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(wait)},
            },
            "metadata": {
                "name": f"weft: {spec.project}/{spec.job_name}" if spec.job_name else spec.run_name,
                "engine": self.name,
                "learners": str(spec.learners),
                "resources": json.dumps(self._resources(spec)),
                **{field: str(getattr(spec, field)) for field in _IDENTITY},
            },
        }

    def _room(self, spec: LaunchSpec) -> dict[str, Any]:
        """The resources of a job with one learner, as the driver of a gang asks for them for its placement group."""
        each = spec.resources
        resources = dict(each.extra)
        if each.gpus and each.gpu_type:
            resources[f"accelerator_type:{self._census.gpu_name(each.gpu_type)}"] = 0.001
        return {
            "entrypoint_num_cpus": each.cpus,
            "entrypoint_num_gpus": each.gpus,
            "entrypoint_memory": each.memory,
            "entrypoint_resources": resources,
        }

    def _request(self, spec: LaunchSpec) -> dict[str, Any]:
        """The request to the driver. It holds the attempt's token, and so goes by a way that no listing shows."""
        environments = self._settings.environments
        return {
            "run_name": spec.run_name,
            "learners": spec.learners,
            "grace": spec.grace,
            "api_url": spec.api_url,
            **({"traceparent": spec.traceparent} if spec.traceparent else {}),
            "token": spec.token,
            "image": spec.image,
            "python": environments.get(spec.image) or environments.get("*"),
            "cache_dir": self._settings.cache_dir,
            "cache_size": self._settings.cache_size,
            "gpu_types": [pool.gpu_type for pool in self._settings.autoscaling if pool.gpu_type],
            **self._resources(spec),
        }

    @staticmethod
    def _resources(spec: LaunchSpec) -> dict[str, Any]:
        each = spec.resources
        return {
            "cpus": each.cpus,
            "gpus": each.gpus,
            "memory": each.memory,
            "gpu_type": each.gpu_type,
            "extra": dict(each.extra),
        }

    def _adopt(self, job: Mapping[str, Any], spec: LaunchSpec) -> None:
        """Check that the job with this name belongs to this very attempt."""
        there = job.get("metadata") or {}
        for field, ours in [("engine", self.name), *((name, str(getattr(spec, name))) for name in _IDENTITY)]:
            if there.get(field) != ours:
                raise EngineUnreachable(
                    f"engine {self.name}: a Ray job named {spec.run_name} is there, of another {field} "
                    f"({there.get(field)}, not {ours})"
                )

    # --- the runs ---

    def _observe(self) -> Mapping[str, Observation]:
        runs = self._runs()
        orphaned = {run.ray_job_id for run in runs if run.terminal and run.learners and not run.settled}
        living = self._living({ray_job_id for ray_job_id in orphaned if ray_job_id})
        seen = {}
        for run in runs:
            ranks = living.get(run.name, frozenset())
            if ranks or not self._forget(run):
                seen[run.name] = observe(run, ranks)
        return seen

    def _stop(self, run_name: str, seconds: float) -> None:
        job = self._ray.job(run_name)
        if job is None or not is_ours(job, self._installation, self.name):
            return
        run = Run(job)
        if run_name not in self._stopping:
            self._leave_note(run_name, "stopped", {})  # for other workers, where its driver can't say so any more
        since = self._stopping.setdefault(run_name, time.monotonic())
        if run.terminal or (run.settled and time.monotonic() - since < _KILL_SECONDS):
            return  # its driver has ended or is about to; the next observation forgets it
        # A name of its own: of two stops in a row the shorter grace counts, so none may cover the other.
        self._leave_note(run_name, f"stop-{uuid.uuid4().hex}", {"grace": seconds})
        if run.pending or seconds == 0:
            self._ray.stop_job(run_name)

    def _forget(self, run: Run) -> bool:
        """Remove a run that was stopped and has ended; False: it has not, or Ray has not noticed it everywhere."""
        now = time.monotonic()
        if run.pending and run.alone and now - self._stopping.get(run.name, now) >= _STUCK:
            self._cancel(run)
        if not run.terminal or not (run.stopped or run.name in self._stopping or self._was_stopped(run)):
            return False
        if not self._has_noticed(run.name):
            return False
        self._delete(run.name)
        return True

    def _has_noticed(self, ended: str) -> bool:
        now = time.monotonic()
        return now - self._ended.setdefault(ended, now) >= _NOTICED

    def _cancel(self, run: Run) -> None:
        """Ray stops no job that still waits for room: have another one end it (weft_trainer.ray_gang.cancel)."""
        self._ray.submit(
            {
                "submission_id": f"{run.name}-cancel",
                "entrypoint": f"python -m weft_trainer.ray_gang.cancel {run.name}",
                "runtime_env": {"working_dir": f"gcs://{agent_package().name}"},
                "metadata": {CANCELS: run.name, "installation": self._installation, "engine": self.name},
            }
        )

    def _was_stopped(self, run: Run) -> bool:
        """Whether another worker stopped it, and its driver was not there to tell."""
        return self._ray.has_package(f"{self._notes(run.name)}-stopped.zip")

    def _runs(self) -> list[Run]:
        jobs = self._ray.jobs()
        runs = [Run(job) for job in jobs if is_ours(job, self._installation, self.name)]
        cancels = {job["submission_id"] for job in jobs if is_done_cancel(job, self._installation, self.name)}
        for job in jobs:
            name = job["submission_id"]
            if is_ghost(job) or (name in cancels and self._has_noticed(name)):
                self._delete(name)
        names = {run.name for run in runs} | cancels
        self._stopping = {name: since for name, since in list(self._stopping.items()) if name in names}
        self._ended = {name: since for name, since in list(self._ended.items()) if name in names}
        self._census.note(runs)
        return runs

    def _living(self, ray_jobs: set[str]) -> dict[str, frozenset[int]]:
        """Ranks by run name whose actors have not died yet though their driver has."""
        found: dict[str, frozenset[int]] = {}
        for actor in self._ray.living_actors(ray_jobs) if ray_jobs else ():
            run, _, rank = str(actor.get("name", "")).rpartition("-")
            if rank.isdecimal():
                found[run] = found.get(run, frozenset()) | {int(rank)}
        return found

    def _leave_note(self, run_name: str, kind: str, what: Mapping[str, Any]) -> None:
        """For the driver to take (weft_trainer.ray_gang.board)."""
        name = f"{self._notes(run_name)}-{kind}.zip"
        # Asking for it first makes Ray drop it after ten minutes, if the driver should never come to take it.
        self._ray.has_package(name)
        self._ray.put_package(name, json.dumps(what).encode())

    def _notes(self, run_name: str) -> str:
        """The beginning of the names of a run's notes. It differs for another installation's run of the same name."""
        owner = hashlib.sha256(f"{self._installation}/{self.name}".encode()).hexdigest()[:12]
        return f"{run_name}-{owner}"

    def _delete(self, run_name: str) -> None:
        with suppress(Answered):  # another worker has just done it; or the next observation will
            self._ray.delete_job(run_name)

    @contextmanager
    def _sensible(self) -> Iterator[None]:
        """Answers that lack fields which every Ray sends count as no answer."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise EngineUnreachable(
                f"engine {self.name}: Ray at {self._settings.address}: an answer that makes no sense ({error!r})"
            ) from error
