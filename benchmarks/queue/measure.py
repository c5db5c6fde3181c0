"""What is measured, and the table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import event, text
from tests.servers import Servers

from benchmarks.queue import workers
from benchmarks.queue.bursts import JOBS, SWEEPERS, burst
from benchmarks.queue.double import Double
from benchmarks.queue.filling import fill, submit
from benchmarks.table import median, show, spread
from weft_workers.context import Context, make_context
from weft_workers.reconcile import admit as admission
from weft_workers.reconcile import noting, step
from weft_workers.watching import watch

SIZES = [int(size) for size in os.environ.get("WEFT_BENCH_QUEUE", "1000,3000,10000").split(",")]
"""Waiting jobs; a fifth as many are open."""
PARTS = os.environ.get("WEFT_BENCH_PARTS", "passes,watch,rest,bursts,engines").split(",")
ROUNDS, LOOKS = 7, 5
SECONDS, SUBMITS = 15, 30
ENGINES = (1, 2, 4)


def measure(folder: Path) -> None:
    servers = Servers()
    try:
        if "passes" in PARTS:
            show(
                "A pass of admission, 100 projects with quotas and shares: processor time in ms, median (min to max)",
                ["waiting", "open", "no change", "a job ends", "and Postgres", "first pass", "statements"],
                [_passes(servers, folder, size) for size in SIZES],
            )
        if "watch" in PARTS:
            show(
                "Open jobs that nothing disturbs: processor time in ms, median (min to max)",
                ["open", "a look at all", "and Postgres", "statements", "a step of one", "and Postgres", "statements"],
                [_watch(servers, folder, size // 5) for size in SIZES],
            )
        if "rest" in PARTS:
            show(
                f"Two workers and Postgres at rest; then {SUBMITS} jobs are submitted for which there is room",
                [
                    "waiting",
                    "open",
                    "cores at rest",
                    "steps overdue, p99, s",
                    "submit to admitted, median, s",
                    "most, s",
                ],
                [_rest(servers, folder, size, opened) for size in SIZES for opened in (0, size // 5)],
            )
        if "bursts" in PARTS:
            show(
                f"{JOBS} jobs start, and then they are halted, all at the same time",
                ["sweepers", "starts/s", "workers and Postgres, each", "halts/s", "workers and Postgres, each"],
                [burst(servers, folder, sweepers) for sweepers in SWEEPERS],
            )
        if "engines" in PARTS:
            show(
                f"{SIZES[-1]:,} waiting jobs of several engines: processor time of a pass in ms, median (min to max)",
                ["engines", "waiting for each", "a pass of one engine", "and Postgres"],
                [_engines(servers, folder, SIZES[-1], number) for number in ENGINES],
            )
    finally:
        servers.stop()


@contextmanager
def _filled(servers: Servers, folder: Path, size: int, opened: int, spare: int) -> Iterator[Context]:
    """A context of this process, with a database that is full of jobs."""
    with servers.database_url() as url:
        settings = workers.worker_settings(servers, url, folder)
        context = make_context(settings, "inst-bench", {"local": Double(opened, spare)})
        fill(context.database, size, opened)
        yield context
        context.close()


def _passes(servers: Servers, folder: Path, size: int) -> list[str]:
    """Passes in this process, one for each change."""
    opened = size // 5
    with _filled(servers, folder, size, opened, 0) as context:
        statements = _count(context)
        postgres = workers.postgres_pid(servers)
        first, _ = _pass(context, postgres)
        still, ends, theirs, counts = [], [], [], []
        for number in range(1, ROUNDS + 1):
            statements.clear()
            still.append(_pass(context, postgres)[0])
            counts.append(len(statements))
            _end(context, number)
            own, other = _pass(context, postgres)
            ends.append(own)
            theirs.append(other)
    shown = [spread(times, 1000, 0) for times in (still, ends, theirs)]
    return [f"{size:,}", f"{opened:,}", *shown, f"{first * 1000:.0f}", f"{median(counts):.0f}"]


def _watch(servers: Servers, folder: Path, opened: int) -> list[str]:
    """The cost of observing all open jobs at once, and of stepping one."""
    with _filled(servers, folder, 0, opened, 0) as context:
        statements, postgres = _count(context), workers.postgres_pid(servers)
        later = text("update jobs set next_step_at = now() + interval '300 s'")
        looks, theirs, steps, steps_theirs = [], [], [], []
        counts: dict[str, int] = {}
        for number in range(1, ROUNDS + 1):
            job_id = f"open-{number}"
            with context.database.transaction() as session:
                session.execute(later)
                session.execute(text("update jobs set next_step_at = now() where id = :id"), {"id": job_id})
            statements.clear()
            own, other = _spent(partial(step, context, job_id, linger=False), postgres)
            steps.append(own)
            steps_theirs.append(other)
            counts["step"] = len(statements)
            statements.clear()
            # A sum, as the kernel counts the time of a process in hundredths of a second.
            own, other = _spent(partial(_look_often, context), postgres)
            looks.append(own / LOOKS)
            theirs.append(other / LOOKS)
            counts["look"] = len(statements) // LOOKS - 1
    shown = [spread(times, 1000, 1) for times in (looks, theirs, steps, steps_theirs)]
    return [f"{opened:,}", *shown[:2], str(counts["look"]), *shown[2:], str(counts["step"])]


def _engines(servers: Servers, folder: Path, size: int, number: int) -> list[str]:
    """Passes of the first of several engines, among which the waiting jobs are divided."""
    names = ["local", *(f"cluster-{other}" for other in range(1, number))]
    with _filled(servers, folder, size, 0, 0) as context:
        with context.database.transaction() as session:
            move = text("update jobs set engine = (cast(:names as text[]))[1 + substr(id, 6)::int % :number]")
            session.execute(move, {"names": names, "number": number})
        postgres = workers.postgres_pid(servers)
        _pass(context, postgres)
        own, theirs = zip(*(_pass(context, postgres) for _ in range(ROUNDS)), strict=True)
    return [str(number), f"{size // number:,}", spread(list(own), 1000, 0), spread(list(theirs), 1000, 0)]


def _look_often(context: Context) -> None:
    for _ in range(LOOKS):
        with context.database.transaction() as session:
            session.execute(text("update queues set next_watch_at = now()"))
        assert watch(context, "local") == []


def _spent(work: Callable[[], object], postgres: int) -> tuple[float, float]:
    """Processor time of this process and of Postgres."""
    mine, theirs = time.process_time(), workers.used([], postgres)
    work()
    return time.process_time() - mine, workers.used([], postgres) - theirs


def _rest(servers: Servers, folder: Path, size: int, opened: int) -> list[str]:
    """Two workers, first alone, then with jobs that are submitted."""
    spare = 4 * SUBMITS
    with _filled(servers, folder, size, opened, spare) as context:
        _block(context)
        processes = workers.start(context.settings, opened, spare, 2)
        try:
            _settle(context)
            begun, before = time.monotonic(), workers.used(processes, workers.postgres_pid(servers))
            overdue = []
            while time.monotonic() < begun + SECONDS:
                time.sleep(0.5)
                overdue += _overdue(context)
            cores = (workers.used(processes, workers.postgres_pid(servers)) - before) / (time.monotonic() - begun)
            waits = [_submitted(context, number) for number in range(SUBMITS)]
        finally:
            workers.stop(processes)
    return [
        f"{size:,}",
        f"{opened:,}",
        f"{cores:.2f}",
        f"{_percentile(overdue, 0.99):.1f}",
        f"{median(waits):.2f}",
        f"{max(waits):.2f}",
    ]


def _block(context: Context) -> None:
    """The jobs that wait can't start, whatever room there is: their projects have no quota left."""
    with context.database.transaction() as session:
        session.execute(text("update projects set quota = cast('{\"cpus\": 0}' as jsonb) where id <> 'prj-0'"))
        session.execute(text("update projects set quota = '{}' where id = 'prj-0'"))
        session.execute(text("update jobs set project_id = 'prj-1' where project_id = 'prj-0' and state = 'QUEUED'"))


def _settle(context: Context) -> None:
    """Wait until the queue has been planned, every open job has had a step, and the results are written."""
    planned = "state <> 'QUEUED' or (place is not null and next_step_at is null)"
    stepped = "state = 'QUEUED' or version > 0"
    left = text(f"select count(*) from jobs where not (({planned}) and ({stepped}))")
    deadline = time.monotonic() + 300
    while True:
        with context.database.transaction() as session:
            if not session.scalar(left):
                break
        assert time.monotonic() < deadline, "the workers never come to rest"
        time.sleep(0.5)
    time.sleep(noting.AGAIN + 1)


def _overdue(context: Context) -> list[float]:
    late = (
        "select extract(epoch from now() - next_step_at) from jobs where next_step_at <= now() and lease_token is null"
    )
    with context.database.transaction() as session:
        return [float(seconds) for seconds in session.scalars(text(late))]


def _submitted(context: Context, number: int) -> float:
    """Seconds until a job is admitted that is submitted now; its hint reaches a worker at once."""
    job_id = submit(context.database, number)
    begun = time.perf_counter()
    step(context, job_id, linger=False)
    admitted = text("select attempt from jobs where id = :id")
    while True:
        with context.database.transaction() as session:
            if session.scalar(admitted, {"id": job_id}):
                return time.perf_counter() - begun
        assert time.perf_counter() < begun + 120, "it is never admitted"
        time.sleep(0.01)


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def _count(context: Context) -> list[str]:
    seen: list[str] = []
    event.listen(context.database.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    return seen


def _pass(context: Context, postgres: int) -> tuple[float, float]:
    """Processor time of this process and of Postgres."""
    with context.database.transaction() as session:
        session.execute(text("update queues set passed_at = null"))
        session.execute(text("insert into queue_changes (engine) values ('local')"))
    made: list[bool] = []
    spent = _spent(lambda: made.append(admission.admit(context, "local")), postgres)
    assert made == [True]
    return spent


def _end(context: Context, number: int) -> None:
    """A job ends, and its room is free."""
    with context.database.transaction() as session:
        session.execute(text("update attempts set ended_at = now() where id = :id"), {"id": f"att-{number}"})
        session.execute(text("update jobs set state = 'COMPLETED' where id = :id"), {"id": f"open-{number}"})
