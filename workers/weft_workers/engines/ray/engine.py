"""The engine ``ray``: a run is a Ray job. Whatever lives longer than a call is in ``weft_trainer.ray_gang``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from weft_core.engine import Capacity, EngineUnreachable, Observation
from weft_core.engine_settings import RaySettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.ray.capacity import Census
from weft_workers.engines.ray.client import RayClient
from weft_workers.engines.ray.package import agent_package
from weft_workers.engines.ray.reading import Run, is_ours, observe

_IDENTITY = ("installation", "project_id", "job_id", "attempt")
_KILL_SECONDS = 30
"""Beyond the grace, for a driver that got SIGTERM to end its learners; then Ray kills it, and they end with it."""


class RayEngine:
    """Learners as actors of a Ray cluster, through Ray's HTTP API.

    Args:
        name: its name in the settings.
        settings: where the cluster is.
        installation_id: whose runs are ours on a cluster that is shared.
    """

    def __init__(self, name: str, settings: RaySettings, installation_id: str) -> None:
        self.name = name
        self._settings = settings
        self._installation = installation_id
        self._ray = RayClient(name, settings)
        self._census = Census(name, settings, self._ray)
        self._stopping: set[str] = set()
        """Runs that this process has told to stop; others know by what the drivers say."""

    # --- the contract with the reconciler ---

    def launch(self, spec: LaunchSpec) -> None:
        if (there := self._ray.job(spec.run_name)) is not None:
            return self._adopt(there, spec)
        package = agent_package()
        if not self._ray.has_package(package.name):
            self._ray.put_package(package.name, package.data)
        # Asking for it first makes Ray drop it after ten minutes, if the driver should never come to take it.
        request = f"{spec.run_name}-request.zip"
        self._ray.has_package(request)
        self._ray.put_package(request, json.dumps(self._request(spec)).encode())
        if not self._ray.submit(self._job(spec, package.name)):
            there = self._ray.job(spec.run_name)
            if there is not None:
                self._adopt(there, spec)

    def observe(self) -> Mapping[str, Observation]:
        runs = self._runs()
        orphaned = {run.ray_job_id for run in runs if run.terminal and run.learners and not run.settled}
        living = self._living({one for one in orphaned if one})
        seen = {}
        for run in runs:
            ranks = living.get(run.name, frozenset())
            if run.terminal and not ranks and (run.stopped or run.name in self._stopping):
                self._forget(run.name)
            else:
                seen[run.name] = observe(run, ranks)
        self._stopping &= seen.keys()
        return seen

    def stop(self, run_name: str, grace: timedelta) -> None:
        job = self._ray.job(run_name)
        if job is None or not is_ours(job, self._installation, self.name):
            return
        run = Run(job)
        self._stopping.add(run_name)
        if run.terminal:
            if run.settled or not run.ray_job_id or run_name not in self._living({run.ray_job_id}):
                self._forget(run_name)
            return
        seconds = max(0.0, grace.total_seconds())
        if not run.settled:  # else the driver is about to end by itself
            note = f"{run_name}-stop.zip"
            self._ray.has_package(note)
            self._ray.put_package(note, json.dumps({"grace": seconds}).encode())
        if run.pending or seconds == 0:
            self._ray.stop_job(run_name)

    def capacity(self) -> Capacity:
        return self._census.take(self._runs())

    # --- launch ---

    def _job(self, spec: LaunchSpec, package: str) -> dict[str, Any]:
        wait = math.ceil(spec.grace) + _KILL_SECONDS
        return {
            "submission_id": spec.run_name,
            "entrypoint": f"python -m weft_trainer.ray_gang {spec.run_name}",
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

    def _request(self, spec: LaunchSpec) -> dict[str, Any]:
        """What the driver learns by a way that is in no listing: it holds the attempt's token."""
        environments = self._settings.environments
        return {
            "run_name": spec.run_name,
            "learners": spec.learners,
            "grace": spec.grace,
            "api_url": spec.api_url,
            "token": spec.token,
            "image": spec.image,
            "python": environments.get(spec.image) or environments.get("*"),
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
        """What stands under this name must be this very attempt."""
        there = job.get("metadata") or {}
        for field, ours in [("engine", self.name), *((one, str(getattr(spec, one))) for one in _IDENTITY)]:
            if there.get(field) != ours:
                raise EngineUnreachable(
                    f"engine {self.name}: a Ray job named {spec.run_name} is there, of another {field} "
                    f"({there.get(field)}, not {ours})"
                )

    # --- the runs ---

    def _runs(self) -> list[Run]:
        runs = [Run(job) for job in self._ray.jobs() if is_ours(job, self._installation, self.name)]
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

    def _forget(self, run_name: str) -> None:
        self._ray.delete_job(run_name)
        self._stopping.discard(run_name)
