"""A sweeper for which no job waits or ends rests until Redis tells of a change."""

from __future__ import annotations

import pytest
from tests.workers.test_sweeper import sweeping, until
from tests.workers.world import World

from weft_core.wake import Wake
from weft_workers import sweeper
from weft_workers.context import Context
from weft_workers.duties import OtherDuties, find_other_duties
from weft_workers.wakeups import WakeUps
from weft_workers.watching import watch

LONG = 3600.0  # seconds: a wait that does not end early fails by the test's time limit


def test_a_wait_ends_with_a_change_of_any_job(redis_url: str) -> None:
    wakeups, wake = WakeUps(redis_url), Wake(redis_url)
    wake.changed("job-before")
    wakeups.wait(LONG)  # it subscribes: the search that follows finds what has changed before
    wakeups.wait(0.1)
    for _ in range(3):
        wake.changed("job-one")
    wakeups.wait(LONG)
    wakeups.close()
    wakeups.wait(LONG)
    wake.changed("job-two")
    wakeups.wait(LONG)
    wakeups.close()
    wake.close()


def test_without_redis_a_wait_is_short() -> None:
    wakeups = WakeUps("unix:///nowhere/redis.sock")
    for _ in range(3):
        wakeups.wait(LONG)
    wakeups.close()


def test_a_sweeper_at_rest_finds_a_job_when_it_comes(
    world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_REST", LONG)
    searches: list[bool] = []

    def searching(*args: object) -> tuple[OtherDuties, bool]:
        found = find_other_duties(context.database)
        searches.append(found[1])
        return found

    monkeypatch.setattr(sweeper, "find_other_duties", searching)
    with sweeping(context):
        until(lambda: len(searches) == 2)  # the first wait subscribes
        job = world.submit(resources={"gpus": 4})  # all that there are
        context.wake.changed(job)
        until(lambda: world.job(job).state == "PENDING")
        assert searches[:2] == [False, False]
        world.submit(resources={"gpus": 1})  # it waits
        context.wake.changed(job)
        until(lambda: searches[-1])
        # While a job waits, it searches without any news.
        count = len(searches)
        until(lambda: len(searches) > count + 3)


def test_a_sweeper_at_rest_watches_the_engines_on_which_jobs_run(
    world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_REST", LONG)
    watched: list[str] = []

    def watching(context: Context, name: str) -> list[str]:
        watched.append(name)
        return watch(context, name)

    monkeypatch.setattr(sweeper, "watch", watching)
    world.running()
    with sweeping(context):
        until(lambda: len(watched) >= 3)
