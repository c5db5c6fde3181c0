"""kill -9 in the middle of a step: the lease runs out, the job goes on, and is launched once."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.processes import FORKS
from tests.workers.crashing import FileEngine, work
from tests.workers.test_sweeper import sweeping, until
from tests.workers.world import World

from weft_core.settings import TimingSettings
from weft_workers.context import Context
from weft_workers.observing import ObservedEngine


@pytest.mark.parametrize(
    ("moment", "launches"),
    [("before", ["created"]), ("after", ["created", "adopted"])],
)
def test_a_worker_killed_while_launching(
    world: World, context: Context, tmp_path: Path, moment: str, launches: list[str]
) -> None:
    job = world.submit()
    short = context.settings.model_copy(update={"timings": TimingSettings(lease=1.5, sweep=0.1)})
    process = FORKS.Process(target=work, args=(short, tmp_path, job, moment))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    (attempt,) = world.attempts(job)
    assert (world.job(job).state, attempt.launched_at) == ("PENDING", None), "the row was there first"

    engine = FileEngine(tmp_path)
    with sweeping(replace(context, engines={"local": ObservedEngine(engine, "local")}), lease=1.5):
        until(lambda: world.attempts(job)[0].launched_at is not None)
    assert engine.log == [f"{what} weft-{job}-1" for what in launches]
    assert len(world.attempts(job)) == 1
