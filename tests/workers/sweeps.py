"""A sweep, and its trials' jobs as their workers and learners leave them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import yaml
from sqlalchemy import func, select, update
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import PROJECT, USER, World

from weft_core.engine_settings import LocalSettings
from weft_core.ids import new_id
from weft_core.manifest import parse_manifest
from weft_core.settings import Settings
from weft_core.store.models import Job, JobMetric, Member, SweepRow, Trial
from weft_core.store.scope import Scope
from weft_core.store.submitting import insert_job
from weft_core.sweeps import trials
from weft_core.sweeps.promoting import promote
from weft_core.wake import Wake
from weft_workers.context import Context, make_context
from weft_workers.sweeping import Sweeps

SPACE = {"lr": {"log": [1e-4, 1e-1]}, "width": {"int": [1, 64]}}


def objective(parameters: Mapping[str, Any]) -> float:
    """Best at lr = 0.01 and width = 32."""
    return -abs(float(parameters["lr"]) - 0.01) - abs(int(parameters["width"]) - 32) / 100


def submit(world: World, settings: Settings, *, retries: int = 0, **sweep: Any) -> str:
    """A sweep of the world's user; ``sweep`` are keys of the manifest's."""
    manifest = {
        "name": "search",
        "retries": retries,
        "framework": {"name": "python", "command": "python train.py --lr ${sweep.lr}"},
        "sweep": {"parameters": SPACE, "metric": "score", **sweep},
    }
    here = settings.model_copy(update={"engines": {"local": LocalSettings()}, "default_engine": "local"})
    parsed = parse_manifest(yaml.safe_dump(manifest), here).manifest
    with world.transaction() as session:
        session.merge(Member(project_id=PROJECT, user_id=USER, role="editor"))
        row = SweepRow(
            id=new_id("swp"),
            user_id=USER,
            name=parsed.name,
            manifest=parsed.model_dump(mode="json", exclude_none=True),
        )
        Scope(session, PROJECT).add(row)
    return row.id


@dataclass
class Swept:
    """One sweep under test."""

    world: World
    id: str

    def row(self) -> SweepRow:
        with self.world.transaction() as session:
            return session.get_one(SweepRow, self.id)

    def trials(self) -> list[Trial]:
        with self.world.transaction() as session:
            return list(session.scalars(select(Trial).where(Trial.sweep_id == self.id).order_by(Trial.number)))

    def jobs(self) -> dict[int, Job]:
        """By the number of the trial."""
        with self.world.transaction() as session:
            found = select(Trial.number, Job).join(Job, Job.id == Trial.job_id).where(Trial.sweep_id == self.id)
            return dict(session.execute(found).all())

    def labelled(self) -> list[str]:
        """The jobs that are marked as this sweep's, whether a trial names them or not."""
        with self.world.transaction() as session:
            return list(session.scalars(select(Job.id).where(Job.labels["sweep"].astext == self.id)))

    def open(self) -> list[Trial]:
        return [trial for trial in self.trials() if trial.state == "RUNNING"]

    def finish(self, trial: Trial, state: str = "COMPLETED", value: float | None = None) -> None:
        """The job of a trial ends, and has reported ``value``."""
        assert trial.job_id is not None
        with self.world.transaction() as session:
            ended = update(Job).where(Job.id == trial.job_id)
            session.execute(ended.values(state=state, ended_at=func.now(), next_step_at=None, reason=f"it is {state}"))
            if value is not None:
                row = {"name": "score", "rank": 0, "last": value, "min": value, "max": value}
                session.merge(JobMetric(job_id=trial.job_id, project_id=PROJECT, **row))

    def finish_open(self, value: Callable[[Mapping[str, Any]], float] = objective) -> None:
        for trial in self.open():
            self.finish(trial, value=value(trial.parameters))

    def run(self, context: Context) -> None:
        """Until the sweep ends; each round of trials ends together."""
        sweeps = Sweeps(context)
        for _ in range(1000):
            sweeps.run_due()
            if self.row().ended_at is not None:
                return
            self.finish_open()
        raise AssertionError("the sweep does not end")


class _Dying:
    """Wakes nobody: the process dies after the commit."""

    def job(self, job_id: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def move_and_die(settings: Settings, sweep_id: str, moment: str) -> None:
    """Move a sweep on in this process, which is killed at ``moment``."""
    context = make_context(settings, "inst-test", {"local": FakeEngine()}, connections=4)

    def promote_and_die(*given: Any) -> None:
        promote(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    def die(*given: Any, **more: Any) -> Any:
        if moment == "job inserted":
            insert_job(*given, **more)
            given[0].session.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "committed":
        context = replace(context, wake=cast(Wake, _Dying()))
    elif moment == "promoted":
        vars(trials).update(promote=promote_and_die)
    else:
        vars(trials).update(insert_job=die)
    Sweeps(context).move(sweep_id)
